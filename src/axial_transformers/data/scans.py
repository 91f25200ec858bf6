"""Scans and measurements in scientific formats: NIfTI, DICOM, TIFF, HDF5 and Zarr, by the extra `scientific`."""

import gzip
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axial_transformers.data.npy import mapped
from axial_transformers.data.parsing import ParsingError, parsing, say, saying_once
from axial_transformers.data.picture_files import PictureError, opened
from axial_transformers.data.splits import part_of_folder
from axial_transformers.storage import require_extra
from axial_transformers.storage.files import source_path, written_whole

WRITTEN = (".nii", ".nii.gz", ".tif", ".tiff", ".npy")
"""Suffixes of what `write_scan` writes."""
_AXES = {1: "L", 2: "HW", 3: "DHW", 4: "TDHW"}
_TIFF_AXES = {"X": "W", "Y": "H", "Z": "D", "T": "T", "C": "C", "S": "C"}
_AT_ONCE = 1 << 28
"""Bytes of a dataset that is read at once; a larger one is read where it is sliced."""
_ALIKE = (
    *("SeriesInstanceUID", "Rows", "Columns", "NumberOfFrames", "SamplesPerPixel", "PhotometricInterpretation"),
    *("BitsAllocated", "PixelRepresentation", "PixelSpacing", "RescaleSlope", "RescaleIntercept"),
)
"""Attributes of DICOM that the slices of a series share."""


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


def is_scan(path: str | Path) -> bool:
    """Return True for a file, a folder of DICOM or `file::dataset` that `read_scan` is for.

    Names decide, but a TIFF file is one if Pillow does not read all of it: pages, bands, or bits.
    """
    file, _ = parted(path)
    suffix = suffix_of(file)
    if suffix in (".tif", ".tiff"):
        with suppress(PictureError, OSError), opened(file):
            return False
        return file.is_file()
    return suffix in SUFFIXES or _is_dicom(file) or (file.is_dir() and _holds_dicom(file))


def read_scan(path: str | Path) -> Scan:
    """Return the scan in a file, in a folder with one DICOM series, or in `file::dataset` of HDF5 or Zarr.

    Raises:
        ValueError: one line for files that are damaged, hold no numbers, or are not one scan; and without the extra
            `scientific`.
        OSError: for files that cannot be opened.
    """
    file, name = parted(path)
    suffix = suffix_of(file)
    if suffix != ".zarr" and (source_path(file).is_dir() or _is_dicom(file)):
        suffix = ".dcm"
    file.stat()  # names a missing file
    with parsing(file), saying_once(file):
        if suffix in _READERS_OF_DATASETS:
            scan = _READERS_OF_DATASETS[suffix](file, name)
        elif suffix in _READERS:
            scan = _READERS[suffix](file)
        else:
            raise ParsingError(f"{file} is no scan: give {', '.join(SUFFIXES)}, or a folder of DICOM files")
    values, array = scan.values, f"{file} holds an array of shape {list(scan.values.shape)}, {scan.values.dtype}"
    if values.dtype.kind not in "biuf" or min(values.shape, default=0) < 1:
        raise ParsingError(f"{array}: give one of integers or floats, of no length 0")
    if len({*scan.axes} - {"?"}) < values.ndim:
        raise ParsingError(f"{array}, whose axes are unclear: save it with fewer axes")
    return scan


def parted(path: str | Path) -> tuple[Path, str]:
    """Return the file and the dataset of `file::dataset`; no dataset of other paths."""
    file, separator, name = str(path).rpartition("::")
    return (Path(file), name) if separator and suffix_of(Path(file)) in _READERS_OF_DATASETS else (Path(path), "")


def suffix_of(path: Path) -> str:
    """Return the suffix in small letters, .nii.gz as a whole."""
    return ".nii.gz" if path.name.lower().endswith(".nii.gz") else path.suffix.lower()


def _package(name: str, path: Path) -> Any:
    require_extra("scientific", name, str(path))
    return import_module(name)


def _read_nifti(path: Path) -> Scan:
    """Return stored values; axes of length 1 behind the second are dropped, vectors and RGB become channels."""
    nibabel = _package("nibabel", path)
    image = nibabel.load(path)
    values = mapped(lambda mode: nibabel.load(path, mmap=mode).dataobj.get_unscaled()).T
    channels = bool(values.dtype.names) or values.ndim == 5
    if values.dtype.names:
        values = values.view(np.uint8).reshape(*values.shape, -1)
    elif channels:
        values = np.moveaxis(values, 0, -1)
    while values.ndim > 2 + channels and len(values) == 1:
        values = values[0]
    axes = _AXES.get(values.ndim - channels, "?") + "C" * channels
    image.header.extensions.clear()
    return Scan(values, axes, float(image.dataobj.slope), float(image.dataobj.inter), suffix_of(path), image.header)


def _read_dicom(path: Path) -> Scan:
    """Return the slices of a series in the order of their positions, or a file; one slice has no depth."""
    pydicom, header = _package("pydicom", path), _package("nibabel", path).Nifti1Header()
    slices = _slices(path)
    tags = slices[0][1]
    if int(tags.get("NumberOfFrames") or 1) > 1:
        say("its frames are read in the order of the file, without what the file says of single frames")
    elif all(tags.get("ImagePositionPatient") and tags.get("ImageOrientationPatient") for _, tags in slices):
        slices, affine = _in_order(path, slices)
        header.set_sform(affine, 1)
        header.set_qform(affine, 1)
        header.set_xyzt_units("mm")
    elif len(slices) > 1:
        raise ParsingError(f"{path} holds slices without positions (ImagePositionPatient): give a file of frames")
    pixels = list[NDArray[Any]]()
    for file, _ in slices:
        with parsing(file):
            pixels.append(pydicom.pixels.pixel_array(pydicom.dcmread(file), raw=True))
    values = np.stack(pixels) if len(pixels) > 1 else pixels[0]
    channels = int(tags.get("SamplesPerPixel") or 1) > 1
    if channels and tags.PhotometricInterpretation.startswith("YBR_FULL"):
        say(f"its channels are {tags.PhotometricInterpretation}, not RGB, as they are stored")
    axes = _AXES.get(values.ndim - channels, "?") + "C" * channels
    scale, offset = float(tags.get("RescaleSlope") or 1), float(tags.get("RescaleIntercept") or 0)
    return Scan(values, axes, scale, offset, ".nii.gz", header)


def _slices(path: Path) -> list[tuple[Path, Any]]:
    """Return the files of a series, each with its attributes."""
    slices = list[tuple[Path, Any]]()
    for file in [path] if path.is_file() else sorted(filter(_is_dicom, path.rglob("*"))):
        with parsing(file):
            tags = import_module("pydicom").dcmread(file, stop_before_pixels=True)
            if tags.get("Rows"):
                slices.append((file, tags))
            elif file.name.upper() != "DICOMDIR":
                say(f"{file.name} holds no image, and is left out")
    if not slices:
        raise ParsingError(f"{path} holds no DICOM file with an image")
    first, wanted = slices[0]
    for file, tags in slices:
        if unlike := [name for name in _ALIKE if tags.get(name) != wanted.get(name)]:
            both = f"{first.relative_to(path)} and {file.relative_to(path)} differ in {unlike[0]}"
            raise ParsingError(f"{path} holds more than one series of slices ({both}): give a folder or file of one")
    return slices


def _in_order(path: Path, slices: Sequence[tuple[Path, Any]]) -> tuple[list[tuple[Path, Any]], NDArray[np.float64]]:
    """Return slices in the order of their positions, and their affine: voxels [W, H, D] to millimetres."""
    facing = np.array([tags.ImageOrientationPatient for _, tags in slices], np.float64)
    positions = np.array([tags.ImagePositionPatient for _, tags in slices], np.float64)
    if not np.allclose(facing, facing[0], atol=1e-3):
        raise ParsingError(f"{path} mixes slices of several orientations: give a folder or file of one")
    along, down = facing[0].reshape(2, 3)
    order = np.argsort(positions @ np.cross(along, down))
    positions, ordered = positions[order], [slices[i] for i in order]
    steps = np.diff(positions @ np.cross(along, down))
    usual = np.median([*steps] or [1.0])
    for before, after, step in zip(ordered, ordered[1:], steps):
        if step <= 0 or abs(step - usual) > 0.1 * usual:
            both = f"{before[0].name} and {after[0].name} are {step:g} apart, most {usual:g}"
            raise ParsingError(f"{path} lacks a slice, or has one twice: {both}")
    step = (positions[-1] - positions[0]) / len(steps) if len(steps) else np.cross(along, down)
    rows, columns = map(float, slices[0][1].get("PixelSpacing") or (1, 1))
    affine = np.eye(4)
    affine[:3] = np.stack([along * columns, down * rows, step, positions[0]], axis=1)
    return ordered, np.diag([-1.0, -1.0, 1.0, 1.0]) @ affine  # DICOM counts to the left and posterior


def _is_dicom(path: Path) -> bool:
    """Return True for .dcm, and for DICOM files without a suffix, or with numbers as one."""
    named = path.suffix.lower() == ".dcm"
    if path.name.startswith(".") or not (named or path.suffix[1:].isdigit() or not path.suffix) or not path.is_file():
        return False
    with path.open("rb") as file:
        return named or file.read(132)[128:] == b"DICM"


def _holds_dicom(folder: Path) -> bool:
    """Return True for a folder with DICOM files, in it or in its first sub-folder; not for one of splits."""
    _, folders, names = next(os.walk(folder), ("", [], []))
    if any(_is_dicom(folder / name) for name in names):
        return True
    inside = sorted(name for name in folders if not name.startswith("."))
    return bool(inside) and not any(map(part_of_folder, inside)) and _holds_dicom(folder / inside[0])


def _read_tiff(path: Path) -> Scan:
    """Return the only series of a file, mapped if it is contiguous."""
    tifffile = _package("tifffile", path)
    with tifffile.TiffFile(path) as file:
        if len(file.series) != 1:
            raise ParsingError(f"{path} holds {len(file.series)} arrays: save one array in one file")
        series = file.series[0]
        values = series.asarray() if series.dataoffset is None else None
    if values is None:
        values = mapped(lambda mode: tifffile.memmap(path, mode=mode))
    axes, free = "", [letter for letter in "DTC" if letter not in map(_TIFF_AXES.get, series.axes)]
    for code in reversed(series.axes):
        axes = (_TIFF_AXES.get(code) or (free.pop(0) if free else "?")) + axes
    return Scan(values, axes, suffix=".tif")


def _read_hdf5(path: Path, name: str) -> Scan:
    """Return the dataset of this name, or the only one; read where it is sliced if it is large."""
    h5py, datasets = _package("h5py", path), dict[str, Any]()
    if not h5py.is_hdf5(path):
        raise ParsingError(f"{path} is no HDF5, as NetCDF 4 and MATLAB 7.3 are, or is damaged: convert or replace it")
    file = h5py.File(path, "r")  # open as long as its dataset
    file.visititems(lambda each, item: datasets.update({each: item} if isinstance(item, h5py.Dataset) else {}))
    return _dataset(path, name, datasets)


def _read_zarr(path: Path, name: str) -> Scan:
    """Do the same for a folder of Zarr."""
    zarr = _package("zarr", path)
    root = zarr.open(path, mode="r")
    members = [("", root)] if isinstance(root, zarr.Array) else root.members(max_depth=None)
    return _dataset(path, name, {each: found for each, found in members if isinstance(found, zarr.Array)})


def _dataset(path: Path, name: str, datasets: Mapping[str, Any]) -> Scan:
    if not datasets:
        raise ParsingError(f"{path} holds no arrays")
    wanted = name.strip("/") if name or len(datasets) > 1 else next(iter(datasets))
    if wanted not in datasets:
        some = ", ".join(sorted(datasets)[:20])
        raise ParsingError(f"{path} holds {len(datasets)} arrays, such as {some}: name one, as in {path.name}::name")
    found = datasets[wanted]
    channels = found.ndim == 5 or (found.ndim in (3, 4) and found.shape[-1] <= 4)
    axes = _AXES.get(found.ndim - channels, "?") + "C" * channels
    return Scan(found[...] if found.size * found.dtype.itemsize <= _AT_ONCE else found, axes)


_READERS = {
    **dict.fromkeys((".nii", ".nii.gz"), _read_nifti),
    **dict.fromkeys((".tif", ".tiff"), _read_tiff),
    ".dcm": _read_dicom,
}
_READERS_OF_DATASETS = {
    **dict.fromkeys((".h5", ".hdf5", ".he5", ".nc", ".nc4", ".mat"), _read_hdf5),
    ".zarr": _read_zarr,
}
SUFFIXES = (*_READERS, *_READERS_OF_DATASETS)


def write_scan(path: Path, values: NDArray[Any], like: Scan) -> None:
    """Write values [*A] of any shape as NIfTI, TIFF or .npy, by the path's suffix; `like.suffix` is that of the scan.

    NIfTI keeps the affine and what values mean. The type is that of the scan if it holds all values.

    Raises:
        ValueError: one line for other suffixes, and for values that the format cannot hold. Nothing is left behind.
    """
    with np.errstate(all="ignore"):
        of_scan = np.asarray(values).astype(like.values.dtype.newbyteorder("="))
    values, suffix = of_scan if np.array_equal(of_scan, values) else np.asarray(values), suffix_of(path)
    axes = like.axes if values.ndim == len(like.axes) else ""
    with written_whole(path) as aside, parsing(path, "cannot be written", ""):
        if suffix in (".nii", ".nii.gz"):
            content = _nifti_image(path, values, axes, like).to_bytes()
            aside.write_bytes(gzip.compress(content, 6, mtime=0) if suffix == ".nii.gz" else content)
        elif suffix in (".tif", ".tiff"):
            codes = {"axes": axes.translate(str.maketrans("LWHD", "QXYZ"))} if axes else {}
            colour = axes.endswith("C") and values.shape[-1] > 2
            kind = {"photometric": "rgb", "planarconfig": "contig"} if colour else {"photometric": "minisblack"}
            _package("tifffile", path).imwrite(aside, values, metadata=codes, **kind)
        elif suffix == ".npy":
            np.save(aside, values, allow_pickle=False)
        else:
            raise ParsingError(f"{path} has no suffix of a scan that is written: give {', '.join(WRITTEN)}")


def _nifti_image(path: Path, values: NDArray[Any], axes: str, like: Scan) -> Any:
    nibabel = _package("nibabel", path)
    header = nibabel.Nifti1Header() if like.header is None else like.header.copy()
    if axes.endswith("C"):  # the fifth axis of NIfTI, vectors
        values = np.moveaxis(values, -1, 0)
        values = values.reshape(len(values), *[1] * (5 - values.ndim), *values.shape[1:])
    kind = nibabel.Nifti2Image if isinstance(header, nibabel.Nifti2Header) else nibabel.Nifti1Image
    header["vox_offset"] = 0  # extensions are not kept
    header.set_data_dtype(values.dtype)
    image = kind(values.T, None, header, dtype=values.dtype)
    image.header.set_slope_inter(like.scale, like.offset)
    return image


def header_of(content: bytes) -> Any:
    """Return the header of NIfTI in these bytes; ValueError for other bytes."""
    nibabel = _package("nibabel", Path("a scan"))
    kind = nibabel.Nifti2Header if len(content) == nibabel.Nifti2Header.sizeof_hdr else nibabel.Nifti1Header
    with parsing("the header of a scan", "is damaged", ""):
        return kind(content)
