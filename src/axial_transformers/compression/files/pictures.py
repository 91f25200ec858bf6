"""Folders of images, or one: to images of the model's size, and back."""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from axial_transformers.compression.container import DamagedError
from axial_transformers.compression.files.entries import FileEntry
from axial_transformers.compression.files.source import Tiles, content, cut_tiles
from axial_transformers.data.picture_files import (
    MAX_PIXELS,
    Member,
    PictureError,
    opened,
    unread_part,
    upright,
)
from axial_transformers.models import AxialTransformerConfig

_MODES = {1: ("L", "1"), 3: ("RGB",), 4: ("RGBA", "RGB", "LA", "L")}
"""By number of channels; other files are stored whole."""
_WEBP_SIDE = 16383
_FORMATS = {
    ".png": ("PNG", ("1", "L", "LA", "RGB", "RGBA")), ".bmp": ("BMP", ("L", "RGB")),
    ".tif": ("TIFF", ("L", "RGB")), ".tiff": ("TIFF", ("L", "RGB")),
    ".webp": ("WEBP", ("RGB",)), ".ppm": ("PPM", ("RGB",)), ".pgm": ("PPM", ("L",)),
}  # fmt: skip


@dataclass(frozen=True)
class PictureEntry(FileEntry):
    """The description of an image."""

    AXES: ClassVar[int] = 2
    SUFFIX: ClassVar[str] = ".png"
    KIND: ClassVar[str] = "pictures"
    REASON: ClassVar[str] = "is no picture that can be read"

    mode: str = ""

    @classmethod
    def of_file(cls, path: Path, name: str, config: AxialTransformerConfig) -> "PictureEntry | None":
        try:
            with opened(path, of_any_kind=True):  # before its bytes are in memory
                file = content(path)
            picture, look = _decoded(Member(file, str(path)))
        except PictureError:
            return None
        if picture is not None and look.mode in _MODES.get(config.channels, ()):
            entry = cls(name, (picture.height, picture.width), look.mode)
            if _comes_back(_picture(_values(picture, config.channels), look.mode), entry.restored_as, look):
                return entry
        return cls(name, None)

    @classmethod
    def read(cls, description: Any, channels: int) -> "PictureEntry":
        types = [type(part) for part in description] if isinstance(description, list) else []
        if types == [str]:
            return cls(description[0], None)
        if types != [str, str, int, int] or description[1] not in _MODES.get(channels, ()):
            raise DamagedError(f"the archive describes a picture as {description!r:.100}")
        name, mode, height, width = description
        if min(height, width) < 1 or height * width > MAX_PIXELS:
            raise DamagedError(f"the archive claims {height}x{width} pixels for {name!r:.100}")
        return cls(name, (height, width), mode)

    def json(self) -> list[Any]:
        return [self.name] if self.size is None else [self.name, self.mode, *self.size]

    def keeps(self, name: str) -> bool:
        suffix = PurePosixPath(name).suffix.lower()
        fits = suffix != ".webp" or max(self.size or ()) <= _WEBP_SIDE
        return fits and suffix in _FORMATS and self.mode in _FORMATS[suffix][1]

    def from_values(self, values: NDArray[np.uint8], name: str) -> bytes:
        return _encoded(_picture(values, self.mode), name)

    @classmethod
    def images_of(cls, files: Sequence[tuple[Path, "PictureEntry"]], config: AxialTransformerConfig) -> Tiles:
        def of(i: int) -> NDArray[np.integer]:
            return cut_tiles(_pixels(*files[i], config.channels)[None], config.shape)

        return Tiles([entry.size or () for _, entry in files], of, (*config.shape, config.channels))


def _pixels(path: Path, entry: PictureEntry, channels: int) -> NDArray[np.uint8]:
    picture, look = _decoded(Member(content(path), str(path)))
    if picture is None or (look.mode, (picture.height, picture.width)) != (entry.mode, entry.size):
        raise ValueError(f"{path} has changed since it was first read: compress it again")
    return _values(picture, channels)


def _values(picture: Image.Image, channels: int) -> NDArray[np.uint8]:
    return np.atleast_3d(np.asarray(picture.convert({1: "L", 3: "RGB", 4: "RGBA"}[channels])))


def _picture(values: NDArray[np.uint8], mode: str) -> Image.Image:
    """Return values [H, W, C] as an image whose mode may lack the alpha, or repeat the first channel as colours."""
    some = values[..., {"RGBA": [0, 1, 2, 3], "RGB": [0, 1, 2], "LA": [0, 3]}.get(mode, [0])]
    picture = Image.fromarray(np.ascontiguousarray(some if some.shape[-1] > 1 else some[..., 0]))
    return picture.convert("1", dither=Image.Dither.NONE) if mode == "1" else picture


class _Look(NamedTuple):
    mode: str
    size: tuple[int, int]
    pixels: bytes
    colours: object
    """Its pixels as RGBA if it has a palette, or the transparent value."""


def _decoded(file: Member) -> tuple[Image.Image | None, _Look]:
    with opened(file, of_any_kind=True) as header:
        partial = header.format == "MPO" or unread_part(file, header) is not None
        picture = upright(file, header)
    return (None if partial else picture), _look(picture)


def _look(picture: Image.Image) -> _Look:
    has_palette = picture.mode in ("P", "PA")
    colours = picture.convert("RGBA").tobytes() if has_palette else picture.info.get("transparency")
    return _Look(picture.mode, picture.size, picture.tobytes(), colours)


def _encoded(picture: Image.Image, name: str) -> bytes:
    file = io.BytesIO()
    # `lossless` is an option of WebP, ignored by other formats
    picture.save(file, _FORMATS[PurePosixPath(name).suffix.lower()][0], lossless=True)
    return file.getvalue()


def _comes_back(picture: Image.Image, name: str, look: _Look) -> bool:
    try:
        return _decoded(Member(_encoded(picture, name), name))[1] == look
    except Exception:  # encoders raise errors of every kind
        return False
