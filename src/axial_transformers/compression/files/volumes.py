"""Scans and arrays of any lengths: to tiles of the model's size, and back to files of the same bytes.

The bytes of a file are those of its values, between others that the archive keeps:

    a.nii       header, values                      gaps: [header, nothing]
    a.nii.gz    the same, packed by zlib's level 6  gaps: [head of gzip, header, nothing, checksum]
    series/     0.dcm: header, slice 1; 1.dcm: ..   gaps and slices of each file

Where no file has the values as they are, as with packed pixels, a file that `write_scan` makes takes its place.
"""

import gzip
import logging
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, chain, pairwise, zip_longest
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

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
from axial_transformers.data.blocks import channels_last
from axial_transformers.data.npy import SUFFIXES, read_array
from axial_transformers.data.scan_files import suffix_of, unzipped
from axial_transformers.data.scans import Scan, bare, parted, read_scan, write_scan
from axial_transformers.data.value_range import ValueRange, integers
from axial_transformers.models import AxialTransformerConfig
from axial_transformers.storage.files import folder_written_whole, written_whole

_LEVELS = (6, 9, 1)
_MAX_GAPS = 1 << 26
_WRITTEN = (".nii", ".nii.gz", ".tif", ".tiff", ".npy")
_DTYPES = [
    np.dtype(order + kind).str for order in "<>" for kind in ["b1", "u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8"]
]
_WRONG = "the archive's description of its scan is damaged: {!r:.100}"

log = logging.getLogger("axial_transformers")


@dataclass(frozen=True)
class _File:
    """What a file holds beside slices of values; with a level, zlib packs all but the first and the last gap."""

    name: str
    level: int
    gaps: list[bytes]
    slices: list[int]

    def content(self, slices: Sequence[memoryview]) -> bytes:
        gaps = self.gaps[1:-1] if self.level else self.gaps
        own = zip_longest(gaps, (slices[i] for i in self.slices), fillvalue=b"")
        content = b"".join(chain.from_iterable(own))
        return self.gaps[0] + _deflated(content, self.level) + self.gaps[-1] if self.level else content


class _Layout(NamedTuple):
    """Values [*examples, *A, C] as they lie in files."""

    dtype: str
    shape: list[int]
    order: list[int]
    """Axes, that with the longest step first."""

    def slices(self, values: NDArray[Any], count: int) -> list[memoryview]:
        content = memoryview(values.astype(self.dtype, copy=False).transpose(self.order).tobytes())
        size = len(content) // count
        return [content[size * i : size * (i + 1)] for i in range(count)]


def read(path: Path, config: AxialTransformerConfig, array: str | None = None, drop_header: bool = False) -> Contents:
    """Read a scan, or one array of a file. The last axes are those of the model, those before them examples."""
    file, dataset = parted(path)
    scan = read_scan(path) if array is None else _array(path, array, config)
    values = _values(path, scan, config)
    name = f"{file.name}::{dataset}" if dataset else file.name + "/" * file.is_dir()
    found = None if drop_header else _framed(file, scan, values, array)
    if found is not None and scan.slices:
        log.info("the archive holds the headers of DICOM, with data of patients: drop_header leaves them out")
    if found is None:
        name = ("scan" if drop_header else file.name[: -len(suffix_of(file)) or None]) + scan.suffix
        with TemporaryDirectory() as folder:
            again = Path(folder) / name
            write_scan(again, np.asarray(scan.values), bare(scan) if drop_header else scan)
            like = _array(again, "arr_0", config) if scan.suffix == ".npy" else read_scan(again)
            held = _values(again, like, config)
            if not (np.array_equal(held, values) and (found := _framed(again, like, held, None))):
                raise ValueError(f"{path} does not come back from {scan.suffix} as it was: save its values as .npy")
            del like, held  # open files, which Windows does not remove
        found = found[0], found[1], f"as {name}: values, type and geometry" + " alone" * drop_header
    files, layout, kept = found
    log.info(f"{path} comes back {kept}")
    known, axes = ValueRange(config.lowest, config.highest), values.shape[-1 - len(config.shape) : -1]
    outside = (values < known.low) | (values > known.high)
    positions, limits = np.flatnonzero(outside), known
    if len(positions) * 100 > values.size:
        ValueRange.of(values).require_within(known, path)
    if len(positions):
        log.info(f"{len(positions):,} values of {path} are not within {known}: they are stored as they are")
        limits = ValueRange.of(values[~outside])
    examples = values.reshape(-1, *axes, config.channels)

    def of(i: int) -> NDArray[np.integer]:
        part = np.clip(examples[i : i + 1], *limits) if len(positions) else examples[i : i + 1]
        return cut_tiles(part.astype(known.type), config.shape)

    lines = [[each.name, each.level, [len(gap) for gap in each.gaps], each.slices] for each in files]
    others = np.diff(positions, prepend=0).astype("<u8").tobytes(), values[outside].astype(layout.dtype).tobytes()
    frame = pack_frame([len(positions), *lines], b"".join([*(gap for each in files for gap in each.gaps), *others]))
    tiles = Tiles([prod(tile_grid(axes, config.shape))] * len(examples), of, (*config.shape, config.channels))
    left_out = source_of(file).left_out if name.endswith("/") else []
    described = {"scan": name, **layout._asdict()}
    return Contents(tiles, described, [partial(bytes, frame)], left_out, examples=len(examples))


def write(
    target: Path, description: Any, config: AxialTransformerConfig, images: Iterable[NDArray[np.integer] | None],
    count: int, frame: bytes,
) -> None:  # fmt: skip
    """Write the file or the folder; or, where the target has another suffix, another file of the same values."""
    name, layout = _checked(description, config, count)
    files, positions, others = _unframed(frame, layout)
    (file, dataset), into_folder, suffix = parted(name), name.endswith("/"), suffix_of(target)
    converted = suffix in _WRITTEN if into_folder else suffix != suffix_of(file)
    if converted and (suffix not in _WRITTEN or suffix_of(file) in SUFFIXES):
        raise ValueError(f"the archive holds {name!r:.100}: give a target of this suffix, not {target.name}")
    if not into_folder and len(files) != 1:
        raise DamagedError(_WRONG.format(description))
    tiles = np.stack([image.astype(layout.dtype) for image in images if image is not None])
    axes = tuple(layout.shape[-1 - len(config.shape) : -1])
    values = np.ascontiguousarray(join_tiles(tiles, axes)).reshape(layout.shape)
    values.reshape(-1)[positions] = others
    slices = layout.slices(values, sum(len(each.slices) for each in files))
    with TemporaryDirectory() if converted else nullcontext() as temporary:
        if not (converted or into_folder):
            with written_whole(target, replace=False) as aside:
                aside.write_bytes(files[0].content(slices))
            return
        with folder_written_whole(target if temporary is None else Path(temporary, "scan")) as folder:
            for each in files:
                write_new(folder / each.name, each.content(slices))
        if temporary is not None:
            place = f"{temporary}/scan" + f"/{files[0].name}" * (not into_folder) + f"::{dataset}" * bool(dataset)
            scan = read_scan(place)
            write_scan(target, np.asarray(scan.values), scan)
            log.info(f"{target} holds the values, the type and the geometry of {name}, not its other bytes")


def fits(shape: tuple[int, ...], dtype: np.dtype[Any], config: AxialTransformerConfig) -> bool:
    """Return True for an array of integers [.., *A], or [.., *A, C]."""
    enough = len(shape) >= len(config.shape) + (config.channels > 1) and config.channels in (1, *shape[-1:])
    return dtype.str in _DTYPES and 0 not in shape and enough


def _array(path: Path, name: str, config: AxialTransformerConfig) -> Scan:
    values = read_array(path, name)
    with_channels = config.channels > 1 or values.shape[len(config.shape) :] == (1,)
    return Scan(values, "?" * (values.ndim - 1) + "?C"[with_channels])


def _values(path: Path, scan: Scan, config: AxialTransformerConfig) -> NDArray[Any]:
    values: NDArray[Any] = channels_last(np.asarray(scan.values), scan.axes)[...]
    if values.ndim <= len(config.shape) or values.shape[-1] != config.channels:
        said = f"{path} is of axes {list(values.shape)}, the last one channels"
        raise ValueError(f"{said}: the model is of blocks {[*config.shape, config.channels]}")
    if values.dtype.kind not in "bui":
        integers(path, values)
    return values


def _framed(file: Path, scan: Scan, values: NDArray[Any], array: str | None) -> tuple[list[_File], _Layout, str] | None:
    """Return the files around the values, and how they come back; None where they do not hold values as they are."""
    source, order = source_of(file), sorted(range(values.ndim), key=lambda axis: -values.strides[axis])
    sizes = [path.stat().st_size for path in source.files]
    if (file.is_dir() and not scan.slices) or sum(sizes) > values.nbytes + _MAX_GAPS:
        return None
    for dtype in (values.dtype, values.dtype.newbyteorder()):
        layout = _Layout(dtype.str, list(values.shape), order)
        for count in [len(scan.slices)] if scan.slices else [1, values.shape[order[0]]]:
            slices, of_file = layout.slices(values, count), defaultdict[Path, list[int]](list)
            for i in sorted(range(count), key=lambda i: scan.slices[i][1] if scan.slices else i):
                of_file[scan.slices[i][0] if scan.slices else file].append(i)
            files = [_file(path, source.name(path), of_file[path], slices, array) for path in source.files]
            found = [each for each in files if each is not None]
            if len(found) == len(files) and sum(len(each.slices) for each in found) == count:
                same = all(each.content(slices) == path.read_bytes() for each, path in zip(found, source.files))
                return found, layout, "byte for byte" if same else "with the same bytes, which gzip packs anew"
    return None


def _file(path: Path, name: str, own: list[int], slices: list[memoryview], array: str | None) -> _File | None:
    content, unpacked = path.read_bytes(), b""
    if gaps := _gaps(content, [slices[i] for i in own]):
        return _File(name, 0, gaps, own)
    if suffix_of(path) == ".nii.gz":
        unpacked = bytes(unzipped(path))
    elif suffix_of(path) == ".npz":
        with zipfile.ZipFile(path) as archive:
            unpacked = archive.read(f"{array}.npy")
    if gaps := _gaps(unpacked, [slices[i] for i in own]):
        for level in _LEVELS:
            packed = _deflated(unpacked, level)
            if around := _gaps(content, [packed]):
                return _File(name, level, [around[0], *gaps, around[1]], own)
        if suffix_of(path) == ".nii.gz":
            packed = gzip.compress(unpacked, _LEVELS[0], mtime=0)
            return _File(name, _LEVELS[0], [packed[:10], *gaps, packed[-8:]], own)
    return None


def _gaps(content: bytes, parts: Sequence[bytes | memoryview]) -> list[bytes]:
    """Return what lies between parts of the content, and around them; nothing if they are not all there in order."""
    gaps, end = list[bytes](), 0
    for part in parts:
        if (place := content.find(part, end)) < 0:
            return []
        gaps.append(content[end:place])
        end = place + len(part)
    return [*gaps, content[end:]]


def _deflated(content: bytes, level: int) -> bytes:
    packer = zlib.compressobj(level, zlib.DEFLATED, -15)
    return packer.compress(content) + packer.flush()


def _checked(description: Any, config: AxialTransformerConfig, count: int) -> tuple[str, _Layout]:
    name, dtype, shape, order = (description[key] for key in ("scan", "dtype", "shape", "order"))
    axes, lists = -1 - len(config.shape), isinstance(shape, list) and isinstance(order, list)
    if not (lists and {*map(type, [*shape, *order])} == {int} and type(name) is str and dtype in _DTYPES):
        raise DamagedError(_WRONG.format(description))
    sound = -axes <= len(shape) <= 16 and min(shape) > 0 and sorted(order) == [*range(len(shape))]
    if not sound or count != prod(shape[:axes]) * prod(tile_grid(tuple(shape[axes:-1]), config.shape)):
        raise DamagedError(_WRONG.format(description))
    return name, _Layout(dtype, shape, order)


def _unframed(frame: bytes, layout: _Layout) -> tuple[list[_File], NDArray[np.uint64], NDArray[Any]]:
    described, content = unpack_frame(frame)
    dtype, size, files, end = np.dtype(layout.dtype), prod(layout.shape), list[_File](), 0
    try:
        outside, *lines = described
        for name, level, gaps, slices in lines:
            check_name(name)
            whole = {*map(type, [outside, level, *gaps, *slices])} == {int} and level in (0, *_LEVELS)
            if not (whole and min(gaps) >= 0 and len(gaps) == len(slices) + 1 + 2 * (level > 0)):
                raise DamagedError(_WRONG.format(name))
            ends = [*accumulate(gaps, initial=end)]
            files.append(_File(name, level, [content[a:b] for a, b in pairwise(ends)], slices))
            end = ends[-1]
        Names([each.name for each in files])
        numbers = sorted(i for each in files for i in each.slices)
        if end + outside * (8 + dtype.itemsize) != len(content) or outside < 0:
            raise DamagedError(_WRONG.format(layout))
    except (TypeError, ValueError, AttributeError) as error:
        raise error if isinstance(error, DamagedError) else DamagedError(_WRONG.format(described)) from error
    positions = np.cumsum(np.frombuffer(content, "<u8", outside, end))
    others = np.frombuffer(content, dtype, outside, end + 8 * outside)
    cut = numbers == [*range(len(numbers))] and numbers and size * dtype.itemsize % len(numbers) == 0
    if not cut or (positions >= size).any():
        raise DamagedError(_WRONG.format(layout))
    return files, positions, others
