"""Folders of pictures, or one: to images of the model's size, and back to files of the same names, modes and pixels."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from axial_transformers.compression.errors import DamagedError
from axial_transformers.compression.files import source_folders, tiles
from axial_transformers.compression.files.contents import Contents, OtherSizes, Tiles, other_size_error
from axial_transformers.compression.files.restored_names import Names, check_name, restored_names
from axial_transformers.compression.files.source_folders import OtherFiles, Parts, shared_out
from axial_transformers.compression.files.whole_pictures import (
    MODES,
    Look,
    as_png,
    comes_back,
    decoded,
    encoded,
    from_png,
    keeps,
)
from axial_transformers.data import join_uint16, split_uint16
from axial_transformers.data.picture_files import MOST_PIXELS, Member, PictureError, opened
from axial_transformers.models import AxialTransformerConfig

_MODELLED = {1: ("L", "1"), 2: ("I;16",), 3: ("RGB",)}
"""Modes of the pictures that a model codes, by its number of channels."""

_Found = TypeVar("_Found")


class _Entry(NamedTuple):
    """The description of one file."""

    name: str
    mode: str | None
    """None: the archive holds the file itself."""
    size: tuple[int, int]
    """Height and width; zeros if the archive holds the file itself."""

    @property
    def restored_as_it_is(self) -> bool:
        """True if the file is written under its own name."""
        return self.mode is None or keeps(self.name, self.mode, self.size)

    @property
    def restored_as(self) -> str:
        """The name under which a picture is restored."""
        return self.name if self.restored_as_it_is else f"{self.name}.png"

    def parts(self, config: AxialTransformerConfig) -> Parts:
        """The parts of the archive that the file is made of."""
        if self.mode in _MODELLED.get(config.channels, ()):
            return Parts(True, prod(tiles.grid(self.size, config.shape)))
        return Parts(False, 1)

    def json(self) -> list[Any]:
        """The entry as `_entries` reads it."""
        return [self.name] if self.mode is None else [self.name, self.mode, *self.size]


class Planned(NamedTuple):
    """A file that is to be restored."""

    entry: _Entry
    name: str
    """Its name, which is not always the one that it had."""


@dataclass
class _Stored:
    """One file as it is stored: tiles of the model, a PNG file, or the file itself."""

    path: Path
    entry: _Entry
    tiles: int = 0
    """Their number."""

    def whole(self) -> None:
        """Stores the file itself."""
        self.entry, self.tiles = _Entry(self.entry.name, None, (0, 0)), 0

    def values(self) -> NDArray[np.uint8]:
        """The picture [H, W, C] that is cut into tiles."""
        return _values(self._picture()[0])

    def file(self) -> bytes:
        """The file that the archive holds."""
        if self.entry.mode is None:
            return source_folders.content(self.path)
        png = as_png(*self._picture())
        return self._unchanged(png)

    def _picture(self) -> tuple[Image.Image, str, Look]:
        """The picture, the name under which it is restored, and its look."""
        picture, look = decoded(Member(source_folders.content(self.path), str(self.path)))
        same = picture and (look.mode, picture.height, picture.width) == (self.entry.mode, *self.entry.size)
        return self._unchanged(picture if same else None), self.entry.restored_as, look

    def _unchanged(self, found: _Found | None) -> _Found:
        if found is None:
            raise ValueError(f"{self.path} has changed since it was first read: compress it again")
        return found


def read(path: Path, config: AxialTransformerConfig, other_sizes: OtherSizes) -> Contents:
    """Reads one picture, or every file below a folder; pictures of other modes than the model's become files.

    Every picture is restored and compared, before anything is compressed. It is stored as the first of these that keeps
    it: tiles of the model, for pictures of its mode; a PNG file, for others, if it is no larger than their own file;
    that file. Files that are no pictures, or damaged ones, are stored as they are.

    Raises:
        ValueError: no pictures, one of another size (unless tiled), or another file that is too large.
    """
    source, others = source_folders.source(path), OtherFiles()
    stored = [_stored(file, source.name(file), config, other_sizes, others) for file in source.files]
    others.require_small()
    if len(others.names) == len(stored):
        if path.is_dir():
            raise ValueError(f"{path} holds no pictures")
        raise ValueError(f"{path} is no picture that can be read, no folder of pictures, and no .npz or .npy file")
    names = Names([some.entry.name for some in stored])
    for some in stored:
        if not (some.entry.restored_as_it_is or names.has_room_for(some.entry.restored_as)):
            some.whole()
    pictures = [some.entry.json() for some in stored]
    planned(pictures, config)
    tiled = [some for some in stored if some.tiles]
    return Contents(
        Tiles([some.tiles for some in tiled], _tiles_of(tiled, config)),
        {"pictures": pictures},
        [some.file for some in stored if not some.tiles],
        left_out=source.left_out,
        as_png=[some.entry.name for some in stored if some.entry.mode is not None and not some.tiles],
        whole=[some.entry.name for some in stored if some.entry.mode is None],
        others=others.names,
        examples=len(tiled),
    )


def _tiles_of(stored: list[_Stored], config: AxialTransformerConfig) -> Callable[[int, int], NDArray[np.uint8]]:
    """Reads the tiles of some of the pictures; keeps those of the last one, which may be asked for in parts."""

    @lru_cache(1)
    def of(i: int) -> NDArray[np.uint8]:
        return tiles.cut(stored[i].values()[None], config.shape)

    def load(first: int, last: int) -> NDArray[np.uint8]:
        empty = np.zeros((0, *config.shape, config.channels), np.uint8)
        return np.concatenate([empty, *map(of, range(first, last))])

    return load


def planned(pictures: Any, config: AxialTransformerConfig, only_as: str | None = None) -> list[Planned]:
    """The description's entries and the names under which they are restored.

    Args:
        only_as: the name under which the only picture is restored.

    Raises:
        DamagedError: the description is damaged, or names files outside of the folder.
        ValueError: a file of the name `only_as` does not keep the picture.
    """
    entries = _entries(pictures, len(config.shape))
    if only_as is None:
        return _named(entries)
    (entry,) = entries
    suffix = Path(only_as).suffix
    if entry.mode is None and suffix.lower() != Path(entry.name).suffix.lower():
        raise ValueError(
            f"the archive holds the file {entry.name!r:.100} as it is: give a target with the same suffix, not {suffix}"
        )
    if entry.mode is not None and not keeps(only_as, entry.mode, entry.size):
        raise ValueError(f"{suffix} files do not keep this picture of mode {entry.mode}: give a target like x.png")
    return [Planned(entry, only_as)]


def restored(
    plan: Sequence[Planned], config: AxialTransformerConfig, images: Iterable[NDArray[np.uint8] | None],
    files: Iterable[bytes | None],
) -> Iterator[bytes | None]:  # fmt: skip
    """The content of each planned file; None where a part is missing (None).

    Raises:
        DamagedError: the description does not fit the images and files.
    """
    wanted = [(entry.name, entry.parts(config)) for entry, _ in plan]
    for parts, (entry, name) in zip(shared_out(wanted, images, files), plan):
        if parts is None or entry.mode is None:
            yield None if parts is None else parts[0]
        elif entry.parts(config).of_images:
            yield encoded(_picture(tiles.join(np.stack(parts), entry.size)[0], entry.mode), name)
        else:
            yield encoded(_from_file(parts[0], entry), name)


def _stored(
    path: Path, name: str, config: AxialTransformerConfig, other_sizes: OtherSizes, others: OtherFiles
) -> _Stored:
    """The first way of storing a file that keeps it."""
    try:
        with opened(path, of_any_kind=True):  # before its bytes are in memory
            content = source_folders.content(path)
        picture, look = decoded(Member(content, str(path)))
    except PictureError:
        others.keep(path, name, "is no picture that can be read")
        return _Stored(path, _Entry(name, None, (0, 0)))
    stored = _Stored(path, _Entry(name, None, (0, 0)))
    if picture is None:
        return stored
    entry = _Entry(name, look.mode, (picture.height, picture.width))
    if entry.parts(config).of_images:
        if comes_back(_picture(_values(picture), look.mode), entry.restored_as, look):
            if entry.size != config.shape and other_sizes == "refuse":
                raise other_size_error(path, entry.size, config.shape)
            return _Stored(path, entry, entry.parts(config).number)
        return stored
    png = as_png(picture, entry.restored_as, look)
    return stored if png is None or len(png) > len(content) else _Stored(path, entry)


def _named(entries: Sequence[_Entry]) -> list[Planned]:
    names = restored_names([entry.name for entry in entries], [entry.restored_as_it_is for entry in entries])
    return [Planned(entry, name) for entry, name in zip(entries, names)]


def _entries(pictures: Any, axes: int) -> list[_Entry]:
    """The description [[name, mode, height, width] or, of a whole file, [name], ..], after it is checked."""
    if not isinstance(pictures, list) or axes != 2:
        raise DamagedError("the archive's description of its pictures is damaged")
    entries = [_entry(picture) for picture in pictures]
    for name, _, (height, width) in entries:
        check_name(name)
        if height * width > MOST_PIXELS:
            raise DamagedError(f"the archive claims {height}x{width} pixels for {name!r:.100}")
    return entries


def _entry(picture: Any) -> _Entry:
    types = [type(part) for part in picture] if isinstance(picture, list) else []
    if types == [str]:
        return _Entry(picture[0], None, (0, 0))
    if types == [str, str, int, int] and picture[1] in MODES:
        if min(picture[2:]) < 1:
            raise DamagedError(f"the archive claims {picture[2]}x{picture[3]} pixels for {picture[0]!r:.100}")
        return _Entry(picture[0], picture[1], (picture[2], picture[3]))
    raise DamagedError(f"the archive describes a picture as {picture!r:.100}")


def _values(picture: Image.Image) -> NDArray[np.uint8]:
    """[H, W, C]."""
    values = np.asarray(picture.convert("L") if picture.mode == "1" else picture)
    return split_uint16(values[..., None]) if picture.mode == "I;16" else np.atleast_3d(values)


def _picture(values: NDArray[np.uint8], mode: str) -> Image.Image:
    values = np.ascontiguousarray(values)
    if values.shape[-1] == 2:
        return Image.fromarray(join_uint16(values)[..., 0])
    picture = Image.fromarray(values if values.shape[-1] == 3 else values[..., 0])
    return picture.convert("1", dither=Image.Dither.NONE) if mode == "1" else picture


def _from_file(file: bytes, entry: _Entry) -> Image.Image:
    try:
        picture = from_png(file, entry.name)
    except PictureError as error:
        raise DamagedError(f"the archive is damaged: {error}") from error
    found = (picture.mode, picture.height, picture.width)
    if found != (entry.mode, *entry.size):
        raise DamagedError(f"{entry.name!r:.100} is of mode and size {found}, not {(entry.mode, *entry.size)}")
    return picture
