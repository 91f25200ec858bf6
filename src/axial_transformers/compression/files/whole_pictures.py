"""Pictures as Pillow decodes them, in the files of an archive and in those that are restored."""

import io
from pathlib import PurePosixPath
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from axial_transformers.data.picture_files import Member, is_gray16, opened, unread_part, upright

_GRAY16 = "I;16"
MODES = ("1", "L", "LA", "P", "RGB", "RGBA", _GRAY16)
"""Modes of the pictures that archives hold; files with others are held whole."""

_WEBP_SIDE = 16383
_FORMATS = {
    ".png": ("PNG", MODES), ".tif": ("TIFF", ("L", "RGB", _GRAY16)), ".tiff": ("TIFF", ("L", "RGB", _GRAY16)),
    ".bmp": ("BMP", ("L", "RGB")), ".webp": ("WEBP", ("RGB",)), ".ppm": ("PPM", ("RGB",)), ".pgm": ("PPM", ("L",)),
}  # fmt: skip
"""Format of files by suffix, and the modes that it keeps."""


class Look(NamedTuple):
    """Everything of a picture that an archive keeps."""

    mode: str
    size: tuple[int, int]
    pixels: bytes
    colours: object
    """Its pixels in red, green, blue and opacity, if it has a palette, or the value that is transparent."""


def decoded(file: Member) -> tuple[Image.Image | None, Look]:
    """The upright picture of a file in a mode that archives hold, None if they hold only the file itself; and its look.

    Raises:
        PictureError: not a picture, too large, or damaged.
    """
    with opened(file, of_any_kind=True) as header:
        partial = header.format == "MPO" or unread_part(file, header) is not None
        deep, picture = is_gray16(header), upright(file, header)
    look = _look(picture, deep)
    if partial or look.mode not in MODES:
        return None, look
    return (Image.fromarray(np.frombuffer(look.pixels, "<u2").reshape(picture.size[::-1])) if deep else picture), look


def _look(picture: Image.Image, deep: bool) -> Look:
    pixels: NDArray[np.uint16] | Image.Image = np.asarray(picture).astype("<u2") if deep else picture
    has_palette = picture.mode in ("P", "PA")
    colours = picture.convert("RGBA").tobytes() if has_palette else picture.info.get("transparency")
    return Look(_GRAY16 if deep else picture.mode, picture.size, pixels.tobytes(), colours)


def keeps(name: str, mode: str, size: tuple[int, int]) -> bool:
    """Tests whether files of the name's suffix keep pixels [height, width] = `size` of that mode."""
    suffix = PurePosixPath(name).suffix.lower()
    fits = suffix != ".webp" or max(size) <= _WEBP_SIDE
    return fits and suffix in _FORMATS and mode in _FORMATS[suffix][1]


def encoded(picture: Image.Image, name: str) -> bytes:
    """A file of the format that belongs to the name's suffix."""
    file = io.BytesIO()
    # `lossless` is an option of WebP, ignored by other formats
    picture.save(file, _FORMATS[PurePosixPath(name).suffix.lower()][0], lossless=True)
    return file.getvalue()


def from_png(file: bytes, name: str) -> Image.Image:
    """The picture of such a file.

    Raises:
        PictureError: it is damaged.
    """
    member = Member(file, repr(name))
    with opened(member, formats=("PNG",)) as picture:
        return upright(member, picture)


def comes_back(picture: Image.Image, name: str, look: Look) -> bool:
    """Tests whether a picture, written under that name and read again, looks as it should."""
    try:
        return decoded(Member(encoded(picture, name), name))[1] == look
    except Exception:  # encoders raise errors of every kind
        return False


def as_png(picture: Image.Image, name: str, look: Look) -> bytes | None:
    """A PNG file from which a picture can be restored under that name, as small as Pillow makes it, if there is one."""
    file = io.BytesIO()
    try:
        picture.save(file, "PNG", optimize=True)
        restored = from_png(file.getvalue(), name)
    except Exception:  # as in comes_back
        return None
    return file.getvalue() if comes_back(restored, name, look) else None
