"""Images: files decoded by Pillow, their kind, and their values at one size.

What Pillow would read in part is refused, and what it converts is said.
"""

import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image, ImageFile, ImageOps

from axial_transformers.data.config import DataConfig
from axial_transformers.data.errors import ParsingError, WrongSizeError, parsing, say
from axial_transformers.data.npy import read_array

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tif", ".tiff", ".gif", ".ppm", ".pgm", ".pbm")

_FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "TIFF", "GIF", "PPM")  # none whose decoder starts other programs
_AS_STORED = ("1", "L", "LA", "La", "P", "PA", "RGB", "RGBA", "RGBa")
PixelKind = Literal["gray", "gray16", "rgb", "rgba"]
MODES: dict[PixelKind, str] = {"gray": "L", "gray16": "I", "rgb": "RGB", "rgba": "RGBA"}
"""Modes of Pillow."""


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
        ParsingError: the file is damaged, which may show when the image is decoded, or Pillow shows only a part of it.
    """
    with parsing(file, "is not a whole image"), Image.open(file, formats=_FORMATS) as image:
        if image.format == "TIFF":
            image.filename = ""  # with a name, Pillow maps the file, and mistakes the size of one that is to be turned
        if problem := _unread_part(image):
            raise ParsingError(f"{file} {problem}")
        yield image


def _unread_part(image: ImageFile.ImageFile) -> str | None:
    """Return why Pillow shows only a part of an image, or None."""
    tags = getattr(image, "tag_v2", {})
    bits, bands, formats = tags.get(258, (8,)), tags.get(277, 1), tags.get(339, ())
    if image.mode == "F" or (image.mode.startswith("I") and not is_gray16(image)):
        return f"has pixels of type {image.mode}, not of 8 or 16 bits: quantise them first"
    deep = max(bits) > 8 or _maxval(image) > 255 or re.search(r"[ABKXa];16", str(image.tile))  # RGB;16B and others
    if deep and not is_gray16(image):  # Pillow would drop the low bytes
        return "has 16 bits a channel in colour: convert it to 8, or save uint16 arrays as .npz"
    if 0 in (*tags.get(324, ()), *tags.get(273, ())):  # Pillow would show the file's header there
        return "has tiles or strips that are not stored: alone, it is read as a scan"
    if bands > len(image.getbands()) or 2 in formats:
        return f"has {bands} bands, or signed values, as no picture: alone, it is read as a scan"
    if getattr(image, "is_animated", False) and image.format != "MPO":  # reads on, up to the second image
        return (
            "holds several images: save each as a file of its own, or all as one array .npz, or set data.frames"
            " where it is a video"
        )
    return None


def upright(image: ImageFile.ImageFile) -> Image.Image:
    """Decode an opened image, and turn it by its EXIF orientation; the numbers of PGM and PPM are those stored."""
    highest = 65535 if image.mode == "I" else 255
    maxval = _maxval(image) or highest
    image.load()
    ImageOps.exif_transpose(image, in_place=True)
    if maxval == highest:
        return image
    pixels = np.asarray(image)
    return Image.fromarray(np.rint(pixels * (maxval / highest)).astype(pixels.dtype))  # which Pillow has scaled


def _maxval(image: ImageFile.ImageFile) -> int:
    """Return the highest number that a PGM or PPM file may hold; 0 for other files."""
    arguments = image.tile[0].args if image.format == "PPM" and image.tile and image.mode != "F" else None
    return int(arguments[-1]) if isinstance(arguments, tuple) else 0


def has_own_maxval(file: Path) -> bool:
    """Return whether a PGM or PPM file has another highest number than the 255 that Pillow writes."""
    with opened(file) as image:
        return _maxval(image) not in (0, 255)


def say_conversion(image: ImageFile.ImageFile) -> None:
    """Say what Pillow changes about the values of an opened image when it decodes it."""
    if image.mode not in _AS_STORED and not is_gray16(image):
        say(f"images of mode {image.mode} are converted to RGB or gray by Pillow")
    elif re.search(r"\bL;[24I]", str(image.tile)):
        say("gray images of 2 or 4 bits, or with 0 for white, are brought to 0..255 by Pillow, 0 for black")


def upright_size(image: Image.Image) -> tuple[int, int]:
    """Return width and height of `upright`, by the header: its EXIF, or else its XMP."""
    width, height = image.size
    if ExifTags.Base.Orientation in getattr(image, "tag_v2", ()):  # Pillow states the upright size of TIFF
        return width, height
    orientation = Image.Image.getexif(image).get(ExifTags.Base.Orientation)  # image.getexif() would decode a PNG
    return (height, width) if orientation in (5, 6, 7, 8) else (width, height)


def is_transparent(image: Image.Image) -> bool:
    """Return True if a pixel is not opaque."""
    if not image.has_transparency_data:
        return False
    return is_gray16(image) or image.convert("RGBA").getchannel("A").getextrema() != (255, 255)


def is_gray16(image: Image.Image) -> bool:
    """Return True for one channel of 16 bits, of which Pillow may make 32."""
    return image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PNG", "PPM"))


def choose_kind(files: Iterable[Path | Member], options: DataConfig) -> PixelKind:
    """Return the kind as which all images are read: 16-bit if most are; by default rgb or rgba if any is."""
    if options.mode in ("rgb", "rgba"):
        return options.mode
    kinds: Counter[PixelKind] = Counter()
    for file in files:
        with suppress(ParsingError):  # which decoding raises again
            kinds[_kind(file, options, options.background is None and not kinds["rgba"])] += 1
    if 2 * kinds["gray16"] > kinds.total():
        return "gray16"
    if options.mode == "gray":
        return "gray"
    for kind in ("rgba", "rgb"):
        if kinds[kind]:
            return kind
    return "gray"


def _kind(file: Path | Member, options: DataConfig, finds_alpha: bool) -> PixelKind:
    with opened(file) as image:
        if is_gray16(image):
            return "gray16"
        if options.palette == "indices" and image.mode in ("P", "PA"):
            return "gray"
        if options.mode == "auto" and finds_alpha and is_transparent(image):
            return "rgba"
        return "gray" if image.mode in ("1", "L", "LA", "La") else "rgb"


def decoded(file: Path | Member, kind: PixelKind, options: DataConfig) -> Image.Image:
    """Return the upright image in mode I (16-bit), L, RGB or RGBA, before the background."""
    deep = kind == "gray16"
    with opened(file) as header:
        if is_gray16(header) != deep:
            raise ParsingError(
                f"{file} has {8 if deep else 16} bits a channel, not {16 if deep else 8}: convert or remove it;"
                " data.mode=gray reads 16-bit gray images"
            )
        say_conversion(header)
        image = upright(header)
        if options.palette == "indices" and image.mode in ("P", "PA"):
            if kind != "gray":
                raise ParsingError(f"{file} has a palette, and others colours: use data.palette=colours")
            return Image.frombytes("L", image.size, image.getchannel(0).tobytes())
        if kind != "rgba" and is_transparent(image):
            if options.background is None or deep:
                raise ParsingError(f"{file} is transparent in places: data.background=white flattens it")
            image = Image.alpha_composite(Image.new("RGBA", image.size, options.background), image.convert("RGBA"))
        return image if image.mode == MODES[kind] else image.convert(MODES[kind])


def at_size(
    file: Path | Member,
    image: Image.Image,
    options: DataConfig,
    resampling: Image.Resampling = Image.Resampling.LANCZOS,
) -> NDArray[np.integer]:
    """Return the values [H, W, C] of an image of the options' size, or of what whole tiles cover."""
    size: Any = options.size
    if options.palette == "indices":
        resampling = Image.Resampling.NEAREST
    if size and options.cut == "exact" and image.size != (size, size):
        raise WrongSizeError(
            f"{file} is {image.width}x{image.height} pixels, not {size}x{size}: remove it, or use data.cut=crop,"
            " stretch or tiles"
        )
    if options.cut == "crop":
        image = ImageOps.fit(image, (size, size), resampling)
    if options.cut == "stretch":
        image = image.resize((size, size), resampling)
    pixels = np.atleast_3d(np.asarray(image))
    if image.mode == "I":
        pixels = pixels.clip(0, 65535).astype(np.uint16)  # resizing may overshoot
    if options.cut == "tiles":
        if min(image.size) < size:
            raise ParsingError(f"{file} is smaller than a tile of {size}x{size}: remove it, or lower data.size")
        pixels = pixels[: image.height // size * size, : image.width // size * size]
    return pixels


def read_mask(path: Path) -> NDArray[np.bool_]:
    """Return which positions are known: the booleans of an .npy file, or [H, W] of an image.

    Where an image is transparent in places, what is not is known; otherwise what is not black.
    """
    mask = _mask_in(path) if path.suffix.lower() in SUFFIXES else read_array(path, "arr_0")
    if mask.dtype != np.bool_:
        raise ValueError(f"mask={path} holds {mask.dtype}, not booleans")
    if mask.all() or not mask.any():
        say(f"mask={path} marks {'everything' if mask.all() else 'nothing'} as known")
    return mask


def _mask_in(path: Path) -> NDArray[np.bool_]:
    with opened(path) as header:
        image = upright(header)
    if is_transparent(image):
        image = image.convert("RGBA").getchannel("A")
    elif not is_gray16(image):
        image = image.convert("RGB")
    values = np.atleast_3d(np.asarray(image))
    known = values.any(axis=2)
    shades = len(np.unique(values[known], axis=0))
    if shades > 1:  # as of soft edges, or of JPEG
        say(f"mask={path} has {shades} shades beside what is unknown: all of them mark known pixels")
    return np.asarray(known)
