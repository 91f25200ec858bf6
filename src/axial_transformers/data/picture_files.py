"""Picture files are opened here only: formats, sizes and pixel types are checked before anything is decoded."""

import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image, ImageFile, ImageOps

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tif", ".tiff", ".gif", ".ppm", ".pgm", ".pbm")
MOST_PIXELS = 1 << 26

_FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "TIFF", "GIF", "PPM")  # none whose decoder starts other programs
_DEEP_COLOUR = re.compile(r"(RGB|RGBA|RGBX|RGBa|LA|CMYK);16[BLN]")  # Pillow would drop the low bytes


class PictureError(ValueError):
    """A picture file is damaged, or of a kind that is not read; the message names the file and a way out."""


class Member(io.BytesIO):
    """The content of a file that lies within another one; errors call it by its name."""

    def __init__(self, content: bytes, name: str) -> None:
        super().__init__(content)
        self.name = name

    def __str__(self) -> str:
        return self.name


@contextmanager
def opened(file: Path | Member, formats: tuple[str, ...] = _FORMATS) -> Iterator[Image.Image]:
    """Yields the picture in a file, of which only the header is read and checked.

    Of several images in a JPEG file (MPO) it is the first one.

    Raises:
        PictureError: not a picture of these formats, too large, animated, floating-point or of 16 bits in colour.
        FileNotFoundError: no such file.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            image = Image.open(file, formats=formats)
    except FileNotFoundError:
        raise
    except Exception as error:  # decoders of damaged files raise errors of every kind
        raise _damaged(file, error) from error
    with image:
        try:
            problem = _problem(image)  # reads on, up to the second image
        except Exception as error:  # as above
            raise _damaged(file, error) from error
        if problem:
            raise PictureError(f"{file} {problem}")
        yield image


def upright(file: Path | Member, image: Image.Image) -> Image.Image:
    """Decodes the picture that was opened from a file, and turns it as its EXIF orientation says.

    Raises:
        PictureError: the file is damaged.
    """
    try:
        image.load()
        ImageOps.exif_transpose(image, in_place=True)
    except Exception as error:  # as in opened
        raise _damaged(file, error) from error
    return image


def is_gray16(image: Image.Image) -> bool:
    """Tests for one channel of 16 bits, which Pillow extends to 32 in some formats."""
    return image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PNG", "PPM"))


def _problem(image: ImageFile.ImageFile) -> str | None:
    """The reason for which a picture is not read."""
    if image.width * image.height > MOST_PIXELS:
        return f"is {image.width}x{image.height} pixels, above {MOST_PIXELS:,}: cut or shrink it first"
    if _DEEP_COLOUR.search(str(image.tile)):
        return "has 16 bits a channel in colour: convert it to 8, or save uint16 arrays as .npz"
    if image.mode == "F" or (image.mode.startswith("I") and not is_gray16(image)):
        return f"has pixels of type {image.mode}, not of 8 or 16 bits: quantise them first"
    if getattr(image, "is_animated", False) and image.format != "MPO":
        return "holds several images: save each as a file of its own, or set frames where videos are read"
    return None


def _damaged(file: Path | Member, error: Exception) -> PictureError:
    reason = " ".join(str(error).replace(str(file), "it").split())[:200]
    return PictureError(f"{file} is not a whole image ({reason}): replace or remove it")
