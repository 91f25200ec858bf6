"""Folders of videos, or one: their frames to clips, and back to lossless .mkv files."""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice
from math import prod
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from axial_transformers.compression.container import DamagedError
from axial_transformers.compression.files.entries import FileEntry
from axial_transformers.compression.files.source import Tiles, cut_tiles, tile_grid
from axial_transformers.data import DataConfig
from axial_transformers.data.video import (
    SUFFIXES,
    frame_rate,
    frames_of,
    kind_of_videos,
    lossless_movie,
    pyav,
    write_lossless,
)
from axial_transformers.models import AxialTransformerConfig

MAX_VALUES = 1 << 30
"""Of a clip's frames, which are in memory together."""
_SUFFIX = ".mkv"
_MAX_NUMBER = 1 << 31
_HIGHEST_RATE = 1000
_USUAL_RATE = Fraction(25)

Frames = NDArray[np.uint8]
_Video = tuple[Path, tuple[int, ...]]


@dataclass(frozen=True)
class VideoEntry(FileEntry):
    """The description of a video."""

    AXES: ClassVar[int] = 3
    SUFFIX: ClassVar[str] = _SUFFIX
    KIND: ClassVar[str] = "videos"
    REASON: ClassVar[str] = "is no video that comes back in the model's channels of 8 bits"

    rate: Fraction = _USUAL_RATE

    @classmethod
    def of_file(cls, path: Path, name: str, config: AxialTransformerConfig) -> "VideoEntry | None":
        if path.suffix.lower() not in SUFFIXES:
            return None
        pyav()
        try:
            if {"gray": 1, "rgb": 3}.get(kind_of_videos([path], DataConfig())) != config.channels:
                return None
            rate = frame_rate(path) or _USUAL_RATE
            if not Fraction(1, _HIGHEST_RATE) <= rate <= _HIGHEST_RATE or rate.denominator >= _MAX_NUMBER:
                return None
            size = size_of(path, config, rate)
        except TooLargeError:
            raise
        except Exception:  # encoders and decoders raise errors of every kind
            return None
        return size and cls(name, size, rate)

    @classmethod
    def images_of(cls, files: Sequence[tuple[Path, "VideoEntry"]], config: AxialTransformerConfig) -> Tiles:
        cut = [(path, entry.size) for path, entry in files if entry.size is not None]
        length = config.shape[0]
        sizes = [
            (min(length, count - first), *sides) for _, (count, *sides) in cut for first in range(0, count, length)
        ]
        return Tiles(sizes, clips_of(cut, config), (*config.shape, config.channels))

    @classmethod
    def read(cls, description: Any, channels: int) -> "VideoEntry":
        types = [type(part) for part in description] if isinstance(description, list) else []
        if types == [str]:
            return cls(description[0], None)
        if types != [str, *[int] * 5]:
            raise DamagedError(f"the archive describes a video as {description!r:.100}")
        name, *size, numerator, denominator = description
        sound = all(1 <= number < _MAX_NUMBER for number in description[1:])
        if not sound or not Fraction(1, _HIGHEST_RATE) <= Fraction(numerator, denominator) <= _HIGHEST_RATE:
            raise DamagedError(f"the archive's description of {name!r:.100} is damaged")
        return cls(name, tuple(size), Fraction(numerator, denominator))

    def json(self) -> list[Any]:
        return [self.name] if self.size is None else [self.name, *self.size, *self.rate.as_integer_ratio()]

    def keeps(self, name: str) -> bool:
        return PurePosixPath(name).suffix.lower() == _SUFFIX

    def from_values(self, values: NDArray[np.uint8], name: str) -> bytes:
        try:
            return lossless_movie(values if values.shape[-1] == 3 else values[..., 0], self.rate)
        except Exception as error:  # encoders raise errors of every kind
            reason = f"no encoder takes frames of {self.size} ({type(error).__name__})"
            raise DamagedError(f"the archive's description of {self.name!r:.100} is damaged: {reason}") from error


class TooLargeError(ValueError):
    """A clip does not fit into memory."""


def frames_in(path: Path, channels: int) -> Iterator[Frames]:
    """Yield frames [H, W] or [H, W, 3] of one size."""
    shape = None
    for frame in frames_of(path, "gray" if channels == 1 else "rgb"):
        pixels = np.asarray(frame)
        if pixels.shape != (shape := shape or pixels.shape):
            raise ValueError(f"{path} has frames of several sizes: {shape} and {pixels.shape}")
        yield pixels


def size_of(path: Path, config: AxialTransformerConfig, rate: Fraction) -> tuple[int, int, int] | None:
    """Return frames, height and width; None if a video does not come back without loss."""
    count, sides = 0, (0, 0)
    with tempfile.TemporaryDirectory() as folder:
        movie = Path(folder, f"video{_SUFFIX}")
        write_lossless(movie, _small(path, config), rate, gray=config.channels == 1)
        for frame, again in zip(frames_in(path, config.channels), frames_in(movie, config.channels), strict=True):
            if not np.array_equal(frame, again):
                return None
            count, sides = count + 1, frame.shape[:2]
    return (count, *sides) if count else None


def _small(path: Path, config: AxialTransformerConfig) -> Iterator[Frames]:
    for frame in frames_in(path, config.channels):
        covered = prod(tile_grid(frame.shape[:2], config.shape[1:])) * prod(config.shape) * config.channels
        if covered > MAX_VALUES:
            raise TooLargeError(
                f"{path}: {config.shape[0]} frames of {frame.shape[0]}x{frame.shape[1]}, a clip of the model, are more"
                f" than {MAX_VALUES:,} values: make them smaller, or leave the video out"
            )
        yield frame


def clips_of(videos: Sequence[_Video], config: AxialTransformerConfig) -> Callable[[int], NDArray[np.integer]]:
    """Return what reads the tiles of one clip of all videos; in order, each video is read once."""
    clips: Iterator[NDArray[np.integer]] = iter(())
    upcoming = -1

    def clip(number: int) -> NDArray[np.integer]:
        nonlocal clips, upcoming
        if number != upcoming:
            clips = _clips_from(number, videos, config)
        upcoming = -1  # should reading fail
        made = next(clips)
        upcoming = number + 1
        return made

    return clip


def _clips_from(first: int, videos: Sequence[_Video], config: AxialTransformerConfig) -> Iterator[NDArray[np.integer]]:
    length = config.shape[0]
    for path, size in videos:
        count, *_ = tile_grid(size, config.shape)
        if first < count:
            frames = islice(frames_in(path, config.channels), first * length, None)
            for number in range(first, count):
                clip = np.array([*islice(frames, length)])
                if clip.shape[:3] != (min(length, size[0] - number * length), *size[1:]):
                    raise ValueError(f"{path} has changed since it was first read: compress it again")
                yield cut_tiles(clip.reshape(1, *clip.shape[:3], -1), config.shape)
        first = max(0, first - count)
