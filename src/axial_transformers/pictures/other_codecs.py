"""Bytes that other codecs take for the examples of an archive."""

import io
import lzma
import math
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from axial_transformers.pictures.grids import contact_sheet
from axial_transformers.progress import Progress

MAX_FILES, MAX_SHEET = 2000, 1 << 26
"""Files that are coded, at most: the bytes of more are estimated from them. Values of a sheet, at most."""
TRIED = 1 << 20
"""Values that are coded to choose the axes of slices, at most."""

Encode = Callable[[NDArray[Any]], int]
"""Returns the bytes of an image [H, W] or [H, W, 3]."""
Read = Callable[[int], NDArray[Any]]


def coded_sizes(
    sizes: Sequence[tuple[int, ...]], example: Read, progress: Callable[[str], Progress]
) -> dict[str, dict[str, int]]:
    """Return bytes by codec and way: {"PNG": {"one file each": 9000, "one sheet": 7000}, "xz": {"one stream": 8000}}.

    Images of 8 bits are PNG, WebP and JPEG XL: a file each and, if they are of one size, on a sheet. Of other arrays,
    slices along two axes are JPEG XL, if they have at most 16 bits: a file each, and one below the other. The values of
    all are one xz stream.

    Args:
        sizes: lengths of the axes of each example, of at least one.
        example: returns the one of a number, [*size, C].
        progress: returns the wrapper of a loop with this name, such as `bar`.
    """
    count, read, found = len(sizes), _unsigned(example, len(sizes)), dict[str, dict[str, int]]()
    first = read(0)
    total = first.shape[-1] * sum(map(math.prod, sizes))
    if first.ndim == 3 and first.dtype == np.uint8 and first.shape[-1] in (1, 3):
        image: Read = (lambda number: read(number)[..., 0]) if first.shape[-1] == 1 else read
        for name, encode in _codecs().items():
            found[name] = _files(encode, "one file each", image, count, total, progress(name))
            if count > 1 and len({*sizes}) == 1:
                found[name] |= _sheets(encode, image, count, progress(f"{name}, on a sheet"))
    elif first.dtype.itemsize <= 2 and (jpeg_xl := _codecs().get("JPEG XL")):
        sheets = _sheets_of_slices(jpeg_xl, [read(i) for i in range(count)], progress("JPEG XL, axes"))
        if sheets:  # there is none of one sequence
            slices = [np.ascontiguousarray(each) for sheet in sheets for each in sheet]
            found["JPEG XL"] = _files(jpeg_xl, "slices", slices.__getitem__, len(slices), total, progress("JPEG XL"))
            tall = (_tall(jpeg_xl, sheet) for sheet in progress("JPEG XL, on sheets")(sheets))
            found["JPEG XL"]["slices on sheets"] = sum(tall)
    stream = xz_bytes((read(i) for i in progress("xz")(range(count))), total * first.itemsize)
    return {**found, "xz": {"one stream": stream}}


def xz_bytes(arrays: Iterable[NDArray[Any]], total: int) -> int:
    """Return the bytes of arrays of `total` bytes as one stream, by the highest effort."""
    options = {"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "dict_size": min(max(total, 4096), 1 << 26)}
    packer = lzma.LZMACompressor(filters=[options])
    return sum(len(packer.compress(array.tobytes())) for array in arrays) + len(packer.flush())


def _codecs() -> dict[str, Encode]:
    """Return codecs by name, at the highest effort."""
    found: dict[str, Encode] = {
        "PNG": lambda image: _saved(image, format="PNG", optimize=True),
        "WebP": lambda image: _saved(image, format="WEBP", lossless=True, quality=100, method=6),
    }
    try:
        from imagecodecs import jpegxl_encode
    except ImportError:
        return found
    return {**found, "JPEG XL": lambda image: len(jpegxl_encode(image, lossless=True, effort=9, numthreads=1))}


def _saved(image: NDArray[np.uint8], **options: Any) -> int:
    file = io.BytesIO()
    Image.fromarray(image).save(file, **options)
    return file.tell()


def _unsigned(example: Read, count: int) -> Read:
    """Return what reads an example as integers from 0 on, in the fewest bytes that hold all examples."""
    ends = [(int(values.min()), int(values.max())) for values in map(example, range(count))]
    lowest = min(0, *(low for low, _ in ends))
    dtype = np.min_scalar_type(max(high for _, high in ends) - lowest)
    return lambda number: (example(number).astype(np.int64) - lowest).astype(dtype)


def _files(encode: Encode, way: str, read: Read, count: int, total: int, progress: Progress) -> dict[str, int]:
    """Return the bytes of `count` images with `total` values, each in a file."""
    some = np.unique(np.linspace(0, count - 1, min(count, MAX_FILES)).astype(int)).tolist()
    size, values = np.sum([(encode(each), each.size) for each in map(read, progress(some))], axis=0)
    return {way + f", from {len(some):,} of {count:,}" * (len(some) < count): round(size * total / values)}


def _sheets(encode: Encode, read: Read, count: int, progress: Progress) -> dict[str, int]:
    """Return the bytes of images of one size side by side; nothing if the codec has no images as large."""
    parts, size = -(-count * read(0).size // MAX_SHEET), 0
    for numbers in progress(np.array_split(np.arange(count), parts)):
        images = np.stack([read(i) for i in numbers.tolist()])
        try:
            size += encode(contact_sheet(images, math.ceil(math.sqrt(len(images)))))
        except (ValueError, OSError, RuntimeError):
            return {}
    return {"one sheet" if parts == 1 else f"{parts} sheets": size}


def _sheets_of_slices(encode: Encode, arrays: list[NDArray[Any]], progress: Progress) -> list[NDArray[Any]]:
    """Return sheets of slices [N, H, W] or, of bytes, [N, H, W, 3], along the axes that take the fewest bytes."""
    if len({array.shape for array in arrays}) == 1:
        arrays = [np.stack(arrays)]
    of_colours = arrays[0].dtype == np.uint8 and arrays[0].shape[-1] == 3
    axes = [i for i, length in enumerate(arrays[0].shape[: -1 if of_colours else None]) if length > 1]

    def along(pair: tuple[int, ...], array: NDArray[Any]) -> NDArray[Any]:
        ahead = np.moveaxis(array, pair, (-3, -2) if of_colours else (-2, -1))
        return ahead.reshape(-1, *ahead.shape[-3 if of_colours else -2 :])

    sizes = dict[tuple[int, ...], float]()
    for pair in progress([*combinations(axes, 2)]):
        slices = along(pair, arrays[0])
        some = slices[: max(1, TRIED * len(slices) // slices.size)]
        sizes[pair] = _tall(encode, some) / some.size
    if not sizes:
        return []
    sheets = [along(min(sizes, key=sizes.__getitem__), array) for array in arrays]
    return [part for sheet in sheets for part in np.array_split(sheet, min(len(sheet), -(-sheet.size // MAX_SHEET)))]


def _tall(encode: Encode, slices: NDArray[Any]) -> int:
    """Return the bytes of slices, one below the other."""
    return encode(np.ascontiguousarray(slices).reshape(-1, *slices.shape[2:]))
