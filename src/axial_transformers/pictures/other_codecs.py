"""Bytes that other codecs take for the examples of an archive, and the time that they need."""

import io
import lzma
import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import combinations
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from axial_transformers.progress import NamedProgress

MAX_FILES = 2000
MAX_VALUES = 1 << 26
"""Files, and values in files or on a sheet, that are coded: the bytes of more are estimated."""
MAX_SLOW = 1 << 23
"""Values that JPEG XL codes by effort 10, in one to four minutes."""
QUICK = "JPEG XL effort 9"
SLOW = "JPEG XL effort 10"


@dataclass(frozen=True)
class Coded:
    """What a codec makes of all examples."""

    codec: str
    way: str
    """What the codec gets, such as one sheet."""
    bytes: int
    seconds: float
    """Wall-clock time; an estimate where `bytes` are one."""
    apart: bool = False
    """Each image, slice or volume is a file of its own."""

    @property
    def name(self) -> str:
        """Return codec and way."""
        return f"{self.codec}, {self.way}"


@dataclass(frozen=True, eq=False)
class _Way:
    """Images or volumes that a codec gets one by one, or images on one sheet."""

    name: str
    images: list[NDArray[Any]]
    apart: bool = True

    @property
    def values(self) -> int:
        return sum(image.size for image in self.images)

    def on_sheet(self) -> "_Way":
        """Return the images on one sheet."""
        name = "one sheet" if self.name == "one file each" else f"mosaic of {self.name}"
        return _Way(name, self.images, apart=False)

    def some(self, values: int) -> "_Way":
        """Return evenly spaced images of about so many values, or one image that has more."""
        step = -(-self.values // values)
        if self.apart:
            step = max(step, -(-len(self.images) // MAX_FILES))
        return replace(self, images=self.images[::step])


def coded_sizes(arrays: Sequence[NDArray[Any]], progress: NamedProgress, *, extras: bool = True) -> list[Coded]:
    """Return what other codecs make of examples, on one thread, along the axes for which each takes the fewest bytes.

    - 8-bit images of one or three channels: one file each, and one sheet, by PNG, WebP and JPEG XL.
    - Other arrays of up to 16 bits: slices along two axes, and a mosaic of them, by JPEG XL; volumes by Tomoz.
    - All arrays: one stream by xz.

    A codec that is not installed, or refuses the values, is left out.
    More values than `MAX_VALUES`, or files than `MAX_FILES`, are estimated from evenly spaced images.
    Effort 10 of JPEG XL codes `MAX_SLOW` values at most. For more, its bytes are those of effort 9 for all values,
    times the ratio of both for these.

    Args:
        arrays: examples [*A, C], at least one.
        progress: returns the wrapper of a loop with this name, such as `bar`.
        extras: try JPEG XL and Tomoz. Without them, the result depends on no extra that is installed.
    """
    arrays = _from_zero(arrays)
    first = arrays[0]
    start = perf_counter()
    stream = xz_bytes(progress("xz for comparison: examples")(arrays), sum(array.nbytes for array in arrays))
    results = [Coded("xz", "one stream", stream, perf_counter() - start)]
    if first.itemsize > 2:
        return results
    codecs = [QUICK] if extras else []
    if first.ndim == 3 and first.dtype == np.uint8 and first.shape[-1] in (1, 3):
        ways = [_Way("one file each", arrays)]
        codecs = ["PNG", "WebP", *codecs]
    else:
        ways = _slices(arrays) if extras else []
        if extras:
            results += _best("Tomoz", _volumes(arrays), progress)
    sheets = [way.on_sheet() for way in ways if len(way.images) > 1]
    for codec in codecs:
        results += _best(codec, ways, progress) + _best(codec, sheets, progress)
    return results


def verdict(size: int, others: Sequence[Coded]) -> str:
    """Return by how much an archive is below or above the best of single files, and the best of all in one."""
    differences = []
    for apart in (True, False):
        coded = [other for other in others if other.apart == apart]
        if coded:
            best = min(coded, key=lambda other: other.bytes)
            side = "below" if size < best.bytes else "above"
            percent = abs(100 * size / best.bytes - 100)
            differences.append(f"{percent:.1f} % {side} {best.way} ({best.codec})")
    return ", ".join(differences)


def xz_bytes(arrays: Iterable[NDArray[Any]], total: int) -> int:
    """Return the bytes of arrays of `total` bytes as one stream, by the highest effort."""
    options = {"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "dict_size": min(max(total, 4096), 1 << 26)}
    packer = lzma.LZMACompressor(filters=[options])
    return sum(len(packer.compress(array.tobytes())) for array in arrays) + len(packer.flush())


def encoded_size(codec: str, image: NDArray[Any]) -> int:
    """Return the bytes of an image [H, W], [H, W, 1] or [H, W, 3], at the highest effort; of a volume by Tomoz."""
    image = np.ascontiguousarray(image[..., 0] if image.shape[2:] == (1,) else image)
    if codec == "Tomoz":
        return len(import_module("tomoz").encode(image, threads=1))
    if codec in (QUICK, SLOW):
        effort = 9 if codec == QUICK else 10
        return len(import_module("imagecodecs").jpegxl_encode(image, lossless=True, effort=effort, numthreads=1))
    file = io.BytesIO()
    Image.fromarray(image).save(file, format=codec, lossless=True, quality=100, method=6, optimize=True)
    return file.tell()


def sheet(images: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Return images [H, W] or [H, W, C] of any sizes on one, in rows, by height; what is between them is 0."""
    root = math.isqrt(len(images))
    columns = min(range(-(-root // 2), 2 * root + 1), key=lambda number: -len(images) % number + abs(number - root))
    ordered = sorted(images, key=lambda image: image.shape)
    rows = []
    for start in range(0, len(ordered), columns):
        row = ordered[start : start + columns]
        rows.append(np.concatenate([_padded(image, len(row[-1]), image.shape[1]) for image in row], axis=1))
    width = max(row.shape[1] for row in rows)
    return np.concatenate([_padded(row, len(row), width) for row in rows])


def _best(codec: str, ways: Sequence[_Way], progress: NamedProgress) -> list[Coded]:
    """Return what a codec makes in the way that takes the fewest bytes; nothing if it is missing or refuses one."""
    results = list[Coded]()
    if not ways:
        return results
    with suppress(ImportError, ValueError, OSError, RuntimeError):  # WebP has no images as large as some sheets
        coded: dict[_Way, Coded] = {}
        for way in ways:
            some = way.some(MAX_VALUES)
            coded[way] = _of_all(_coded(codec, some, progress), some, way)
        best = min(ways, key=lambda way: coded[way].bytes)
        results.append(coded[best])
        if codec == QUICK:
            results.append(_slow(coded[best], best, progress))
    return results


def _slow(quick: Coded, way: _Way, progress: NamedProgress) -> Coded:
    """Return what effort 10 makes of images of which `quick` says what effort 9 makes."""
    some = way.some(MAX_SLOW)
    some = replace(some, images=[_middle_rows(image, MAX_SLOW) for image in some.images])
    slow = _coded(SLOW, some, progress)
    if some.values == way.values:
        return slow
    ratio = slow.bytes / _coded(QUICK, some, progress).bytes
    return replace(_of_all(slow, some, way), bytes=round(quick.bytes * ratio))


def _coded(codec: str, way: _Way, progress: NamedProgress) -> Coded:
    files = way.images if way.apart else [sheet(way.images)]
    shown = progress(f"{codec} for comparison, {way.name}: images")(files)
    start = perf_counter()
    size = sum(encoded_size(codec, image) for image in shown)
    return Coded(codec, way.name, size, perf_counter() - start, way.apart)


def _of_all(coded: Coded, some: _Way, way: _Way) -> Coded:
    """Return an estimate for all images from what a codec makes of some."""
    if some.values == way.values:
        return coded
    share = way.values / some.values
    name = f"{way.name}, from {some.values:,} of {way.values:,} values"
    return replace(coded, way=name, bytes=round(coded.bytes * share), seconds=coded.seconds * share)


def _from_zero(arrays: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    """Return arrays of the smallest unsigned type, less their lowest value if that is negative."""
    lowest = min(0, *(int(array.min()) for array in arrays))
    kind = np.min_scalar_type(max(int(array.max()) for array in arrays) - lowest)
    return [(array.astype(np.int64) - lowest).astype(kind) for array in arrays]


def _stacked(arrays: list[NDArray[Any]]) -> list[NDArray[Any]]:
    """Return one array of examples of one size; others as they are."""
    return [np.stack(arrays)] if len({array.shape for array in arrays}) == 1 else arrays


def _slices(arrays: list[NDArray[Any]]) -> list[_Way]:
    """Return images [H, W] or, of bytes, [H, W, 3]: slices along every two axes."""
    arrays = _stacked(arrays)
    first = arrays[0]
    colours = 1 if first.dtype == np.uint8 and first.shape[-1] == 3 else 0
    axes = [axis for axis in range(first.ndim - colours) if first.shape[axis] > 1]
    ways = []
    for one, other in combinations(axes, 2):
        images: list[NDArray[Any]] = []
        for array in arrays:
            moved = np.moveaxis(array, (one, other), (-2 - colours, -1 - colours))
            images.extend(moved.reshape(-1, *moved.shape[-2 - colours :]))
        ways.append(_Way(f"slices along axes {one} and {other}", images))
    return ways


def _volumes(arrays: list[NDArray[Any]]) -> list[_Way]:
    """Return volumes [D, H, W] of the last three axes, channels apart; nothing of arrays with fewer axes."""
    volumes: list[NDArray[Any]] = []
    for array in _stacked(arrays):
        channels = np.moveaxis(array, -1, 0)
        shape = [length for length in channels.shape if length > 1]
        if len(shape) > 2:
            volumes.extend(channels.reshape(-1, *shape[-3:]))
    return [_Way("volumes", volumes)] if volumes else []


def _middle_rows(image: NDArray[Any], values: int) -> NDArray[Any]:
    """Return as many rows in the middle of an image as have so many values at most, at least one."""
    rows = max(1, values // image[0].size)
    start = max(0, (len(image) - rows) // 2)
    return image[start : start + rows]


def _padded(image: NDArray[Any], height: int, width: int) -> NDArray[Any]:
    """Return an image with zeros below and to the right."""
    gaps = [(0, height - len(image)), (0, width - image.shape[1])]
    return np.pad(image, gaps + [(0, 0)] * (image.ndim - 2))
