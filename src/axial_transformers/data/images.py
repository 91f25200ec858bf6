"""Folders of images."""

import io
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from axial_transformers.data.config import DataConfig
from axial_transformers.data.examples import Examples
from axial_transformers.data.gathering import gather
from axial_transformers.data.uint16 import split_uint16
from axial_transformers.progress import Progress

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tif", ".tiff", ".gif", ".ppm", ".pgm", ".pbm")

_FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "TIFF", "GIF", "PPM")  # none that starts other programs
_MOST_PIXELS = 1 << 26
_DEEP_COLOUR = re.compile(r"(RGB|RGBA|RGBX|RGBa|LA|CMYK);16[BLN]")  # of which Pillow would drop the low bytes

Kind = Literal["gray", "gray16", "rgb"]


class Member(io.BytesIO):
    """The bytes of a file within another one; messages call it by its name."""

    def __init__(self, content: bytes, name: str) -> None:
        super().__init__(content)
        self.name = name

    def __str__(self) -> str:
        return self.name


def load_images(
    root: Path,
    files: Sequence[Path],
    labels: Sequence[int] | None,
    class_names: tuple[str, ...] | None,
    options: DataConfig,
    kind: Kind,
    progress: Progress,
) -> Examples:
    """Decodes and fits images; names are paths below `root`, followed by #row,column for tiles.

    16-bit gray images become two channels (`split_uint16`). EXIF orientation is applied, opaque alpha dropped.

    Raises:
        ValueError: a file that is damaged, of another size, transparent, animated, floating-point or 16-bit in colour.
    """
    return gather(
        root,
        files,
        lambda file: [fitted(file, decoded(file, kind), options)],
        labels,
        class_names,
        uint16=kind == "gray16",
        progress=progress,
    )


def kind_of_images(files: Sequence[Path | Member], options: DataConfig) -> Kind:
    """What all images of a folder are read as: 16-bit if the first one is; in colour if any is, unless told.

    Raises:
        ValueError: a file that is no image, or mode=rgb for 16-bit images.
    """
    first = _kind(files[0])
    if first == "gray16":
        if options.mode == "rgb":
            raise ValueError(f"{files[0]} is a 16-bit gray image: use mode=gray or mode=auto")
        return first
    if options.mode != "auto":
        return options.mode
    return "rgb" if first == "rgb" or any(_kind(file) == "rgb" for file in files[1:]) else "gray"


@contextmanager
def _opened(file: Path | Member) -> Iterator[Image.Image]:
    """The image, of which only the header has been read and checked."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            image = Image.open(file, formats=_FORMATS)
    except FileNotFoundError:
        raise
    except Exception as error:  # decoders of damaged files raise errors of every kind
        raise _damaged(file, error) from error
    with image:
        if image.width * image.height > _MOST_PIXELS:
            raise ValueError(
                f"{file} is {image.width}x{image.height} pixels, above {_MOST_PIXELS:,}: cut or shrink it first"
            )
        if _DEEP_COLOUR.search(str(image.tile)):
            raise ValueError(f"{file} has 16 bits a channel in colour: convert it to 8, or save uint16 arrays as .npz")
        if image.mode == "F" or (image.mode.startswith("I") and not _is_gray16(image)):
            raise ValueError(f"{file} has pixels of type {image.mode}, not of 8 or 16 bits: quantise them first")
        if getattr(image, "is_animated", False) and image.format != "MPO":
            raise ValueError(f"{file} holds several images: save them as one file each, or set frames to read videos")
        yield image


def _damaged(file: Path | Member, error: Exception) -> ValueError:
    reason = " ".join(str(error).replace(str(file), "it").split())[:200]
    return ValueError(f"{file} is not a whole image ({reason}): replace or remove it")


def _is_gray16(image: Image.Image) -> bool:
    return image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PNG", "PPM"))


def _kind(file: Path | Member) -> Kind:
    with _opened(file) as image:
        return "gray16" if _is_gray16(image) else "gray" if image.mode in ("1", "L", "LA", "La") else "rgb"


def decoded(file: Path | Member, kind: Kind) -> Image.Image:
    """The upright image in mode I (16-bit), L or RGB.

    Raises:
        ValueError: as `load_images`.
    """
    with _opened(file) as image:
        deep = kind == "gray16"
        if _is_gray16(image) != deep:
            raise ValueError(f"{file}: 8-bit and 16-bit images do not mix: convert one kind, or remove it")
        try:
            image.load()
            ImageOps.exif_transpose(image, in_place=True)
        except Exception as error:  # as in _opened
            raise _damaged(file, error) from error
        if image.has_transparency_data and (deep or image.convert("RGBA").getchannel("A").getextrema() != (255, 255)):
            raise ValueError(f"{file} is transparent in places: flatten it onto a background first")
        mode = "I" if deep else "L" if kind == "gray" else "RGB"
        return image if image.mode == mode else image.convert(mode)


def fitted(
    file: Path | Member,
    image: Image.Image,
    options: DataConfig,
    resampling: Image.Resampling = Image.Resampling.LANCZOS,
) -> tuple[NDArray[np.uint8], list[str]]:
    """Examples [n, H, W, C] cut from one image, and where each lies, as a suffix of its name.

    Raises:
        ValueError: another size than `options` allow.
    """
    size = options.size
    if size is not None and options.fit == "exact" and image.size != (size, size):
        raise ValueError(
            f"{file} is {image.width}x{image.height} pixels, not {size}x{size}: remove it, or use"
            " fit=crop, fit=stretch or fit=tiles"
        )
    if size is not None and options.fit == "crop":
        image = ImageOps.fit(image, (size, size), resampling)
    if size is not None and options.fit == "stretch":
        image = image.resize((size, size), resampling)
    pixels = np.atleast_3d(np.asarray(image))
    if image.mode == "I":
        pixels = split_uint16(pixels.clip(0, 65535).astype(np.uint16))
    if size is None or options.fit != "tiles":
        return pixels[None], [""]
    rows, columns, channels = pixels.shape[0] // size, pixels.shape[1] // size, pixels.shape[2]
    if not rows * columns:
        raise ValueError(
            f"{file} is {image.width}x{image.height} pixels, smaller than one {size}x{size} tile: remove it"
        )
    tiles = pixels[: rows * size, : columns * size].reshape(rows, size, columns, size, channels).swapaxes(1, 2)
    places = [f"#{row},{column}" for row in range(rows) for column in range(columns)]
    return tiles.reshape(-1, size, size, channels), places
