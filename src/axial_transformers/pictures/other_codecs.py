"""Sizes of images in general codecs, to compare an archive with."""

import io
import lzma
import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from axial_transformers.data import Examples
from axial_transformers.pictures.grids import contact_sheet

Encode = Callable[[NDArray[np.uint8]], int]


def codecs() -> dict[str, Encode]:
    """Return codecs by name, at the highest effort."""
    found: dict[str, Encode] = {"PNG": _png, "WebP": _webp}
    try:
        from imagecodecs import jpegxl_encode
    except ImportError:
        return found
    return {**found, "JPEG XL": lambda picture: len(jpegxl_encode(picture, lossless=True, effort=9, numthreads=1))}


def one_sheet(encode: Encode, images: NDArray[np.uint8]) -> int | None:
    """Return the bytes of images on one sheet, or None."""
    try:
        return encode(contact_sheet(as_pictures(images), math.ceil(math.sqrt(len(images)))))
    except (ValueError, OSError, RuntimeError):
        return None


def independent_bits(train: Examples, test: Examples) -> float:
    """Return bits/dim under independent pixels, by training histograms."""
    values = np.arange(train.num_values)
    counts = 1 + (train.values[..., None] == values).sum(axis=0)
    bits = -np.log2(counts / (len(train) + train.num_values))
    return float(np.where(test.values[..., None] == values, bits, 0).sum() / test.values.size)


def xz_bits(examples: Examples) -> float:
    """Return the bits/dim of one xz stream."""
    return 8 * len(lzma.compress(examples.values.tobytes(), preset=9 | lzma.PRESET_EXTREME)) / examples.values.size


def as_pictures(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return images [N, *A, C] as [N, H, W, 3] or [N, H, W]."""
    count, *outer, columns, channels = images.shape
    rows = math.prod(outer)
    return images.reshape((count, rows, columns, 3) if channels == 3 else (count, rows, columns * channels))


def _png(picture: NDArray[np.uint8]) -> int:
    file = io.BytesIO()
    Image.fromarray(picture).save(file, "PNG", optimize=True)
    return file.tell()


def _webp(picture: NDArray[np.uint8]) -> int:
    file = io.BytesIO()
    Image.fromarray(picture).save(file, "WEBP", lossless=True, quality=100, method=6)
    return file.tell()
