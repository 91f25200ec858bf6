"""Parsers of scans, which may be hostile: claimed sizes are checked, and nothing is unpickled (see `scans`)."""

import gzip
import io
import logging
import math
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from axial_transformers.data.npy import RATIO_LIMIT, UNPACKED_LIMIT, mapped
from axial_transformers.storage import MissingPackageError, require_extra
from axial_transformers.storage.typed_json import read_object

_AXES = {1: "L", 2: "HW", 3: "DHW", 4: "TDHW"}
_TIFF_AXES = {"X": "W", "Y": "H", "Z": "D", "T": "T", "C": "C", "S": "C"}
_PACKINGS = {"blosc", "bz2", "gzip", "lz4", "lzma", "zlib", "zstd"}
_STEPS = {"bytes", "crc32c", "delta", "shuffle", "transpose"}
_HDF5_STEPS = {2, 3}  # shuffle and checksum
_NUMBERS = re.compile(r"[<>|][biuf]\d|bool|u?int(8|16|32|64)|float(16|32|64)")
_Slices = list[tuple[Path, int, dict[str, Any]]]
_DEFLATED = b"1.2.840.10008.1.2.1.99"
_ALIKE = (
    *("SeriesInstanceUID", "Rows", "Columns", "SamplesPerPixel", "BitsAllocated", "PixelRepresentation"),
    *("ImageOrientationPatient", "PixelSpacing", "RescaleSlope", "RescaleIntercept"),
)


@dataclass(frozen=True, eq=False)
class Scan:
    """An array of a file, with what its values and axes mean."""

    values: NDArray[Any]
    """Integers or floats as stored, slowest axis first; mapped, or read where they are sliced, if the format allows."""
    axes: str
    """One letter of T, D, H, W, L, C for each axis."""
    scale: float = 1.0
    offset: float = 0.0
    """A stored value v means offset + scale * v in the file's unit."""
    suffix: str = ".npy"
    """The suffix of files that `write_scan` makes like this one: .nii, .nii.gz, .tif or .npy."""
    header: Any = field(default=None, repr=False)
    """The geometry of NIfTI and DICOM, as a NIfTI header."""
    slices: Sequence[tuple[Path, int]] = field(default=(), repr=False)
    """Of DICOM, the file of each slice and its number among the frames of that file."""


def read_nifti(path: Path) -> Scan:
    """Return stored values; axes of length 1 behind the second are dropped, vectors become channels."""
    nibabel, suffix = package("nibabel", path), suffix_of(path)
    if suffix == ".nii":
        content = mapped(lambda mode: np.memmap(path, np.uint8, mode))
    else:
        content = np.frombuffer(unzipped(path), np.uint8)
    head = content[:540].tobytes()
    header = nibabel.Nifti2Header(head) if head[4:7] == b"n+2" else nibabel.Nifti1Header(head[:348])
    shape, dtype, start = header.get_data_shape()[::-1], header.get_data_dtype(), int(header["vox_offset"])
    while len(shape) > 2 and shape[0] == 1:
        shape = shape[1:]
    axes = _AXES.get(len(shape), "CTDHW" if len(shape) == 5 else "?")
    if dtype.names:  # RGB
        shape, axes, dtype = (*shape, len(dtype.names)), axes + "C", np.dtype(np.uint8)
    _require_sound(path, shape, dtype, axes, len(content))
    size = math.prod(shape) * dtype.itemsize
    if not 0 <= start <= len(content) - size:
        refuse(path, f"claims {size:,} bytes of values from byte {start:,}, but has {len(content):,}: it is cut off")
    values = content[start : start + size].view(dtype).reshape(shape)
    if axes[0] == "C":
        values, axes = np.moveaxis(values, 0, -1), "TDHWC"
        while len(values) == 1 and values.ndim > 3:
            values, axes = values[0], axes[1:]
    scale, offset = header.get_slope_inter()
    return Scan(values, axes, 1.0 if scale is None else scale, offset or 0.0, suffix, header)


def read_dicom(path: Path) -> Scan:
    """Return the slices of a series, sorted along their normal; one slice has no depth."""
    pixel_array, nibabel = package("pydicom", path).pixels.pixel_array, package("nibabel", path)
    files = [path] if path.is_file() else sorted(filter(is_dicom, path.iterdir()))
    held, slices = sum(file.stat().st_size for file in files), _Slices()
    for file in files:
        with parsing(file):
            slices += _slices(file, held)
    if not slices:
        refuse(path, "holds no DICOM file")
    _require_alike(path, slices)
    tags = slices[0][2]
    shape = len(slices), *(int(tags[name] or 1) for name in ("Rows", "Columns", "SamplesPerPixel"))
    _require_sound(path, shape, np.dtype(f"u{max(1, tags['BitsAllocated'] // 8)}"), "DHWC", held)
    order, positions = _in_order(path, slices)
    whole, values = None, np.empty(0)
    for target, (file, frame, _) in zip(np.argsort(order), slices):
        with parsing(file):
            whole = _dataset(file) if frame == 0 else whole
            pixels = pixel_array(whole, index=frame)
            values = values if values.size else np.empty((len(slices), *pixels.shape), pixels.dtype)
            values[target] = pixels
    header = nibabel.Nifti1Header()
    if positions is not None:
        header.set_sform(_affine(positions, tags["ImageOrientationPatient"], tags["PixelSpacing"] or (1, 1)), 1)
        header.set_qform(header.get_sform(), 1)
        header.set_xyzt_units("mm")
    if shape[3] > 1:
        header.set_data_dtype("RGB")
    axes = ("T" if positions is None and len(files) == 1 else "D") + ("HW" if shape[3] == 1 else "HWC")
    values, axes = (values[0], axes[1:]) if len(slices) == 1 else (values, axes)
    scale, offset = float(tags["RescaleSlope"] or 1), float(tags["RescaleIntercept"] or 0)
    return Scan(values, axes, scale, offset, ".nii.gz", header, [slices[i][:2] for i in order])


def _dataset(file: Path, **options: Any) -> Any:
    content = file.read_bytes()
    if _DEFLATED in content:  # pydicom would unpack it without a bound
        refuse(file, "is a deflated DICOM file: convert it, as by dcmconv +te")
    return import_module("pydicom").dcmread(io.BytesIO(content), **options)


def _slices(file: Path, held: int) -> _Slices:
    """Return each frame of a file, with its attributes: of the file, or of the functional groups of the frame."""
    found = _dataset(file, stop_before_pixels=True)
    frames, slices = int(found.get("NumberOfFrames") or 1), _Slices()
    if not (found.get("Rows") and found.get("Columns") and found.get("BitsAllocated")):
        refuse(file, "holds no image: give the files of the images only")
    if not 1 <= frames <= held:
        refuse(file, f"claims {frames:,} frames, but has {held:,} bytes: it is damaged")
    tags = {name: found.get(name) for name in (*_ALIKE, "ImagePositionPatient", "InstanceNumber")}
    shared = found.get("SharedFunctionalGroupsSequence") or []
    for frame in range(frames):
        own = (found.get("PerFrameFunctionalGroupsSequence") or [])[frame : frame + 1]
        items = [each.value[0] for group in (*shared, *own) for each in group if each.VR == "SQ" and each.value]
        of_groups = {name: item.get(name) for item in items for name in tags if name in item}
        slices.append((file, frame, {**tags, "InstanceNumber": tags["InstanceNumber"] or 0, **of_groups}))
    return slices


def _require_alike(path: Path, slices: _Slices) -> None:
    for file, _, tags in slices:
        for name in _ALIKE:
            value, first = tags[name], slices[0][2][name]
            close = name == "ImageOrientationPatient" and value and first and np.allclose(value, first, atol=1e-3)
            if value != first and not close:
                both = f"{first} ({slices[0][0].name}) and {value} ({file.name})"
                refuse(path, f"mixes slices of {name} {both}: give a folder with one series")


def _in_order(path: Path, slices: _Slices) -> tuple[NDArray[np.intp], NDArray[np.float64] | None]:
    """Return the order of slices along their normal, and their positions [n, 3] so sorted, or None without."""
    facing, found = slices[0][2]["ImageOrientationPatient"], [tags["ImagePositionPatient"] for *_, tags in slices]
    positions = np.array(found, np.float64) if facing and all(found) else None
    if positions is not None:
        along = positions @ np.cross(*np.array(facing, np.float64).reshape(2, 3))
    else:
        along = np.array([tags["InstanceNumber"] + frame for _, frame, tags in slices], np.float64)
    order = np.argsort(along, kind="stable")
    steps = np.diff(along[order])
    usual = np.median(steps) if len(steps) else 1.0
    uneven = ~((np.abs(steps - usual) <= 0.1 * usual) & (steps > 0))
    if uneven.any():
        worst = int(np.argmax(uneven))
        names = " and ".join(slices[i][0].name for i in order[worst : worst + 2])
        refuse(path, f"lacks a slice, or has one twice: {names} are {steps[worst]:g} apart, most {usual:g}")
    return order, None if positions is None else positions[order]


def _affine(positions: NDArray[np.float64], facing: Any, spacing: Any) -> NDArray[np.float64]:
    """Return voxels [W, H, D] to millimetres right, anterior, superior; DICOM counts to the left and posterior."""
    along, down = np.array(facing, np.float64).reshape(2, 3)
    step = (positions[-1] - positions[0]) / (len(positions) - 1) if len(positions) > 1 else np.cross(along, down)
    affine = np.eye(4)
    affine[:3] = np.stack([along * float(spacing[1]), down * float(spacing[0]), step, positions[0]], axis=1)
    return np.diag([-1.0, -1.0, 1.0, 1.0]) @ affine


def is_dicom(path: Path) -> bool:
    """Return True for .dcm, and for DICOM files without a suffix."""
    if path.suffix or path.name == "DICOMDIR" or not path.is_file():
        return path.suffix.lower() == ".dcm"
    with path.open("rb") as file:
        return file.read(132)[128:] == b"DICM"


def read_tiff(path: Path) -> Scan:
    """Return the only series of a file, mapped if it is contiguous."""
    tifffile = package("tifffile", path)
    with tifffile.TiffFile(path, is_mmstack=False, is_ndtiff=False) as file:  # these open other files
        others = {*re.findall(r"FileName\s*=\s*[\"']([^\"']*)", file.ome_metadata or "")} - {path.name}
        if others or len(file.series) != 1:
            refuse(path, "is part of several files, or holds no array or several: save one array in one file")
        series = file.series[0]
        axes, free = "", [letter for letter in "DTC" if letter not in map(_TIFF_AXES.get, series.axes)]
        for code in reversed(series.axes):
            axes = (_TIFF_AXES.get(code) or (free.pop(0) if free else "?")) + axes
        size = path.stat().st_size
        _require_sound(path, series.shape, series.dtype, axes, size)
        if (strips := len(series.pages) * math.prod(series.keyframe.chunked)) > size:
            refuse(path, f"claims {strips:,} strips of pixels, but has {size:,} bytes: it is damaged")
        if series.dataoffset is None:
            return Scan(series.asarray(), axes, suffix=".tif")
        dtype = series.dtype.newbyteorder(file.byteorder)
        start, shape = series.dataoffset, series.shape
        return Scan(mapped(lambda mode: np.memmap(path, dtype, mode, start, shape)), axes, suffix=".tif")


def has_pages(path: Path) -> bool:
    """Return True if a TIFF file has a second page, or is none that pillow reads."""
    try:
        with warnings.catch_warnings(action="ignore"), Image.open(path) as image:
            image.seek(1)
    except EOFError:
        return False
    except Exception:  # parsers of damaged files raise errors of every kind
        return True
    return True


def read_hdf5(path: Path, name: str) -> Scan:
    """Return the dataset of this name, or the only one; read in blocks if it is large."""
    h5py, names = package("h5py", path), list[str]()
    file = h5py.File(path, "r")  # open as long as its dataset
    file.visititems(lambda each, item: names.append(each) if isinstance(item, h5py.Dataset) else None)
    found = file[_chosen(path, name, names)]
    if found.external or found.is_virtual:
        refuse(path, f"refers to other files in {found.name!r}: save it as one file")
    plan = found.id.get_create_plist()
    if sum(plan.get_filter(i)[0] not in _HDF5_STEPS for i in range(plan.get_nfilters())) > 1:
        refuse(path, f"packs {found.name!r} more than once: refused as a decompression bomb")
    return _of_blocks(path, found, found.chunks or found.shape, path.stat().st_size, 1 << 20)


def read_zarr(path: Path, name: str) -> Scan:
    """Do the same for a folder of Zarr, whose metadata is checked before Zarr reads it."""
    zarr, arrays = package("zarr", path), dict[str, tuple[int, dict[str, Any]]]()
    files = [file for file in path.rglob("*") if file.is_file()]
    for file in files:
        if file.name in (".zarray", "zarr.json"):
            found = read_object(file, "metadata of Zarr")
            if found.get("node_type", "array") == "array":
                arrays[file.parent.relative_to(path).as_posix()] = (2 if file.name == ".zarray" else 3), found
    name = _chosen(path, name or ("." if "." in arrays else ""), list(arrays))
    version, about = arrays[name]
    kind = about.get("dtype" if version == 2 else "data_type")
    steps = [*(about.get("filters") or []), about.get("compressor")] if version == 2 else about["codecs"]
    packings = [each["id" if version == 2 else "name"] for each in steps if each is not None]
    packings = [each for each in packings if each not in _STEPS]
    if not ({*packings} <= _PACKINGS and len(packings) < 2 and isinstance(kind, str) and _NUMBERS.fullmatch(kind)):
        refuse(path, f"holds {name!r} of type {kind!r}, packed by {packings}: save numbers, packed once, as by zstd")
    found = zarr.open_array(path / name, mode="r", zarr_format=version)
    return _of_blocks(path, found, found.chunks, sum(file.stat().st_size for file in files), 1 << 13)


def _of_blocks(path: Path, found: Any, block: Sequence[int], held: int, many: int) -> Scan:
    last = found.ndim == 5 or (found.ndim in (3, 4) and found.shape[-1] <= 4)
    axes = _AXES.get(found.ndim - last, "?") + "C" * last
    for shape in (found.shape, block):
        _require_sound(path, shape, found.dtype, axes, held)
    blocks = math.prod(-(-length // part) for length, part in zip(found.shape, block))
    if blocks > many and math.prod(block) < 1 << 10:
        refuse(path, f"is cut into {blocks:,} blocks of shape {list(block)}: save it with larger ones")
    small = blocks <= many and found.size * found.dtype.itemsize <= UNPACKED_LIMIT
    return Scan(found[...] if small else found, axes)


def _chosen(path: Path, name: str, names: Sequence[str]) -> str:
    if not names:
        refuse(path, "holds no arrays")
    if not name and len(names) == 1:
        return names[0]
    if name.strip("/") not in names:
        listed = ", ".join(map(repr, names[:20])) + ", ..." * (len(names) > 20)
        refuse(path, f"holds {len(names)} arrays ({listed}): name one, as in {path.name}::name")
    return name.strip("/")


def suffix_of(path: Path) -> str:
    """Return the suffix in small letters, .nii.gz as a whole."""
    return ".nii.gz" if path.name.lower().endswith(".nii.gz") else path.suffix.lower()


def package(name: str, path: Path) -> Any:
    """Return a package; raise ValueError if it is missing."""
    require_extra("scientific", name, str(path))
    return import_module(name)


class ScanError(ValueError):
    """One line about a scan that cannot be read or written."""


def refuse(path: Path, what: str) -> NoReturn:
    """Raise ScanError."""
    raise ScanError(f"{path} {what}")


@contextmanager
def parsing(path: Path, done: str = "read") -> Iterator[None]:
    """Turn a parser's errors of every kind into one line that names the path; silence its warnings and logs."""
    with warnings.catch_warnings(), ExitStack() as restored:
        warnings.simplefilter("ignore")
        for logger in map(logging.getLogger, ("nibabel.global", "pydicom", "tifffile")):
            restored.callback(setattr, logger, "disabled", logger.disabled)
            logger.disabled = True
        try:
            yield
        except Exception as error:
            of_system = isinstance(error, OSError) and (error.filename or done == "written")
            if of_system or isinstance(error, ScanError | MissingPackageError):
                raise
            reason = " ".join(str(error).split())[:200] or type(error).__name__
            raise ScanError(f"{path} cannot be {done} ({reason}): it may be damaged; copy or save it again") from error


def unzipped(path: Path) -> bytearray:
    """Return the content of a gzip file; ValueError for a decompression bomb."""
    content, limit = bytearray(), max(UNPACKED_LIMIT, RATIO_LIMIT * path.stat().st_size)
    with gzip.open(path) as file:
        while block := file.read(1 << 24):
            content += block
            if len(content) > limit:
                refuse(path, f"grows beyond {limit:,} bytes: refused as a decompression bomb; if honest, unpack it")
    return content


def _require_sound(path: Path, shape: Sequence[int], dtype: np.dtype[Any], axes: str, held: int) -> None:
    if dtype.kind not in "biuf" or min(shape, default=0) < 1:
        refuse(path, f"holds an array of shape {list(shape)} and type {dtype}: save one of integers or floats")
    if len(set(axes)) < len(shape) or "?" in axes:
        refuse(path, f"holds an array of shape {list(shape)}, whose axes are unclear: save it with fewer axes")
    claimed = math.prod(shape) * dtype.itemsize
    if claimed > max(UNPACKED_LIMIT, RATIO_LIMIT * held):
        advice = "refused as a decompression bomb; if it is honest, save it uncompressed"
        refuse(path, f"would grow from {held:,} to {claimed:,} bytes: {advice}")
