"""Image files: formats, sizes and pixel types are checked before anything is decoded."""

import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import ExifTags, Image, ImageFile, ImageOps, TiffImagePlugin

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tif", ".tiff", ".gif", ".ppm", ".pgm", ".pbm")
MAX_PIXELS = 1 << 26

_FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "TIFF", "GIF", "PPM")  # none whose decoder starts other programs
_DEEP_COLOUR = re.compile(r"(RGB|RGBA|RGBX|RGBa|LA|CMYK);16[BLN]")  # Pillow would drop the low bytes


class PictureError(ValueError):
    """An image file is damaged, or of a kind that is not read."""


class Member(io.BytesIO):
    """The content of a file within another one; errors call it by its name."""

    def __init__(self, content: bytes, name: str) -> None:
        super().__init__(content)
        self.name = name

    def __str__(self) -> str:
        return self.name

    __repr__ = __str__


@contextmanager
def opened(
    file: Path | Member, formats: tuple[str, ...] = _FORMATS, of_any_kind: bool = False
) -> Iterator[ImageFile.ImageFile]:
    """Yield the image in a file, of which only the header is read; unless `of_any_kind`, check `unread_part`."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            image = Image.open(file, formats=formats)
    except FileNotFoundError:
        raise
    except Exception as error:  # decoders of damaged files raise errors of every kind
        raise _damaged(file, error) from error
    with image:
        if image.format == "TIFF":
            image.filename = (
                ""  # given a name, Pillow maps the file, and takes the sizes of one to be turned for swapped
            )
        if image.width * image.height > MAX_PIXELS:
            size = f"{image.width}x{image.height}"
            raise PictureError(f"{file} is {size} pixels, above {MAX_PIXELS:,}: cut or shrink it first")
        if image.format == "TIFF" and (held := _pixels_of_tiles(image)) < image.width * image.height:
            raise _damaged(file, ValueError(f"it claims {image.width}x{image.height} pixels, and holds {held:,}"))
        if not of_any_kind and (problem := unread_part(file, image)):
            raise PictureError(f"{file} {problem}")
        yield image


def _pixels_of_tiles(image: ImageFile.ImageFile) -> int:
    boxes = [tile.extents for tile in image.tile if tile.extents]
    return sum((right - left) * (bottom - top) for left, top, right, bottom in boxes)


def unread_part(file: Path | Member, image: ImageFile.ImageFile) -> str | None:
    """Return why Pillow shows only a part of an image, or None."""
    try:
        if _has_deep_colour(image):
            return "has 16 bits a channel in colour: convert it to 8, or save uint16 arrays as .npz"
        if image.mode == "F" or (image.mode.startswith("I") and not is_gray16(image)):
            return f"has pixels of type {image.mode}, not of 8 or 16 bits: quantise them first"
        if getattr(image, "is_animated", False) and image.format != "MPO":  # reads on, up to the second image
            videos = ", or set frames, and it is read as a video" if image.format == "GIF" else ""
            return f"holds several images: save each as a file of its own, or all as one array .npz{videos}"
    except Exception as error:  # as in opened
        raise _damaged(file, error) from error
    return None


def upright(file: Path | Member, image: Image.Image) -> Image.Image:
    """Decode an opened image, and turn it by its EXIF orientation."""
    try:
        image.load()
        ImageOps.exif_transpose(image, in_place=True)
    except Exception as error:  # as in opened
        raise _damaged(file, error) from error
    return image


def upright_size(file: Path, image: Image.Image) -> tuple[int, int]:
    """Return width and height of `upright`, by the header."""
    exif = Image.Exif()
    try:
        exif.load(image.info.get("exif", b""))  # image.getexif() would decode a PNG
    except Exception as error:  # as in opened
        raise _damaged(file, error) from error
    width, height = image.size
    return (height, width) if exif.get(ExifTags.Base.Orientation) in (5, 6, 7, 8) else (width, height)


def is_transparent(file: Path | Member, image: Image.Image) -> bool:
    """Return True if a pixel is not opaque."""
    try:
        if not image.has_transparency_data:
            return False
        return is_gray16(image) or image.convert("RGBA").getchannel("A").getextrema() != (255, 255)
    except Exception as error:  # as in opened
        raise _damaged(file, error) from error


def is_gray16(image: Image.Image) -> bool:
    """Return True for one channel of 16 bits, of which Pillow may make 32."""
    return image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PNG", "PPM"))


def _has_deep_colour(image: ImageFile.ImageFile) -> bool:
    if image.mode == "F" or image.mode.startswith("I"):
        return False
    if isinstance(image, TiffImagePlugin.TiffImageFile):
        return max(image.tag_v2.get(TiffImagePlugin.BITSPERSAMPLE, (1,))) > 8
    if image.format == "PPM" and image.tile:
        arguments = image.tile[0].args
        return isinstance(arguments, tuple) and isinstance(arguments[-1], int) and arguments[-1] > 255
    return bool(_DEEP_COLOUR.search(str(image.tile)))


def _damaged(file: Path | Member, error: Exception) -> PictureError:
    reason = " ".join(str(error).replace(str(file), "it").split())[:200] or type(error).__name__
    return PictureError(f"{file} is not a whole image ({reason}): replace or remove it")
