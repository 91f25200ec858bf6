"""Folders of videos, or one: their frames to clips of the model's shape, and back to lossless .mkv files."""

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from functools import partial
from math import prod
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from axial_transformers.compression.archive_writer import File
from axial_transformers.compression.errors import DamagedError
from axial_transformers.compression.files import source_folders, tiles
from axial_transformers.compression.files.contents import Contents, OtherSizes, Tiles, other_size_error
from axial_transformers.compression.files.restored_names import Names, check_name, restored_names
from axial_transformers.compression.files.source_folders import OtherFiles, Parts, shared_out
from axial_transformers.compression.files.video_clips import TooLargeError, Video, clips_of, size_of
from axial_transformers.data import DataConfig
from axial_transformers.data.movies import lossless_movie
from axial_transformers.data.video import SUFFIXES, frame_rate, kind_of_videos
from axial_transformers.models import AxialTransformerConfig

_SUFFIX = ".mkv"
_LARGEST = 1 << 31
_HIGHEST_RATE = 1000
_USUAL_RATE = Fraction(25)


class Entry(NamedTuple):
    """The description of one file."""

    name: str
    size: tuple[int, int, int] | None
    """Frames, height and width; None if the archive holds the file itself."""
    rate: Fraction
    """Frames a second."""

    @property
    def restored_as_it_is(self) -> bool:
        """True if the file is written under its own name."""
        return self.size is None or PurePosixPath(self.name).suffix.lower() == _SUFFIX

    def parts(self, config: AxialTransformerConfig) -> Parts:
        """The parts of the archive that the file is made of."""
        return Parts(True, prod(tiles.grid(self.size, config.shape))) if self.size else Parts(False, 1)

    def json(self) -> list[Any]:
        """The entry as `planned` reads it."""
        if self.size is None:
            return [self.name]
        return [self.name, *self.size, self.rate.numerator, self.rate.denominator]


def read(path: Path, config: AxialTransformerConfig, other_sizes: OtherSizes) -> Contents:
    """Cuts one video, or every one below a folder, into clips of the model's shape; repeats the last frame to fill one.

    Each is written as an .mkv file and read again, before anything is compressed. What does not come back so, is not in
    the model's colours, or is no video, is stored as the file that it is. Clips are read when they are asked for.

    Raises:
        ValueError: no videos of the model's colours, one of another size (unless tiled) or whose frames are too large,
            or another file that is too large.
    """
    source, others = source_folders.source(path), OtherFiles()
    entries, cut, files = list[Entry](), list[Video](), list[File]()
    names = Names([source.name(file) for file in source.files])
    for file in source.files:
        name = source.name(file)
        kept = not (name.lower().endswith(_SUFFIX) or names.has_room_for(name + _SUFFIX))
        entry = None if kept else _modelled(file, name, config)
        if entry is None:
            others.keep(file, name, f"is no video that comes back in {config.channels} channels of 8 bits")
            files.append(partial(source_folders.content, file))
            entries.append(Entry(name, None, _USUAL_RATE))
            continue
        assert entry.size is not None
        if entry.size[1:] != config.shape[1:] and other_sizes == "refuse":
            raise other_size_error(file, entry.size[1:], config.shape[1:])
        entries.append(entry)
        cut.append(Video(file, entry.size))
    others.require_small()
    if not cut:
        raise ValueError(
            f"{path} holds no videos ({', '.join(SUFFIXES)}) that come back in {config.channels} channels of 8 bits:"
            " save other clips as an array in an .npz file"
        )
    description = [entry.json() for entry in entries]
    planned(description, config)
    grids = [tiles.grid(video.size, config.shape) for video in cut]
    images = Tiles([prod(of_frame) for clips, *of_frame in grids for _ in range(clips)], clips_of(cut, config))
    return Contents(
        images, {"videos": description}, files, left_out=source.left_out, whole=others.names, others=others.names,
        examples=len(cut),
    )  # fmt: skip


def planned(videos: Any, config: AxialTransformerConfig, only_as: str | None = None) -> list[tuple[Entry, str]]:
    """The description's entries and the names under which they are restored.

    Args:
        only_as: the name under which the only video is restored.

    Raises:
        DamagedError: the description is damaged, or names files outside of the folder.
        ValueError: `only_as` has another suffix than the video.
    """
    if not isinstance(videos, list) or len(config.shape) != 3:
        raise DamagedError("the archive's description of its videos is damaged")
    entries = [_entry(video) for video in videos]
    keeps = [entry.restored_as_it_is for entry in entries]
    names = restored_names([entry.name for entry in entries], keeps, _SUFFIX)
    if only_as is not None:
        found, wanted = PurePosixPath(only_as).suffix.lower(), PurePosixPath(names[0]).suffix.lower()
        if found != wanted:
            raise ValueError(f"the archive holds a video that comes back as {wanted}: give such a target, not {found}")
        names = [only_as]
    return list(zip(entries, names))


def restored(
    plan: Sequence[tuple[Entry, str]], config: AxialTransformerConfig, images: Iterable[NDArray[np.uint8] | None],
    files: Iterable[bytes | None],
) -> Iterator[bytes | None]:  # fmt: skip
    """The content of each planned file; None where a part is missing (None).

    Raises:
        DamagedError: the description does not fit the images and files.
    """
    wanted = [(entry.name, entry.parts(config)) for entry, _ in plan]
    for parts, (entry, _) in zip(shared_out(wanted, images, files), plan):
        if parts is None or entry.size is None:
            yield None if parts is None else parts[0]
        else:
            (frames,) = tiles.join(np.stack(parts), entry.size)
            yield _movie(entry, frames if config.channels == 3 else frames[..., 0])


def _movie(entry: Entry, frames: NDArray[np.uint8]) -> bytes:
    try:
        return lossless_movie(frames, entry.rate)
    except Exception as error:  # encoders raise errors of every kind
        reason = f"no encoder takes frames of {entry.size} ({type(error).__name__})"
        raise DamagedError(f"the archive's description of {entry.name!r:.100} is damaged: {reason}") from error


def _modelled(path: Path, name: str, config: AxialTransformerConfig) -> Entry | None:
    """A video's entry; None for a file that is none, or that does not come back in the model's channels.

    Raises:
        TooLargeError: its frames are too large.
    """
    if path.suffix.lower() not in SUFFIXES:
        return None
    try:
        if {"gray": 1, "rgb": 3}.get(kind_of_videos([path], DataConfig())) != config.channels:
            return None
        rate = frame_rate(path) or _USUAL_RATE
        if not Fraction(1, _HIGHEST_RATE) <= rate <= _HIGHEST_RATE or rate.denominator >= _LARGEST:
            return None
        size = size_of(path, config, rate, _SUFFIX)
    except TooLargeError:
        raise
    except Exception:  # encoders and decoders raise errors of every kind
        return None
    return size and Entry(name, size, rate)


def _entry(video: Any) -> Entry:
    types = [type(part) for part in video] if isinstance(video, list) else []
    if types == [str]:
        entry = Entry(video[0], None, _USUAL_RATE)
    elif types == [str, *[int] * 5]:
        name, *size, numerator, denominator = video
        sound = all(1 <= number < _LARGEST for number in video[1:])
        if not sound or not Fraction(1, _HIGHEST_RATE) <= Fraction(numerator, denominator) <= _HIGHEST_RATE:
            raise DamagedError(f"the archive's description of {name!r:.100} is damaged")
        entry = Entry(name, tuple(size), Fraction(numerator, denominator))
    else:
        raise DamagedError(f"the archive describes a video as {video!r:.100}")
    check_name(entry.name)
    return entry
