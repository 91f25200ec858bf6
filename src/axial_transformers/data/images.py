"""Images: their kind, and their values, fitted to a size."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from axial_transformers.data.config import DataConfig, Palette
from axial_transformers.data.npy import read_array
from axial_transformers.data.parsing import ParsingError
from axial_transformers.data.picture_files import (
    SUFFIXES,
    Member,
    PictureError,
    is_gray16,
    is_transparent,
    opened,
    say_conversion,
    upright,
)

PixelKind = Literal["gray", "gray16", "rgb", "rgba"]
MODES: dict[PixelKind, str] = {"gray": "L", "gray16": "I", "rgb": "RGB", "rgba": "RGBA"}
"""Modes of Pillow."""


def kind_of_images(files: Sequence[Path | Member], options: DataConfig) -> PixelKind:
    """Return the kind as which all images are read: 16-bit if most are; by default rgb or rgba if any is."""
    if options.mode in ("rgb", "rgba"):
        return options.mode
    kinds = Counter[PixelKind]()
    for file in files:
        with suppress(PictureError):  # which decoding raises again
            kinds[_kind(file, options, options.background is None and not kinds["rgba"])] += 1
    if 2 * kinds["gray16"] > kinds.total():
        return "gray16"
    return "gray" if options.mode == "gray" else "rgba" if kinds["rgba"] else "rgb" if kinds["rgb"] else "gray"


def _kind(file: Path | Member, options: DataConfig, finds_alpha: bool) -> PixelKind:
    with opened(file) as image:
        if is_gray16(image):
            return "gray16"
        if options.palette == "indices" and image.mode in ("P", "PA"):
            return "gray"
        if options.mode == "auto" and finds_alpha and is_transparent(image):
            return "rgba"
        return "gray" if image.mode in ("1", "L", "LA", "La") else "rgb"


def decoded(
    file: Path | Member, kind: PixelKind, background: str | None = None, palette: Palette = "colours"
) -> Image.Image:
    """Return the upright image in mode I (16-bit), L, RGB or RGBA, before the background."""
    deep = kind == "gray16"
    with opened(file) as header:
        if is_gray16(header) != deep:
            bits = "8 bits a channel, not 16" if deep else "16 bits a channel, not 8"
            raise PictureError(f"{file} has {bits}: convert or remove it; data.mode=gray reads 16-bit gray images")
        say_conversion(header)
        image = upright(header)
        if palette == "indices" and image.mode in ("P", "PA"):
            if kind != "gray":
                raise PictureError(f"{file} has a palette, and others colours: use data.palette=colours")
            return Image.frombytes("L", image.size, image.getchannel(0).tobytes())
        if kind != "rgba" and is_transparent(image):
            if background is None or deep:
                raise PictureError(f"{file} is transparent in places: data.background=white flattens it")
            image = Image.alpha_composite(Image.new("RGBA", image.size, background), image.convert("RGBA"))
        return image if image.mode == MODES[kind] else image.convert(MODES[kind])


def read_image(file: Path, kind: PixelKind, options: DataConfig) -> Iterator[tuple[str, NDArray[np.integer]]]:
    """Yield the values [H, W, C] of an image, with no suffix."""
    yield "", fitted(file, decoded(file, kind, options.background, options.palette), options)


def fitted(
    file: Path | Member,
    image: Image.Image,
    options: DataConfig,
    resampling: Image.Resampling = Image.Resampling.LANCZOS,
) -> NDArray[np.integer]:
    """Return the values [H, W, C] of an image of the options' size, or of what whole tiles cover."""
    size = options.size
    if options.palette == "indices":
        resampling = Image.Resampling.NEAREST
    if isinstance(size, int) and options.fit == "exact" and image.size != (size, size):
        sizes = f"{file} is {image.width}x{image.height} pixels, not {size}x{size}"
        raise ParsingError(f"{sizes}: remove it, or use data.fit=crop, stretch or tiles")
    if isinstance(size, int) and options.fit == "crop":
        image = ImageOps.fit(image, (size, size), resampling)
    if isinstance(size, int) and options.fit == "stretch":
        image = image.resize((size, size), resampling)
    pixels = np.atleast_3d(np.asarray(image))
    if image.mode == "I":
        pixels = pixels.clip(0, 65535).astype(np.uint16)  # resizing may overshoot
    if isinstance(size, int) and options.fit == "tiles":
        if min(image.size) < size:
            raise ParsingError(f"{file} is smaller than a tile of {size}x{size}: remove it, or lower data.size")
        pixels = pixels[: image.height // size * size, : image.width // size * size]
    return pixels


def read_mask(path: Path) -> NDArray[np.bool_]:
    """Return the booleans of an .npy file, or the light pixels [H, W] of an image."""
    if path.suffix.lower() in SUFFIXES:
        with opened(path) as picture:
            return np.asarray(upright(picture).convert("L")) >= 128
    mask = read_array(path, "arr_0")
    if mask.dtype != np.bool_:
        raise ValueError(f"mask={path} holds {mask.dtype}, not booleans")
    return mask
