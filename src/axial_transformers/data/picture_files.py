"""Image files, decoded by Pillow: what it would read in part is refused, and what it converts is said."""

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from PIL import ExifTags, Image, ImageFile, ImageOps, TiffImagePlugin

from axial_transformers.data.parsing import ParsingError, parsing, say

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tif", ".tiff", ".gif", ".ppm", ".pgm", ".pbm")

_FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "TIFF", "GIF", "PPM")  # none whose decoder starts other programs
_AS_STORED = ("1", "L", "LA", "La", "P", "PA", "RGB", "RGBA", "RGBa")


class PictureError(ParsingError):
    """An image file is damaged, or of a kind that is not read."""


class Member(io.BytesIO):
    """The content of a file within another one; errors call it by its name."""

    def __init__(self, content: bytes, name: str) -> None:
        super().__init__(content)
        self.name = name

    def __str__(self) -> str:
        return self.name


@contextmanager
def opened(file: Path | Member) -> Iterator[ImageFile.ImageFile]:
    """Yield the image in a file, of which only the header is read.

    Raises:
        PictureError: the file is damaged, which may show when the image is decoded, or Pillow shows only a part of it.
    """
    with parsing(file, "is not a whole image", error=PictureError), Image.open(file, formats=_FORMATS) as image:
        if image.format == "TIFF":
            image.filename = ""  # with a name, Pillow maps the file, and mistakes the size of one that is to be turned
        if problem := _unread_part(image):
            raise PictureError(f"{file} {problem}")
        yield image


def _unread_part(image: ImageFile.ImageFile) -> str | None:
    """Return why Pillow shows only a part of an image, or None."""
    tags = image.tag_v2 if isinstance(image, TiffImagePlugin.TiffImageFile) else {}
    bits, bands, formats = tags.get(258, (8,)), tags.get(277, 1), tags.get(339, ())
    if image.mode == "F" or (image.mode.startswith("I") and not is_gray16(image)):
        return f"has pixels of type {image.mode}, not of 8 or 16 bits: quantise them first"
    deep = max(bits) > 8 or _maxval(image) > 255 or re.search(r"[ABKXa];16", str(image.tile))  # RGB;16B and others
    if deep and not is_gray16(image):  # Pillow would drop the low bytes
        return "has 16 bits a channel in colour: convert it to 8, or save uint16 arrays as .npz"
    if bands > len(image.getbands()) or 2 in formats:
        return f"has {bands} bands{' of signed values' * (2 in formats)}, as no picture: alone, it is read as a scan"
    if getattr(image, "is_animated", False) and image.format != "MPO":  # reads on, up to the second image
        videos = ", or set frames, and it is read as a video" if image.format == "GIF" else ""
        return f"holds several images: save each as a file of its own, or all as one array .npz{videos}"
    return None


def upright(image: ImageFile.ImageFile) -> Image.Image:
    """Decode an opened image, and turn it by its EXIF orientation; the numbers of PGM and PPM are those stored."""
    highest, maxval = 65535 if image.mode == "I" else 255, _maxval(image)
    image.load()
    ImageOps.exif_transpose(image, in_place=True)
    if maxval in (0, highest):
        return image
    pixels = np.asarray(image)
    return Image.fromarray(np.rint(pixels * (maxval / highest)).astype(pixels.dtype))  # which Pillow has scaled


def _maxval(image: ImageFile.ImageFile) -> int:
    """Return the highest number that a PGM or PPM file may hold; 0 for other files."""
    arguments = image.tile[0].args if image.format == "PPM" and image.tile and image.mode != "F" else None
    return int(arguments[-1]) if isinstance(arguments, tuple) else 0


def say_conversion(image: ImageFile.ImageFile) -> None:
    """Say what Pillow changes about the values of an opened image when it decodes it."""
    if image.mode not in _AS_STORED and not is_gray16(image):
        say(f"images of mode {image.mode} are converted to RGB or gray by Pillow")
    elif re.search(r"\bL;[24I]", str(image.tile)):
        say("gray images of 2 or 4 bits, or with 0 for white, are brought to 0..255 by Pillow, 0 for black")


def upright_size(image: Image.Image) -> tuple[int, int]:
    """Return width and height of `upright`, by the header."""
    exif = Image.Exif()
    exif.load(image.info.get("exif", b""))  # image.getexif() would decode a PNG
    width, height = image.size
    return (height, width) if exif.get(ExifTags.Base.Orientation) in (5, 6, 7, 8) else (width, height)


def is_transparent(image: Image.Image) -> bool:
    """Return True if a pixel is not opaque."""
    if not image.has_transparency_data:
        return False
    return is_gray16(image) or image.convert("RGBA").getchannel("A").getextrema() != (255, 255)


def is_gray16(image: Image.Image) -> bool:
    """Return True for one channel of 16 bits, of which Pillow may make 32."""
    return image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PNG", "PPM"))
