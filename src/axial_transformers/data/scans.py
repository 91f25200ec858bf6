"""Scans and measurements in scientific formats: NIfTI, DICOM, TIFF, HDF5 and Zarr, by the extra `scientific`."""

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axial_transformers.data.errors import ParsingError, parsing, say, saying_once
from axial_transformers.data.images import opened
from axial_transformers.data.npy import mapped
from axial_transformers.data.splits import part_of_folder
from axial_transformers.storage import require_extra
from axial_transformers.storage.files import source_path, written_whole

WRITTEN = (".nii", ".nii.gz", ".tif", ".tiff", ".npy")
"""Suffixes of what `write_scan` writes."""
_AXES = {1: "L", 2: "HW", 3: "DHW", 4: "TDHW"}
_TIFF_AXES = str.maketrans("XYZIQS", "WHDDDC")
_AT_ONCE = 1 << 28
"""Bytes of a dataset that is read at once; a larger one is read where it is sliced."""
_ALIKE = (
    *("SeriesInstanceUID", "Rows", "Columns", "NumberOfFrames", "SamplesPerPixel", "PhotometricInterpretation"),
    *("BitsAllocated", "PixelRepresentation", "PixelSpacing", "RescaleSlope", "RescaleIntercept"),
)
"""Attributes of DICOM that the slices of a series share."""
_Slices = list[tuple[Any, NDArray[Any]]]
"""Attributes and pixels of files of DICOM."""


@dataclass(frozen=True, eq=False)
class Scan:
    """An array of a file, with what its values and axes mean."""

    values: NDArray[Any]
    """Integers or floats as stored, slowest axis first; mapped, or read where they are sliced, if the format allows."""
    axes: str
    """One letter of T, D, H, W, L, C for each axis, or another one that TIFF has for it."""
    scale: float = 1.0
    offset: float = 0.0
    """A stored value v means offset + scale * v in the file's unit."""
    suffix: str = ".npy"
    """The suffix of files that `write_scan` makes like this one: .nii, .nii.gz, .tif or .npy."""
    header: bytes = field(default=b"", repr=False)
    """The geometry of NIfTI and DICOM, as a NIfTI header without extensions."""


def is_scan(path: str | Path) -> bool:
    """Return True for a file, a folder of DICOM or `file::dataset` that `read_scan` is for.

    Names decide, but a TIFF file is one if Pillow does not read all of it: pages, bands, or bits.
    """
    file, _ = parted(path)
    suffix = suffix_of(file)
    if suffix in (".tif", ".tiff"):
        with suppress(ParsingError, OSError), opened(file):
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
    if suffix not in _READERS:
        raise ParsingError(f"{file} is no scan: give {', '.join(SUFFIXES)}, or a folder of DICOM files")
    with parsing(file), saying_once(file):
        scan = _READERS[suffix](file, name) if name else _READERS[suffix](file)
    values = scan.values
    if values.dtype.kind not in "biuf" or min(values.shape, default=0) < 1 or len({*scan.axes}) < values.ndim:
        found = f"an array of shape {list(values.shape)}, {values.dtype}, with axes {scan.axes}"
        wanted = "integers or floats on 1 to 4 axes and channels, none of length 0"
        raise ParsingError(f"{file} holds {found}: give {wanted}, for example as .npy")
    return scan


def parted(path: str | Path) -> tuple[Path, str]:
    """Return the file and the dataset of `file::dataset`; no dataset of other paths."""
    file, separator, name = str(path).rpartition("::")
    return (Path(file), name) if separator and suffix_of(Path(file)) in _OF_DATASETS else (Path(path), "")


def suffix_of(path: Path) -> str:
    """Return the suffix in small letters, .nii.gz as a whole."""
    return ".nii.gz" if path.name.lower().endswith(".nii.gz") else path.suffix.lower()


def _package(name: str, path: Path) -> Any:
    require_extra("scientific", name, str(path))
    return import_module(name)


def _usual_axes(count: int, channels: bool) -> str:
    """Return the letters of so many axes, the last of which may be channels."""
    return _AXES.get(count - channels, "?") + "C" * channels


def _read_nifti(path: Path) -> Scan:
    """Return stored values; axes of length 1 behind the second are dropped."""
    nibabel = _package("nibabel", path)
    image = nibabel.load(path)
    values = mapped(lambda mode: nibabel.load(path, mmap=mode).dataobj.get_unscaled()).T
    while values.ndim > 2 and len(values) == 1:
        values = values[0]
    scale, offset = float(image.dataobj.slope), float(image.dataobj.inter)
    return Scan(values, _usual_axes(values.ndim, False), scale, offset, suffix_of(path), image.header.binaryblock)


def _read_dicom(path: Path) -> Scan:
    """Return the slices of a series in the order of their positions, or a file; one slice has no depth."""
    slices = _slices(path)
    tags, pixels = slices[0]
    header = _package("nibabel", path).Nifti1Header()
    placed = all(each.get("ImagePositionPatient") and each.get("ImageOrientationPatient") for each, _ in slices)
    if placed and int(tags.get("NumberOfFrames") or 1) == 1:
        slices, affine = _in_order(path, slices)
        header.set_sform(affine, 1)
        header.set_qform(affine, 1)
        header.set_xyzt_units("mm")
    elif len(slices) > 1:
        raise ParsingError(f"{path} holds slices without positions (ImagePositionPatient): give a file of frames")
    values = np.stack([each for _, each in slices]) if len(slices) > 1 else pixels
    scale, offset = float(tags.get("RescaleSlope") or 1), float(tags.get("RescaleIntercept") or 0)
    colours = int(tags.get("SamplesPerPixel") or 1) > 1
    if not colours:
        return Scan(values, _usual_axes(values.ndim, False), scale, offset, ".nii.gz", header.binaryblock)
    if tags.PhotometricInterpretation.startswith("YBR_FULL"):
        say(f"its channels are {tags.PhotometricInterpretation}, not RGB, as they are stored")
    return Scan(values, _usual_axes(values.ndim, True), scale, offset)


def _slices(path: Path) -> _Slices:
    """Return the files of a series, in the order of their names."""
    pydicom, slices = _package("pydicom", path), _Slices()
    for file in [path] if path.is_file() else sorted(filter(_is_dicom, path.rglob("*"))):
        with parsing(file):
            tags = pydicom.dcmread(file)
            if tags.get("Rows"):
                slices.append((tags, pydicom.pixels.pixel_array(tags, raw=True)))
                tags.pop("PixelData", None)  # frees memory
            else:
                say(f"{file.name} holds no image, and is left out")
    if not slices:
        raise ParsingError(f"{path} holds no DICOM file with an image")
    first, _ = slices[0]
    for (tags, _), name in product(slices, _ALIKE):
        if tags.get(name) != first.get(name):
            both = " and ".join(str(Path(each.filename).relative_to(path)) for each in (first, tags))
            unlike = f"more than one series of slices ({both} differ in {name})"
            raise ParsingError(f"{path} holds {unlike}: give a folder or file of one")
    return slices


def _in_order(path: Path, slices: _Slices) -> tuple[_Slices, NDArray[np.float64]]:
    """Return slices in the order of their positions, and their affine: voxels [W, H, D] to millimetres."""
    facing = np.array([tags.ImageOrientationPatient for tags, _ in slices], np.float64)
    if not np.allclose(facing, facing[0], atol=1e-3):
        raise ParsingError(f"{path} mixes slices of several orientations: give a folder or file of one")
    along, down = facing[0].reshape(2, 3)
    normal = np.cross(along, down)
    ordered = sorted(slices, key=lambda each: np.dot(each[0].ImagePositionPatient, normal))
    positions = np.array([tags.ImagePositionPatient for tags, _ in ordered], np.float64)
    step = (positions[-1] - positions[0]) / (len(ordered) - 1) if len(ordered) > 1 else normal
    uneven = np.abs((positions - positions[0] - np.outer(np.arange(len(ordered)), step)) @ normal)
    if not uneven.max() < 0.1 * np.linalg.norm(step):
        near = Path(ordered[uneven.argmax()][0].filename).name
        raise ParsingError(f"{path} lacks a slice near {near}, or has one twice: give a folder of one whole series")
    rows, columns = map(float, slices[0][0].get("PixelSpacing") or (1, 1))
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
    """Return the only series of a file, mapped if it is contiguous; an axis without a name is D, or T before one."""
    tifffile = _package("tifffile", path)
    with tifffile.TiffFile(path) as file:
        if len(file.series) != 1:
            raise ParsingError(f"{path} holds {len(file.series)} arrays: save one array in one file")
        series = file.series[0]
        packed = series.dataoffset is None
        values = series.asarray() if packed else mapped(lambda mode: tifffile.memmap(path, mode=mode))
    return Scan(values, series.axes.replace("QQ", "TQ").translate(_TIFF_AXES), suffix=".tif")


def _read_hdf5(path: Path, name: str = "") -> Scan:
    """Return the dataset of this name, or the only one."""
    h5py, names = _package("h5py", path), list[str]()
    if not h5py.is_hdf5(path):
        raise ParsingError(f"{path} is no HDF5, as NetCDF 4 and MATLAB 7.3 are, or is damaged: convert or replace it")
    file = h5py.File(path, "r")  # open as long as its dataset
    file.visit(names.append)
    return _dataset(path, name, {each: file[each] for each in names if isinstance(file[each], h5py.Dataset)})


def _read_zarr(path: Path, name: str = "") -> Scan:
    """Do the same for a folder of Zarr."""
    zarr = _package("zarr", path)
    root = zarr.open(path, mode="r")
    members = [("", root)] if isinstance(root, zarr.Array) else root.members(max_depth=None)
    return _dataset(path, name, {each: found for each, found in members if isinstance(found, zarr.Array)})


def _dataset(path: Path, name: str, datasets: Mapping[str, Any]) -> Scan:
    names = [name.strip("/")] if name else [*datasets]
    if len(names) != 1 or names[0] not in datasets:
        some = ", ".join(sorted(datasets)[:20]) or "none"
        raise ParsingError(f"{path} holds {len(datasets)} arrays ({some}): name one, as in {path.name}::name")
    found = datasets[names[0]]
    values = found if found.nbytes > _AT_ONCE else found[...]
    channels = values.ndim == 5 or (values.ndim in (3, 4) and values.shape[-1] <= 4)
    return Scan(values, _usual_axes(values.ndim, channels))


_OF_DATASETS = (".h5", ".hdf5", ".he5", ".nc", ".nc4", ".mat", ".zarr")
_READERS: dict[str, Callable[..., Scan]] = {
    **dict.fromkeys((".nii", ".nii.gz"), _read_nifti),
    **dict.fromkeys((".tif", ".tiff"), _read_tiff),
    ".dcm": _read_dicom,
    **dict.fromkeys(_OF_DATASETS, _read_hdf5),
    ".zarr": _read_zarr,
}
SUFFIXES = (*_READERS,)


def write_scan(path: Path, values: NDArray[Any], like: Scan) -> None:
    """Write values [*A] of any shape as NIfTI, TIFF or .npy, by the path's suffix; `like.suffix` is that of the scan.

    NIfTI keeps the affine and what values mean; it holds no channels.

    Raises:
        ValueError: one line for other suffixes, and for values that the format cannot hold. Nothing is left behind.
    """
    suffix, axes = suffix_of(path), like.axes if values.ndim == len(like.axes) else ""
    with written_whole(path) as aside, parsing(path, "cannot be written", ""):
        if suffix in (".nii", ".nii.gz"):
            if "C" in axes:
                raise ParsingError(f"{path}: channels are not written as NIfTI: give a name in .npy")
            _nifti_image(path, values, like).to_filename(aside)
        elif suffix in (".tif", ".tiff"):
            codes = {"axes": axes.translate(str.maketrans("LWHD", "QXYZ"))} if axes else {}
            planes = "contig" if axes.endswith("C") and values.shape[-1] > 1 else None
            tifffile = _package("tifffile", path)
            tifffile.imwrite(aside, values, photometric="minisblack", planarconfig=planes, metadata=codes)
        elif suffix == ".npy":
            np.save(aside, values, allow_pickle=False)
        else:
            raise ParsingError(f"{path} has no suffix of a scan that is written: give {', '.join(WRITTEN)}")


def _nifti_image(path: Path, values: NDArray[Any], like: Scan) -> Any:
    nibabel = _package("nibabel", path)
    second = len(like.header) == nibabel.Nifti2Header.sizeof_hdr
    kind = nibabel.Nifti2Image if second else nibabel.Nifti1Image
    header = kind.header_class(like.header or None)
    header["vox_offset"] = 0  # extensions are not kept
    header.set_data_dtype(values.dtype)
    image = kind(values.T, None, header, dtype=values.dtype)
    image.header.set_slope_inter(like.scale, like.offset)
    return image
