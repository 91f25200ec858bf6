"""Bytes that other codecs take for the examples of an archive."""

import io
import lzma
import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from importlib import import_module
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from axial_transformers.pictures.grids import contact_sheet
from axial_transformers.progress import Progress

MAX_FILES, MAX_SHEET = 2000, 1 << 26
"""Files that are coded: the bytes of more are estimated. Values of a sheet."""


def coded_sizes(
    sizes: Sequence[tuple[int, ...]],
    example: Callable[[int], NDArray[Any]],
    progress: Callable[[str], Progress],
) -> dict[str, dict[str, int]]:
    """Return bytes by codec and way: {"PNG": {"one file each": 9000, "one sheet": 7000}, "xz": {"one stream": 8000}}.

    Args:
        sizes: lengths of the axes of each example, of at least one.
        example: returns the one of a number, [*size, C].
        progress: returns the wrapper of a loop with this name, such as `bar`.
    """
    arrays = _from_zero([example(number) for number in range(len(sizes))])
    stream = xz_bytes(progress("xz for comparison: examples")(arrays), sum(array.nbytes for array in arrays))
    coded = {"xz": {"one stream": stream}}
    first = arrays[0]
    if first.itemsize > 2:
        return coded
    if first.ndim == 3 and first.dtype == np.uint8 and first.shape[-1] in (1, 3):
        ways = _sheets(arrays)
        codecs = ["PNG", "WebP", "JPEG XL"]
    else:
        ways = _slices(arrays)
        codecs = ["JPEG XL"]
    for codec in codecs:
        for way, images in ways.items():
            some = images[:: -(-len(images) // MAX_FILES)]
            shown = progress(f"{codec} for comparison, {way}: images")(some)
            if len(some) < len(images):
                way += f", from {len(some):,} of {len(images):,}"
            with suppress(ImportError, ValueError, OSError, RuntimeError):  # WebP has no images as large as some sheets
                size = sum(encoded_size(codec, image) for image in shown)
                coded.setdefault(codec, {})[way] = round(size * _count(images) / _count(some))
    return coded


def _from_zero(arrays: list[NDArray[Any]]) -> list[NDArray[Any]]:
    """Return arrays of the smallest unsigned type, less their lowest value if that is negative."""
    lowest = min(0, *(int(array.min()) for array in arrays))
    kind = np.min_scalar_type(max(int(array.max()) for array in arrays) - lowest)
    return [(array.astype(np.int64) - lowest).astype(kind) for array in arrays]


def _count(arrays: list[NDArray[Any]]) -> int:
    """Return how many numbers there are."""
    return sum(array.size for array in arrays)


def _are_equal_in_size(arrays: list[NDArray[Any]]) -> bool:
    return len({array.shape for array in arrays}) == 1


def _sheets(arrays: list[NDArray[Any]]) -> dict[str, list[NDArray[Any]]]:
    """Return images one by one and, if they are of one size, as one sheet."""
    ways = {"one file each": arrays}
    if len(arrays) > 1 and _are_equal_in_size(arrays) and _count(arrays) <= MAX_SHEET:
        ways["one sheet"] = [contact_sheet(np.stack(arrays), math.isqrt(len(arrays) - 1) + 1)]
    return ways


def xz_bytes(arrays: Iterable[NDArray[Any]], total: int) -> int:
    """Return the bytes of arrays of `total` bytes as one stream, by the highest effort."""
    options = {"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "dict_size": min(max(total, 4096), 1 << 26)}
    packer = lzma.LZMACompressor(filters=[options])
    return sum(len(packer.compress(array.tobytes())) for array in arrays) + len(packer.flush())


def encoded_size(codec: str, image: NDArray[Any]) -> int:
    """Return the bytes of an image [H, W], [H, W, 1] or [H, W, 3], at the highest effort."""
    image = np.ascontiguousarray(image[..., 0] if image.shape[2:] == (1,) else image)
    if codec == "JPEG XL":
        return len(import_module("imagecodecs").jpegxl_encode(image, lossless=True, effort=9, numthreads=1))
    file = io.BytesIO()
    Image.fromarray(image).save(file, format=codec, lossless=True, quality=100, method=6, optimize=True)
    return file.tell()


def _slices(arrays: list[NDArray[Any]]) -> dict[str, list[NDArray[Any]]]:
    """Return images [H, W] or, of bytes, [H, W, 3]: slices along every two axes."""
    if _are_equal_in_size(arrays):
        arrays = [np.stack(arrays)]
    first = arrays[0]
    colours = 1 if first.dtype == np.uint8 and first.shape[-1] == 3 else 0
    axes = [axis for axis in range(first.ndim - colours) if first.shape[axis] > 1]
    ways = {}
    for one, other in combinations(axes, 2):
        images: list[NDArray[Any]] = []
        for array in arrays:
            moved = np.moveaxis(array, (one, other), (-2 - colours, -1 - colours))
            images += [*moved.reshape(-1, *moved.shape[-2 - colours :])]
        ways[f"slices along axes {one} and {other}"] = images
    return ways
