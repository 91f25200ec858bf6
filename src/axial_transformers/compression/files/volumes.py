"""Scans and arrays of any lengths: to tiles of the model's size, and back to files of the same bytes.

A file is the slices of its values, with gaps of other bytes around them, which the archive keeps:

    a.nii       [header] values []
    a.nii.gz    [head of gzip] zlib([header] values []) [checksum]
    series/     [header] slice 1 []   and   [header] slice 0 []

Where values do not lie in the files as they are, as with packed pixels, a file by `write_scan` takes their place.
"""

import gzip
import io
import logging
import re
import zlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, zip_longest
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from axial_transformers.compression.container import DamagedError
from axial_transformers.compression.files.entries import Names, check_name, pack_frame, unpack_frame
from axial_transformers.compression.files.source import (
    Contents,
    Tiles,
    cut_tiles,
    join_tiles,
    source_of,
    tile_grid,
    write_new,
)
from axial_transformers.data.blocks_of_arrays import channels_last
from axial_transformers.data.grid import Grid
from axial_transformers.data.npy import read_array
from axial_transformers.data.scan_files import suffix_of, unzipped
from axial_transformers.data.scans import Scan, bare, parted, read_scan, write_scan
from axial_transformers.data.value_range import ValueRange, integers, range_of
from axial_transformers.models import AxialTransformerConfig
from axial_transformers.storage.files import folder_written_whole, written_whole
from axial_transformers.storage.typed_json import from_json, to_json

_LEVELS = (6, 9, 1)
_MAX_KEPT = 1 << 26
_DAMAGED = "the archive's description of a scan is damaged"

_Framed = tuple["_Frame | None", bytes, str]

log = logging.getLogger("axial_transformers")


@dataclass(frozen=True)
class _File:
    name: str
    level: int
    """Of zlib, which packs all but the first and the last gap; 0: nothing is packed."""
    gaps: tuple[int, ...]
    """Their lengths in bytes."""
    slices: tuple[int, ...]
    crc: int = 0
    """CRC-32 of the file, which another zlib may pack otherwise."""

    def __post_init__(self) -> None:
        check_name(self.name)
        count = len(self.slices) + (3 if self.level else 1)
        if self.level not in (0, *_LEVELS) or len(self.gaps) != count or min(self.gaps) < 0:
            raise DamagedError(_DAMAGED)

    def content(self, kept: BinaryIO, slices: Sequence[memoryview]) -> bytes:
        gaps, own = [kept.read(length) for length in self.gaps], [slices[i] for i in self.slices]
        if not self.level:
            return _joined(gaps, own)
        return _joined([gaps[0], gaps[-1]], [_deflated(_joined(gaps[1:-1], own), self.level)])


@dataclass(frozen=True)
class _Frame:
    """How values [*examples, *A, C] lie in files."""

    folder: bool
    dtype: str
    shape: tuple[int, ...]
    order: tuple[int, ...]
    """Axes of the stored array, slowest first."""
    files: tuple[_File, ...]

    def __post_init__(self) -> None:
        Names([file.name for file in self.files])
        numbers, axes = sorted(i for file in self.files for i in file.slices), [*range(len(self.shape))]
        sound = min(self.shape, default=0) > 0 and len(axes) <= 16 and sorted(self.order) == axes
        whole = numbers and numbers == [*range(len(numbers))] and prod(self.shape) % len(numbers) == 0
        of_numbers = re.fullmatch(r"\|[biu]1|[<>][iuf][248]", self.dtype)
        if not (sound and whole and of_numbers and (self.folder or len(self.files) == 1)):
            raise DamagedError(_DAMAGED)

    @property
    def integers(self) -> np.dtype[Any]:
        """The type of values in memory: of floats, their integers on the model's grid."""
        return np.dtype("<i8" if self.dtype[1] == "f" else self.dtype)

    @property
    def kept(self) -> int:
        return sum(sum(file.gaps) for file in self.files)

    def slices(self, values: NDArray[Any], grid: Grid | None) -> list[memoryview]:
        return _slices(values.transpose(self.order), self.dtype, sum(len(file.slices) for file in self.files), grid)


def read(path: Path, config: AxialTransformerConfig, array: str | None = None, drop_header: bool = False) -> Contents:
    """Read a scan, or one array of a file. The last axes are those of the model, those before them examples."""
    file, _ = parted(path)
    (scan, values), grid = _read(path, array, config), config.floats
    source = source_of(file)
    left_out = [*source.left_out] if scan.slices else []
    frame, kept, how = (None, b"", "") if drop_header else _framed(file, scan, values, grid)
    if frame is None:
        with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            name = ("scan" if drop_header else file.name[: -len(suffix_of(file)) or None]) + scan.suffix
            write_scan(Path(folder, name), np.asarray(scan.values), bare(scan) if drop_header else scan)
            held = _read(Path(folder, name), "arr_0" if scan.suffix == ".npy" else None, config)
            frame, kept, _ = _framed(Path(folder, name), *held, grid)
            if frame is None or not np.array_equal(held[1], values):
                raise ValueError(f"{path} does not come back from {scan.suffix} as it was: save its values as .npy")
        how = f"as {name}: " + ("values and type" if scan.header is None else "values, type and geometry")
        left_out += [source.name(each) for each in source.files if scan.slices and each not in dict(scan.slices)]
    elif scan.slices:
        log.info("the archive holds the headers of DICOM, with data of patients: drop_header=True leaves them out")
    log.info(f"{path} comes back {how}")
    known = ValueRange(config.lowest, config.highest)
    outside = (values < known.low) | (values > known.high)
    others, positions = values[outside].astype(frame.integers).tobytes(), np.flatnonzero(outside)
    if len(positions) * 100 > values.size:
        ValueRange.of(values).require_within(known, path)
    if len(positions):
        log.info(f"{len(positions):,} values of {path} are not within {known}: they are stored as they are")
        within = values[~outside]
        values = np.clip(values, within.min(), within.max())
    packed = pack_frame(to_json(frame), kept + np.diff(positions, prepend=0).astype("<u8").tobytes() + others)
    examples = values.reshape(-1, *values.shape[-1 - len(config.shape) :])

    def of(i: int) -> NDArray[np.integer]:
        return cut_tiles(examples[i : i + 1].astype(known.type), config.shape)

    tiles = Tiles([examples.shape[1:-1]] * len(examples), of, (*config.shape, config.channels))
    return Contents(tiles, {"scan": len(frame.files)}, [partial(bytes, packed)], left_out, examples=len(examples))


def write(
    target: Path, config: AxialTransformerConfig, images: Iterable[NDArray[np.integer] | None], count: int,
    packed: bytes,
) -> None:  # fmt: skip
    """Write the file, whose suffix the target must have, or the folder."""
    frame, content = _unpacked(packed)
    dtype, axes, kept = frame.integers, frame.shape[-1 - len(config.shape) : -1], io.BytesIO(content)
    outside, rest = divmod(len(content) - frame.kept, 8 + dtype.itemsize)
    fits = len(frame.shape) > len(config.shape) and frame.shape[-1] == config.channels and outside >= 0 == rest
    if not fits or count != prod(frame.shape[: -1 - len(axes)]) * prod(tile_grid(axes, config.shape)):
        raise DamagedError(_DAMAGED)
    positions = np.cumsum(np.frombuffer(content, "<u8", outside, frame.kept))
    if (positions >= prod(frame.shape)).any():
        raise DamagedError(_DAMAGED)
    name = frame.files[0].name
    if not frame.folder and suffix_of(target) != suffix_of(Path(name)):
        raise ValueError(f"the archive holds {name!r:.100}: give a target of this suffix")
    tiles = np.stack([image.astype(dtype) for image in images if image is not None])
    values = np.ascontiguousarray(join_tiles(tiles, axes)).reshape(frame.shape)
    values.reshape(-1)[positions] = np.frombuffer(content, dtype, outside, frame.kept + 8 * outside)
    slices = frame.slices(values, config.floats)
    if not frame.folder:
        with written_whole(target, replace=False) as aside:
            aside.write_bytes(_checked(frame.files[0], kept, slices))
        return
    with folder_written_whole(target) as folder:
        for file in frame.files:
            write_new(folder / file.name, _checked(file, kept, slices))


def describe(packed: bytes) -> dict[str, Any]:
    """Return names of the files, and dtype and shape [*examples, *A, C] of the values."""
    frame, _ = _unpacked(packed)
    names, dtype = [file.name for file in frame.files], np.dtype(frame.dtype).name
    return {"names": names, "dtype": dtype, "shape": list(frame.shape)}


def _unpacked(packed: bytes) -> tuple[_Frame, bytes]:
    described, content = unpack_frame(packed)
    try:
        return from_json(_Frame, described, "the archive of a scan"), content
    except ValueError as error:
        raise DamagedError(str(error)) from error


def _checked(file: _File, kept: BinaryIO, slices: Sequence[memoryview]) -> bytes:
    content = file.content(kept, slices)
    if zlib.crc32(content) != file.crc:
        log.info(f"warning: {file.name}: this machine's zlib packs otherwise; the same content, in other bytes")
    return content


def _read(path: Path, array: str | None, config: AxialTransformerConfig) -> tuple[Scan, NDArray[Any]]:
    if array is None:
        scan = read_scan(path)
    else:
        found, axes = read_array(path, array), len(config.shape)
        with_channels = config.channels > 1 or found.shape[axes:] == (1,)
        scan = Scan(found, "?" * (found.ndim - 1) + "?C"[with_channels])
    values: NDArray[Any] = channels_last(np.asarray(scan.values), scan.axes)[...]
    if values.ndim <= len(config.shape) or values.shape[-1] != config.channels:
        blocks = [*config.shape, config.channels]
        raise ValueError(f"{path} is of {list(values.shape)}, channels last: the model is of blocks {blocks}")
    if values.dtype.kind in "bui":
        return scan, values
    on_grid = range_of(path, [values], config.grid)
    if on_grid.grid and not config.grid:
        raise ValueError(f"{path} holds {on_grid.grid}, but the model knows integers: give a model of such data")
    return scan, integers(values, on_grid)


def _framed(file: Path, scan: Scan, values: NDArray[Any], grid: Grid | None) -> _Framed:
    """Return the frame, its gaps, and how files come back; no frame if values do not lie in them as they are."""
    source, order = source_of(file), sorted(range(values.ndim), key=lambda axis: -values.strides[axis])
    too_large = sum(each.stat().st_size for each in source.files) > values.nbytes + _MAX_KEPT
    if too_large or (file.is_dir() and not scan.slices):
        return None, b"", ""
    dtype = scan.values.dtype.str
    for count in [len(scan.slices)] if scan.slices else [1, values.shape[order[0]]]:
        owners = scan.slices or [(file, i) for i in range(count)]
        slices, numbers = _slices(values.transpose(order), dtype, count, grid), defaultdict[Path, list[int]](list)
        for i in sorted(range(count), key=lambda i: owners[i][1]):
            numbers[owners[i][0]].append(i)
        found = [_around(each, [slices[i] for i in numbers[each]]) for each in source.files]
        if all(gaps for _, gaps in found) and len(numbers) == len(found):
            files = tuple(
                _File(source.name(each), level, tuple(map(len, gaps)), tuple(numbers[each]))
                for each, (level, gaps) in zip(source.files, found)
            )
            kept = b"".join(gap for _, gaps in found for gap in gaps)
            reader = io.BytesIO(kept)
            restored = [to.content(reader, slices) for to in files]
            files = tuple(replace(to, crc=zlib.crc32(content)) for to, content in zip(files, restored))
            same = all(content == each.read_bytes() for content, each in zip(restored, source.files))
            how = "byte for byte" if same else "with the same bytes, which gzip packs anew"
            return _Frame(file.is_dir(), dtype, values.shape, tuple(order), files), kept, how
    return None, b"", ""


def _around(path: Path, parts: list[memoryview]) -> tuple[int, list[bytes]]:
    """Return the level and the gaps of one file, or no gaps."""
    content, suffix = path.read_bytes(), suffix_of(path)
    if (gaps := _gaps(content, parts)) or suffix != ".nii.gz":
        return 0, gaps
    unpacked = bytes(unzipped(path))
    if gaps := _gaps(unpacked, parts):
        for level in _LEVELS:
            if around := _gaps(content, [_deflated(unpacked, level)]):
                return level, [around[0], *gaps, around[1]]
        packed = gzip.compress(unpacked, 6, mtime=0)
        return 6, [packed[:10], *gaps, packed[-8:]]
    return 0, []


def _slices(stored: NDArray[Any], dtype: str, count: int, grid: Grid | None) -> list[memoryview]:
    """Return stored values as bytes of a type; floats are those of the grid."""
    numbers = grid.floats(stored, dtype) if grid and dtype[1] == "f" else stored.astype(dtype, copy=False)
    content = memoryview(numbers.tobytes())
    size = len(content) // count
    return [content[size * i : size * (i + 1)] for i in range(count)]


def _gaps(content: bytes, parts: Sequence[bytes | memoryview]) -> list[bytes]:
    """Return what lies between parts of the content, and around them; nothing if they are not all there in order."""
    gaps, end = list[bytes](), 0
    for part in parts:
        if (start := content.find(part, end)) < 0:
            return []
        gaps.append(content[end:start])
        end = start + len(part)
    return [*gaps, content[end:]]


def _joined(gaps: Sequence[bytes], parts: Sequence[bytes | memoryview]) -> bytes:
    """Invert `_gaps`."""
    return b"".join(chain.from_iterable(zip_longest(gaps, parts, fillvalue=b"")))


def _deflated(content: bytes, level: int) -> bytes:
    packer = zlib.compressobj(level, zlib.DEFLATED, -15)
    return packer.compress(content) + packer.flush()
