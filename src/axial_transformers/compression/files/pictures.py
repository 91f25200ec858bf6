"""Folders of pictures, or one: to images of the model's size, and back to files of the same names, modes and pixels."""

import io
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from axial_transformers.compression.container import DamagedError
from axial_transformers.compression.files.entries import Entry, Names, planned
from axial_transformers.compression.files.source import (
    Contents,
    OtherFiles,
    OtherSizes,
    Tiles,
    content,
    cut_tiles,
    other_size_error,
    source_of,
)
from axial_transformers.data import join_uint16, split_uint16
from axial_transformers.data.picture_files import (
    MOST_PIXELS,
    Member,
    PictureError,
    is_gray16,
    opened,
    unread_part,
    upright,
)
from axial_transformers.models import AxialTransformerConfig

_GRAY16 = "I;16"
_MODES = ("1", "L", "LA", "P", "RGB", "RGBA", _GRAY16)
"""Modes of the pictures that archives hold; files with others are held whole."""
_MODELLED = {1: ("L", "1"), 2: (_GRAY16,), 3: ("RGB",)}
"""Modes of the pictures that a model codes, by its number of channels."""
_WEBP_SIDE = 16383
_FORMATS = {
    ".png": ("PNG", _MODES), ".tif": ("TIFF", ("L", "RGB", _GRAY16)), ".tiff": ("TIFF", ("L", "RGB", _GRAY16)),
    ".bmp": ("BMP", ("L", "RGB")), ".webp": ("WEBP", ("RGB",)), ".ppm": ("PPM", ("RGB",)), ".pgm": ("PPM", ("L",)),
}  # fmt: skip
"""Format of files by suffix, and the modes that it keeps."""


_Found = TypeVar("_Found")


@dataclass(frozen=True)
class PictureEntry(Entry):
    """The description of one file of a folder of pictures; `size` is height and width."""

    AXES: ClassVar[int] = 2
    SUFFIX: ClassVar[str] = ".png"

    mode: str = ""

    @classmethod
    def read(cls, description: Any) -> "PictureEntry":
        types = [type(part) for part in description] if isinstance(description, list) else []
        if types == [str]:
            return cls(description[0], None)
        if types != [str, str, int, int] or description[1] not in _MODES:
            raise DamagedError(f"the archive describes a picture as {description!r:.100}")
        name, mode, height, width = description
        if min(height, width) < 1 or height * width > MOST_PIXELS:
            raise DamagedError(f"the archive claims {height}x{width} pixels for {name!r:.100}")
        return cls(name, (height, width), mode)

    def json(self) -> list[Any]:
        return [self.name] if self.size is None else [self.name, self.mode, *self.size]

    def is_modelled(self, channels: int) -> bool:
        return self.mode in _MODELLED.get(channels, ())

    def keeps(self, name: str) -> bool:
        suffix = PurePosixPath(name).suffix.lower()
        fits = suffix != ".webp" or max(self.size or ()) <= _WEBP_SIDE
        return fits and suffix in _FORMATS and self.mode in _FORMATS[suffix][1]

    def from_values(self, values: NDArray[np.uint8], name: str) -> bytes:
        return _encoded(_picture(values, self.mode), name)

    def from_file(self, content: bytes, name: str) -> bytes:
        try:
            picture = _from_png(content, self.name)
        except PictureError as error:
            raise DamagedError(f"the archive is damaged: {error}") from error
        found = (picture.mode, picture.height, picture.width)
        if found != (self.mode, *(self.size or ())):
            raise DamagedError(f"{self.name!r:.100} is of mode and size {found}, not {(self.mode, self.size)}")
        return _encoded(picture, name)


@dataclass
class _Stored:
    """One file as it is stored: tiles of the model, a PNG file, or the file itself."""

    path: Path
    entry: PictureEntry

    def values(self) -> NDArray[np.uint8]:
        """The picture [H, W, C] that is cut into tiles."""
        return _values(self._picture()[0])

    def file(self) -> bytes:
        """The file that the archive holds."""
        return content(self.path) if self.entry.size is None else self._unchanged(_as_png(*self._picture()))

    def _picture(self) -> tuple[Image.Image, str, "_Look"]:
        """The picture, the name under which it is restored, and its look."""
        picture, look = _decoded(Member(content(self.path), str(self.path)))
        same = picture and (look.mode, (picture.height, picture.width)) == (self.entry.mode, self.entry.size)
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
    found, others = source_of(path), OtherFiles()
    stored = [_stored(file, found.name(file), config, other_sizes, others) for file in found.files]
    others.require_small()
    if len(others.names) == len(stored):
        if path.is_dir():
            raise ValueError(f"{path} holds no pictures")
        raise ValueError(f"{path} is no picture that can be read, no folder of pictures, and no .npz or .npy file")
    names = Names([some.entry.name for some in stored])
    for some in stored:
        if not (some.entry.restored_as_it_is or names.has_room_for(some.entry.restored_as)):
            some.entry = PictureEntry(some.entry.name, None)
    planned(entries := [some.entry for some in stored])
    tiled = [some for some in stored if some.entry.images(config)]
    as_files = [some for some in stored if not some.entry.images(config)]
    return Contents(
        Tiles([some.entry.images(config) for some in tiled], _tiles_of(tiled, config)),
        {"pictures": [entry.json() for entry in entries]},
        [some.file for some in as_files],
        left_out=found.left_out,
        as_png=[some.entry.name for some in as_files if some.entry.size is not None],
        whole=[some.entry.name for some in as_files if some.entry.size is None],
        others=others.names,
        examples=len(tiled),
    )


def _tiles_of(stored: list[_Stored], config: AxialTransformerConfig) -> Callable[[int, int], NDArray[np.uint8]]:
    """Reads the tiles of some of the pictures; keeps those of the last one, which may be asked for in parts."""

    @lru_cache(1)
    def of(i: int) -> NDArray[np.uint8]:
        return cut_tiles(stored[i].values()[None], config.shape)

    def load(first: int, last: int) -> NDArray[np.uint8]:
        empty = np.zeros((0, *config.shape, config.channels), np.uint8)
        return np.concatenate([empty, *map(of, range(first, last))])

    return load


def _stored(
    path: Path, name: str, config: AxialTransformerConfig, other_sizes: OtherSizes, others: OtherFiles
) -> _Stored:
    """The first way of storing a file that keeps it."""
    as_it_is = _Stored(path, PictureEntry(name, None))
    try:
        with opened(path, of_any_kind=True):  # before its bytes are in memory
            file = content(path)
        picture, look = _decoded(Member(file, str(path)))
    except PictureError:
        others.keep(path, name, "is no picture that can be read")
        return as_it_is
    if picture is None:
        return as_it_is
    entry = PictureEntry(name, (picture.height, picture.width), look.mode)
    if entry.images(config):
        if not _comes_back(_picture(_values(picture), look.mode), entry.restored_as, look):
            return as_it_is
        if entry.size != config.shape and other_sizes == "refuse":
            raise other_size_error(path, (picture.height, picture.width), config.shape)
        return _Stored(path, entry)
    png = _as_png(picture, entry.restored_as, look)
    return as_it_is if png is None or len(png) > len(file) else _Stored(path, entry)


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


class _Look(NamedTuple):
    """Everything of a picture that an archive keeps."""

    mode: str
    size: tuple[int, int]
    pixels: bytes
    colours: object
    """Its pixels in red, green, blue and opacity, if it has a palette, or the value that is transparent."""


def _decoded(file: Member) -> tuple[Image.Image | None, _Look]:
    """The upright picture of a file in a mode that archives hold, None if they hold only the file itself; and its look.

    Raises:
        PictureError: not a picture, too large, or damaged.
    """
    with opened(file, of_any_kind=True) as header:
        partial = header.format == "MPO" or unread_part(file, header) is not None
        deep, picture = is_gray16(header), upright(file, header)
    look = _look(picture, deep)
    if partial or look.mode not in _MODES:
        return None, look
    return (Image.fromarray(np.frombuffer(look.pixels, "<u2").reshape(picture.size[::-1])) if deep else picture), look


def _look(picture: Image.Image, deep: bool) -> _Look:
    pixels: NDArray[np.uint16] | Image.Image = np.asarray(picture).astype("<u2") if deep else picture
    has_palette = picture.mode in ("P", "PA")
    colours = picture.convert("RGBA").tobytes() if has_palette else picture.info.get("transparency")
    return _Look(_GRAY16 if deep else picture.mode, picture.size, pixels.tobytes(), colours)


def _encoded(picture: Image.Image, name: str) -> bytes:
    """A file of the format that belongs to the name's suffix."""
    file = io.BytesIO()
    # `lossless` is an option of WebP, ignored by other formats
    picture.save(file, _FORMATS[PurePosixPath(name).suffix.lower()][0], lossless=True)
    return file.getvalue()


def _from_png(file: bytes, name: str) -> Image.Image:
    """The picture of such a file.

    Raises:
        PictureError: it is damaged.
    """
    member = Member(file, repr(name))
    with opened(member, formats=("PNG",)) as picture:
        return upright(member, picture)


def _comes_back(picture: Image.Image, name: str, look: _Look) -> bool:
    """Tests whether a picture, written under that name and read again, looks as it should."""
    try:
        return _decoded(Member(_encoded(picture, name), name))[1] == look
    except Exception:  # encoders raise errors of every kind
        return False


def _as_png(picture: Image.Image, name: str, look: _Look) -> bytes | None:
    """A PNG file from which a picture can be restored under that name, as small as Pillow makes it, if there is one."""
    file = io.BytesIO()
    try:
        picture.save(file, "PNG", optimize=True)
        restored = _from_png(file.getvalue(), name)
    except Exception:  # as in comes_back
        return None
    return file.getvalue() if _comes_back(restored, name, look) else None
