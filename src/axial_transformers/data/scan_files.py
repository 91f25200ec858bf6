"""Readers of NIfTI, DICOM, TIFF, HDF5 and Zarr, each by a library of the extra `scientific` (see `scans`)."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from axial_transformers.data.npy import mapped
from axial_transformers.data.parsing import ParsingError, parsing, say
from axial_transformers.data.splits import part_of_folder
from axial_transformers.storage import require_extra

_AXES = {1: "L", 2: "HW", 3: "DHW", 4: "TDHW"}
_TIFF_AXES = {"X": "W", "Y": "H", "Z": "D", "T": "T", "C": "C", "S": "C"}
_AT_ONCE = 1 << 28
"""Bytes of a dataset that is read at once; a larger one is read where it is sliced."""
_Slice = tuple[Path, int, dict[str, Any]]
_ALIKE = (
    *("Rows", "Columns", "SamplesPerPixel", "BitsAllocated", "PixelRepresentation", "PhotometricInterpretation"),
    *("ImageOrientationPatient", "PixelSpacing", "RescaleSlope", "RescaleIntercept"),
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


def read_nifti(path: Path) -> Scan:
    """Return stored values; axes of length 1 behind the second are dropped, vectors become channels."""
    nibabel = package("nibabel", path)
    image = nibabel.load(path)
    values = mapped(lambda mode: nibabel.load(path, mmap=mode).dataobj.get_unscaled()).T
    while values.ndim > 2 and len(values) == 1:
        values = values[0]
    axes = _AXES.get(values.ndim, "?")
    if values.dtype.names:  # RGB
        values = values.view(np.uint8).reshape(*values.shape, len(values.dtype.names))
        axes += "C"
    elif values.ndim == 5:
        values, axes = np.moveaxis(values, 0, -1), "TDHWC"
        while len(values) == 1 and values.ndim > 3:
            values, axes = values[0], axes[1:]
    image.header.extensions.clear()
    scale, offset = float(image.dataobj.slope), float(image.dataobj.inter)
    return Scan(values, axes, scale, offset, suffix_of(path), image.header)


def read_dicom(path: Path) -> Scan:
    """Return the slices of a series, sorted along their normal; one slice has no depth."""
    pydicom, nibabel = package("pydicom", path), package("nibabel", path)
    files = [path] if path.is_file() else sorted(filter(is_dicom, path.rglob("*")))
    slices = [each for file in files for each in _slices(file)]
    if not slices:
        refuse(path, "holds no DICOM file with an image")
    _require_one_series(path, slices)
    tags = slices[0][2]
    order, positions = _in_order(path, slices)
    whole, values = None, np.empty(0)
    for target, (file, frame, _) in zip(np.argsort(order), slices):
        with parsing(file):
            whole = pydicom.dcmread(file) if frame == 0 else whole
            pixels = pydicom.pixels.pixel_array(whole, index=frame, raw=True)
            values = values if values.size else np.empty((len(slices), *pixels.shape), pixels.dtype)
            values[target] = pixels
    colours = values.ndim > 3
    if colours and str(tags["PhotometricInterpretation"]).startswith("YBR_FULL"):
        say(f"its channels are {tags['PhotometricInterpretation']}, not RGB, as they are stored")
    header = nibabel.Nifti1Header()
    if positions is not None:
        header.set_sform(_affine(positions, tags["ImageOrientationPatient"], tags["PixelSpacing"] or (1, 1)), 1)
        header.set_qform(header.get_sform(), 1)
        header.set_xyzt_units("mm")
    if colours:
        header.set_data_dtype("RGB")
    times = positions is None and len({file for file, *_ in slices}) == 1
    axes = ("T" if times else "D") + ("HWC" if colours else "HW")
    values, axes = (values[0], axes[1:]) if len(slices) == 1 else (values, axes)
    scale, offset = float(tags["RescaleSlope"] or 1), float(tags["RescaleIntercept"] or 0)
    return Scan(values, axes, scale, offset, ".nii.gz", header)


def _slices(file: Path) -> list[_Slice]:
    """Return each frame of a file, with its attributes: of the file, or of the functional groups of the frame."""
    with parsing(file):
        found = import_module("pydicom").dcmread(file, stop_before_pixels=True)
        if not found.get("Rows"):
            if file.name.upper() != "DICOMDIR":
                say(f"{file.name} holds no image, and is left out")
            return []
        names = *_ALIKE, "SeriesInstanceUID", "ImagePositionPatient", "InstanceNumber"
        tags = {name: found.get(name) for name in names}
        shared, slices = found.get("SharedFunctionalGroupsSequence") or [], list[_Slice]()
        for frame in range(int(found.get("NumberOfFrames") or 1)):
            own = (found.get("PerFrameFunctionalGroupsSequence") or [])[frame : frame + 1]
            items = [each.value[0] for group in (*shared, *own) for each in group if each.VR == "SQ" and each.value]
            of_groups = {name: item.get(name) for item in items for name in tags if name in item}
            slices.append((file, frame, {**tags, **of_groups}))
    return slices


def _require_one_series(path: Path, slices: Sequence[_Slice]) -> None:
    series = dict[str, list[Path]]()
    for file, _, tags in slices:
        series.setdefault(str(tags["SeriesInstanceUID"]), []).append(file)
    if len(series) > 1:
        listed = _listed([f"{files[0]} and {len(files) - 1} more" for files in series.values()])
        refuse(path, f"holds {len(series)} series of slices ({listed}): give a folder or file of one series")
    for file, _, tags in slices:
        for name in _ALIKE:
            value, first = tags[name], slices[0][2][name]
            close = name == "ImageOrientationPatient" and value and first and np.allclose(value, first, atol=1e-3)
            if value != first and not close:
                both = f"{first} ({slices[0][0].name}) and {value} ({file.name})"
                refuse(path, f"mixes slices of {name} {both}: give a folder with one series")


def _in_order(path: Path, slices: Sequence[_Slice]) -> tuple[NDArray[np.intp], NDArray[np.float64] | None]:
    """Return the order of slices along their normal, and their positions [n, 3] so sorted, or None without."""
    facing, found = slices[0][2]["ImageOrientationPatient"], [tags["ImagePositionPatient"] for *_, tags in slices]
    positions = np.array(found, np.float64) if facing and all(found) else None
    if positions is not None:
        along = positions @ np.cross(*np.array(facing, np.float64).reshape(2, 3))
    else:
        along = np.array([(tags["InstanceNumber"] or 0) + frame for _, frame, tags in slices], np.float64)
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
    """Return True for .dcm, and for DICOM files without a suffix, or with numbers as one."""
    named = path.suffix.lower() == ".dcm"
    if path.name.startswith(".") or not (named or path.suffix[1:].isdigit() or not path.suffix) or not path.is_file():
        return False
    with path.open("rb") as file:
        return named or file.read(132)[128:] == b"DICM"


def holds_dicom(folder: Path, below: bool = False) -> bool:
    """Return True for a folder of DICOM files, and for one with slices of a series in its first sub-folder.

    Sub-folders that are splits, or hold images of a series each, are read on their own.
    """
    _, folders, names = next(os.walk(folder), ("", [], []))
    found = [*islice(filter(is_dicom, (folder / name for name in sorted(names))), 2)]
    if found:
        return not below or (len(found) > 1 and _series_of(found[0]) == _series_of(found[1]))
    inside = sorted(name for name in folders if not name.startswith("."))
    return bool(inside) and not any(map(part_of_folder, inside)) and holds_dicom(folder / inside[0], below=True)


def _series_of(file: Path) -> Any:
    with parsing(file):
        return package("pydicom", file).dcmread(file, specific_tags=["SeriesInstanceUID"]).get("SeriesInstanceUID")


def read_tiff(path: Path) -> Scan:
    """Return the only series of a file, mapped if it is contiguous."""
    with package("tifffile", path).TiffFile(path) as file:
        if len(file.series) != 1:
            refuse(path, f"holds {len(file.series)} arrays: save one array in one file")
        series, start = file.series[0], file.series[0].dataoffset
        axes, free = "", [letter for letter in "DTC" if letter not in map(_TIFF_AXES.get, series.axes)]
        for code in reversed(series.axes):
            axes = (_TIFF_AXES.get(code) or (free.pop(0) if free else "?")) + axes
        if start is None:
            return Scan(series.asarray(), axes, suffix=".tif")
        dtype, shape = series.dtype.newbyteorder(file.byteorder), series.shape
    return Scan(mapped(lambda mode: np.memmap(path, dtype, mode, start, shape)), axes, suffix=".tif")


def read_hdf5(path: Path, name: str) -> Scan:
    """Return the dataset of this name, or the only one; read where it is sliced if it is large."""
    h5py, names = package("h5py", path), list[str]()
    if not h5py.is_hdf5(path):
        refuse(path, "is no HDF5 file, as NetCDF 4 and MATLAB 7.3 are, or is damaged: convert or replace it")
    file = h5py.File(path, "r")  # open as long as its dataset
    file.visititems(lambda each, item: names.append(each) if isinstance(item, h5py.Dataset) else None)
    return _of_dataset(file[_chosen(path, name, names)])


def read_zarr(path: Path, name: str) -> Scan:
    """Do the same for a folder of Zarr."""
    zarr = package("zarr", path)
    root = zarr.open(path, mode="r")
    members = [("", root)] if isinstance(root, zarr.Array) else root.members(max_depth=None)
    arrays = {each: found for each, found in members if isinstance(found, zarr.Array)}
    return _of_dataset(arrays[_chosen(path, name, sorted(arrays))])


def _of_dataset(found: Any) -> Scan:
    last = found.ndim == 5 or (found.ndim in (3, 4) and found.shape[-1] <= 4)
    axes = _AXES.get(found.ndim - last, "?") + "C" * last
    return Scan(found[...] if found.size * found.dtype.itemsize <= _AT_ONCE else found, axes)


def _chosen(path: Path, name: str, names: Sequence[str]) -> str:
    if not names:
        refuse(path, "holds no arrays")
    if not name and len(names) == 1:
        return names[0]
    if name.strip("/") not in names:
        refuse(path, f"holds {len(names)} arrays ({_listed(names)}): name one, as in {path.name}::name")
    return name.strip("/")


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:20]) + ", ..." * (len(names) > 20)


def suffix_of(path: Path) -> str:
    """Return the suffix in small letters, .nii.gz as a whole."""
    return ".nii.gz" if path.name.lower().endswith(".nii.gz") else path.suffix.lower()


def package(name: str, path: Path) -> Any:
    """Return a package; raise ValueError if it is missing."""
    require_extra("scientific", name, str(path))
    return import_module(name)


def refuse(path: Path, what: str) -> NoReturn:
    """Raise ParsingError."""
    raise ParsingError(f"{path} {what}")
