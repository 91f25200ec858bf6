"""Scans and measurements in scientific formats, one table of them; by the extra `scientific`."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axial_transformers.data.dicom import holds_dicom, is_dicom, read_dicom
from axial_transformers.data.errors import ParsingError, parsing, say, saying_once
from axial_transformers.data.hdf5_and_zarr import read_hdf5, read_zarr
from axial_transformers.data.images import opened
from axial_transformers.data.npy import mapped
from axial_transformers.data.scan import Scan, package, usual_axes
from axial_transformers.storage.files import source_path, written_whole

__all__ = [
    "SUFFIXES",
    "WRITTEN",
    "Scan",
    "advice_on",
    "is_scan",
    "moved",
    "parted",
    "read_scan",
    "suffix_of",
    "write_scan",
]
WRITTEN = (".nii", ".nii.gz", ".tif", ".tiff", ".npy")
"""Suffixes of what `write_scan` writes."""
_TIFF_AXES = str.maketrans("XYZIQS", "WHDDDC")
_FEW = 16
"""Of as many numbers, and values, one occurs where few do."""
_MANY_CHANNELS = 5
"""From here on, an axis of channels may be one of slices."""


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
    return suffix in SUFFIXES or is_dicom(file) or (file.is_dir() and holds_dicom(file))


def read_scan(path: str | Path, axes: str | None = None) -> Scan:
    """Return the scan in a file, in a folder with one DICOM series, or in `file::dataset` of several arrays.

    Args:
        axes: letters of the axes, in place of those that the file states; or of the last axes, if they are the same.

    Raises:
        ValueError: one line for files that are damaged, hold no numbers, or are not one scan; for axes that the file
            does not tell and `axes` does not, and for another number of them; and without the extra `scientific`.
        OSError: for files that cannot be opened.
    """
    file, name = parted(path)
    suffix = suffix_of(file)
    if suffix != ".zarr" and (source_path(file).is_dir() or is_dicom(file)):
        suffix = ".dcm"
    file.stat()  # names a missing file
    if suffix not in _READERS:
        known = f"is no scan: give {', '.join(SUFFIXES)}, or a folder of DICOM files"
        raise ParsingError(advice_on(file) or f"{file} {known}")
    with parsing(file), saying_once(file):
        scan = _READERS[suffix](file, name) if name else _READERS[suffix](file)
    scan = replace(scan, axes=_axes_as_told(path, scan, axes))
    values = scan.values
    if values.dtype.kind not in "biuf" or min(values.shape, default=0) < 1 or len({*scan.axes}) < values.ndim:
        found = f"an array of shape {list(values.shape)}, {values.dtype}, with axes {scan.axes}"
        wanted = "integers or floats on 1 to 4 axes and channels, none of length 0"
        raise ParsingError(f"{file} holds {found}: give {wanted}, for example as .npy")
    return scan


def _axes_as_told(path: str | Path, scan: Scan, axes: str | None) -> str:
    """Return the axes of the file, or those that the user states."""
    stated, letters = scan.axes, (axes or "").removeprefix("N")
    shape = list(scan.values.shape)
    same_end = "C" not in letters and stated.replace("C", "").endswith(letters)
    if letters and not same_end:
        if len(letters) != len(shape):
            raise ParsingError(f"{path} has shape {shape} and axes {stated}, not those of data.axes={axes}")
        return letters
    if "?" in stated and len(stated) == len(shape):
        ways = {"?HW": "DHW or CHW", "T?HW": "TDHW or TCHW"}.get(stated, "TDHWC or TCDHW")
        raise ParsingError(f"{path} has shape {shape}: say what its axes are, as by data.axes={ways}")
    return stated


def advice_on(path: Path) -> str | None:
    """Return a line about a file of a format that is not read: with what to convert it; None for others."""
    suffix = suffix_of(path)
    return f"{path} is {_CONVERTED[suffix]}" if suffix in _CONVERTED else None


def parted(path: str | Path) -> tuple[Path, str]:
    """Return the file and the dataset of `file::dataset`; no dataset of other paths."""
    file, separator, name = str(path).rpartition("::")
    return (Path(file), name) if separator and suffix_of(Path(file)) in _OF_DATASETS else (Path(path), "")


def suffix_of(path: Path) -> str:
    """Return the suffix in small letters, .nii.gz as a whole."""
    return ".nii.gz" if path.name.lower().endswith(".nii.gz") else path.suffix.lower()


def _read_nifti(path: Path) -> Scan:
    """Return stored values; axes of length 1 behind the second are dropped."""
    nibabel = package("nibabel", path)
    image = nibabel.load(path)
    values = mapped(lambda mode: nibabel.load(path, mmap=mode).dataobj.get_unscaled()).T
    while values.ndim > 2 and len(values) == 1:
        values = values[0]
    if values.dtype.kind in "iu" and values.dtype.itemsize == 2:
        _say_if_few_occur(values)
    scale, offset = float(image.dataobj.slope), float(image.dataobj.inter)
    return Scan(values, usual_axes(values.ndim), scale, offset, suffix_of(path), image.header.binaryblock)


def _say_if_few_occur(values: NDArray[Any]) -> None:
    """Say that few numbers of 16 bits occur, as in a file that a tool has scaled to all of them."""
    occurs = np.zeros(1 << 16, np.bool_)
    for part in values:
        occurs[part.astype(np.uint16)] = True
    numbers = np.flatnonzero(occurs).astype(np.uint16).astype(values.dtype.newbyteorder("="))
    low, high = int(numbers.min()), int(numbers.max())
    if _FEW * len(numbers) < min(high - low, values.size):
        say(
            f"only {len(numbers):,} of the numbers from {low} to {high} occur, as where a tool has scaled them: a model"
            " of the original file, or of their ranks (numpy.unique), knows fewer values"
        )


def _read_tiff(path: Path) -> Scan:
    """Return the only series of a file, mapped if it is contiguous; an axis without a name is D, or T before one."""
    tifffile = package("tifffile", path)
    with tifffile.TiffFile(path) as file:
        if len(file.series) != 1:
            raise ParsingError(f"{path} holds {len(file.series)} arrays: save one array in one file")
        series = file.series[0]
        packed = series.dataoffset is None
        values = series.asarray() if packed else mapped(lambda mode: tifffile.memmap(path, mode=mode))
        axes = series.axes
        if (file.is_ome or file.is_imagej) and "C" in axes and series.shape[axes.index("C")] >= _MANY_CHANNELS:
            axes = axes.replace("C", "?")  # so tifffile calls slices that it writes without names
    return Scan(values, axes.replace("QQ", "TQ").translate(_TIFF_AXES), suffix=".tif")


_OF_DATASETS = (".h5", ".hdf5", ".he5", ".nc", ".nc4", ".mat", ".zarr")
_READERS: dict[str, Callable[..., Scan]] = {
    **dict.fromkeys((".nii", ".nii.gz"), _read_nifti),
    **dict.fromkeys((".tif", ".tiff"), _read_tiff),
    ".dcm": read_dicom,
    **dict.fromkeys(_OF_DATASETS, read_hdf5),
    ".zarr": read_zarr,
}
SUFFIXES = (*_READERS,)
_CONVERTED: dict[str, str] = {}


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
            tifffile = package("tifffile", path)
            tifffile.imwrite(aside, values, photometric="minisblack", planarconfig=planes, metadata=codes)
        elif suffix == ".npy":
            np.save(aside, values, allow_pickle=False)
        else:
            raise ParsingError(f"{path} has no suffix of a scan that is written: give {', '.join(WRITTEN)}")


def moved(scan: Scan, corner: Sequence[int]) -> Scan:
    """Return a scan whose first value lies where that of this `corner` lay, if it has a geometry.

    Args:
        corner: an index for each axis without channels, the slowest first.
    """
    if not scan.header:
        return scan
    header = _header_of(scan)
    step = np.array([*corner[::-1], 0, 0, 0][:3])
    for get, set_affine in ((header.get_sform, header.set_sform), (header.get_qform, header.set_qform)):
        affine, code = get(coded=True)
        if code:
            affine[:3, 3] += affine[:3, :3] @ step
            set_affine(affine, code)
    return replace(scan, header=bytes(header.binaryblock))


def _header_of(scan: Scan) -> Any:
    nibabel = import_module("nibabel")
    second = len(scan.header) == nibabel.Nifti2Header.sizeof_hdr
    return (nibabel.Nifti2Header if second else nibabel.Nifti1Header)(scan.header or None)


def _nifti_image(path: Path, values: NDArray[Any], like: Scan) -> Any:
    nibabel, header = package("nibabel", path), _header_of(like)
    kind = nibabel.Nifti2Image if isinstance(header, nibabel.Nifti2Header) else nibabel.Nifti1Image
    header["vox_offset"] = 0  # extensions are not kept
    header.set_data_dtype(values.dtype)
    image = kind(values.T, None, header, dtype=values.dtype)
    image.header.set_slope_inter(like.scale, like.offset)
    return image
