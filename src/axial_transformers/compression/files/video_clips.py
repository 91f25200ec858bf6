"""Frames of videos as clips of the model's shape: read when they are asked for, those of one clip at a time."""

import hashlib
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import islice
from math import prod
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from axial_transformers.compression.files import tiles
from axial_transformers.data.movies import write_lossless
from axial_transformers.data.video import frames_of
from axial_transformers.models import AxialTransformerConfig

MOST_VALUES = 1 << 30
"""Number of values of a clip's frames, which are in memory together."""

Frames = NDArray[np.uint8]


class Video(NamedTuple):
    """A video that is cut into clips."""

    path: Path
    size: tuple[int, int, int]
    """Frames, height and width."""


class TooLargeError(ValueError):
    """The frames of a clip do not fit into memory together."""


def frames_in(path: Path, channels: int) -> Iterator[Frames]:
    """Frames [H, W] or [H, W, 3], all of one size.

    Raises:
        ValueError: they are not, or the video is damaged.
    """
    shape = None
    for frame in frames_of(path, "gray" if channels == 1 else "rgb"):
        pixels = np.asarray(frame)
        if pixels.shape != (shape := shape or pixels.shape):
            raise ValueError(f"{path} has frames of several sizes: {shape} and {pixels.shape}")
        yield pixels


def size_of(path: Path, config: AxialTransformerConfig, rate: Fraction, suffix: str) -> tuple[int, int, int] | None:
    """Frames, height and width of a video; None if its frames, written without loss and read again, are not the same.

    Raises:
        TooLargeError: a clip of its frames has more than MOST_VALUES values.
        Exception: as encoders and decoders raise them, of every kind.
    """
    read, again = _Digest(), _Digest()
    with tempfile.TemporaryDirectory() as folder:
        movie = Path(folder, f"video{suffix}")
        write_lossless(movie, read.of(_small(path, config)), rate, gray=config.channels == 1)
        for _ in again.of(frames_in(movie, config.channels)):
            pass
    height, width = read.shape[:2]
    return (read.count, height, width) if read.found == again.found else None


def _small(path: Path, config: AxialTransformerConfig) -> Iterator[Frames]:
    for frame in frames_in(path, config.channels):
        covered = prod(tiles.grid(frame.shape[:2], config.shape[1:])) * prod(config.shape) * config.channels
        if covered > MOST_VALUES:
            raise TooLargeError(
                f"{path}: {config.shape[0]} frames of {frame.shape[0]}x{frame.shape[1]}, a clip of the model, are more"
                f" than {MOST_VALUES:,} values: make them smaller, or leave the video out"
            )
        yield frame


class _Digest:
    """Number, size and SHA-256 of frames that pass through."""

    def __init__(self) -> None:
        self.count, self.shape, self._hash = 0, tuple[int, ...](), hashlib.sha256()

    def of(self, frames: Iterable[Frames]) -> Iterator[Frames]:
        for frame in frames:
            self.count, self.shape = self.count + 1, frame.shape
            self._hash.update(frame.tobytes())
            yield frame

    @property
    def found(self) -> tuple[int, tuple[int, ...], bytes]:
        return self.count, self.shape, self._hash.digest()


def clips_of(videos: Sequence[Video], config: AxialTransformerConfig) -> Callable[[int, int], Frames]:
    """Reads the tiles of the clips first..last - 1 of all videos; keeps those of the last one, and its place.

    A clip is as many frames as the model's clips have; the last one of a video is repeated to fill its last clip. Who
    asks for one clip after the other, or for the last one again, makes each video be read once.
    """
    clips: Iterator[Frames] = iter(())
    upcoming = -1

    @lru_cache(1)
    def clip(number: int) -> Frames:
        nonlocal clips, upcoming
        if number != upcoming:
            clips = _clips_from(number, videos, config)
        upcoming = -1  # should reading fail
        made = next(clips)
        upcoming = number + 1
        return made

    def load(first: int, last: int) -> Frames:
        empty = np.zeros((0, *config.shape, config.channels), np.uint8)
        return np.concatenate([empty, *map(clip, range(first, last))])

    return load


def _clips_from(first: int, videos: Sequence[Video], config: AxialTransformerConfig) -> Iterator[Frames]:
    """The tiles of clip `first` and of those behind it, a clip at a time."""
    length = config.shape[0]
    for path, size in videos:
        count, *_ = tiles.grid(size, config.shape)
        if first < count:
            frames = islice(frames_in(path, config.channels), first * length, None)
            for number in range(first, count):
                clip = np.array([*islice(frames, length)])
                if clip.shape[:3] != (min(length, size[0] - number * length), *size[1:]):
                    raise ValueError(f"{path} has changed since it was first read: compress it again")
                yield tiles.cut(clip.reshape(1, *clip.shape[:3], -1), config.shape)
        first = max(0, first - count)
