"""Scans and measurements in scientific formats: NIfTI, DICOM, TIFF, HDF5 and Zarr, by the extra `scientific`."""

import gzip
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axial_transformers.data import scan_files
from axial_transformers.data.parsing import parsing, saying_once
from axial_transformers.data.picture_files import is_picture
from axial_transformers.data.scan_files import Scan, package, refuse, suffix_of
from axial_transformers.storage.files import source_path, written_whole

__all__ = ["SUFFIXES", "WRITTEN", "Scan", "is_scan", "parted", "read_scan", "write_scan"]

_READERS = {
    **dict.fromkeys((".nii", ".nii.gz"), scan_files.read_nifti),
    **dict.fromkeys((".tif", ".tiff"), scan_files.read_tiff),
    ".dcm": scan_files.read_dicom,
}
_READERS_OF_DATASETS = {
    **dict.fromkeys((".h5", ".hdf5", ".he5", ".nc", ".nc4", ".mat"), scan_files.read_hdf5),
    ".zarr": scan_files.read_zarr,
}
SUFFIXES = (*_READERS, *_READERS_OF_DATASETS)
WRITTEN = (".nii", ".nii.gz", ".tif", ".tiff", ".npy")
"""Suffixes of what `write_scan` writes."""


def is_scan(path: str | Path) -> bool:
    """Return True for a file, a folder of DICOM or `file::dataset` that `read_scan` is for.

    Names decide, but a TIFF file is one if Pillow does not read all of it: pages, bands, or bits.
    """
    file, _ = parted(path)
    suffix = suffix_of(file)
    if suffix in (".tif", ".tiff"):
        return file.is_file() and not is_picture(file)
    return suffix in SUFFIXES or scan_files.is_dicom(file) or (file.is_dir() and scan_files.holds_dicom(file))


def read_scan(path: str | Path) -> Scan:
    """Return the scan in a file, in a folder with one DICOM series, or in `file::dataset` of HDF5 or Zarr.

    Raises:
        ValueError: one line for files that are damaged, hold no numbers, or are not one scan; and without the extra
            `scientific`.
        OSError: for files that cannot be opened.
    """
    file, name = parted(path)
    suffix = suffix_of(file)
    if source_path(file).is_dir() and suffix != ".zarr":
        suffix = ".dcm"
    file.stat()  # names a missing file
    with parsing(file), saying_once(file):
        if suffix in _READERS_OF_DATASETS:
            scan = _READERS_OF_DATASETS[suffix](file, name)
        elif suffix in _READERS or scan_files.is_dicom(file):
            scan = _READERS.get(suffix, scan_files.read_dicom)(file)
        else:
            refuse(file, f"is no scan: give {', '.join(SUFFIXES)}, or a folder of DICOM files")
        values, array = scan.values, f"holds an array of shape {list(scan.values.shape)} and type {scan.values.dtype}"
        if values.dtype.kind not in "biuf" or min(values.shape, default=0) < 1:
            refuse(file, f"{array}: give one of integers or floats, of no length 0")
        if len({*scan.axes} - {"?"}) < values.ndim:
            refuse(file, f"{array}, whose axes are unclear: save it with fewer axes")
    return scan


def write_scan(path: Path, values: NDArray[Any], like: Scan) -> None:
    """Write values [*A] of any shape as NIfTI, TIFF or .npy, by the path's suffix; `like.suffix` is that of the scan.

    NIfTI keeps the affine and what values mean. The type is that of the scan, or the smallest that holds all values.

    Raises:
        ValueError: one line for other suffixes, and for values that the format cannot hold. Nothing is left behind.
    """
    values, suffix = _typed(np.asarray(values), like.values.dtype), suffix_of(path)
    with written_whole(path) as aside, parsing(path, "cannot be written", ""):
        if suffix in (".nii", ".nii.gz"):
            content = _nifti_image(path, values, like).to_bytes()
            aside.write_bytes(gzip.compress(content, 6, mtime=0) if suffix == ".nii.gz" else content)
        elif suffix in (".tif", ".tiff"):
            codes = like.axes.translate(str.maketrans("LWHD", "QXYZ")) if values.ndim == len(like.axes) else ""
            colour = codes.endswith("C") and values.shape[-1] in (3, 4)
            axes = {"axes": codes[:-1] + "S" if colour else codes} if codes else {}
            photometric = "rgb" if colour else "minisblack"
            package("tifffile", path).imwrite(aside, values, photometric=photometric, metadata=axes)
        elif suffix == ".npy":
            np.save(aside, values, allow_pickle=False)
        else:
            refuse(path, f"has no suffix of a scan that is written: give {', '.join(WRITTEN)}")


def _nifti_image(path: Path, values: NDArray[Any], like: Scan) -> Any:
    nibabel = package("nibabel", path)
    header = nibabel.Nifti1Header() if like.header is None else like.header.copy()
    if like.axes[-1] == "C" and values.ndim == len(like.axes):
        colours = header.get_data_dtype()
        if colours.names and values.dtype == np.uint8 and values.shape[-1] == len(colours.names):
            values = np.ascontiguousarray(values).view(colours)[..., 0]
        else:
            values = np.moveaxis(values, -1, 0)  # to the fifth axis of NIfTI, vectors
            values = values.reshape(len(values), *[1] * (5 - values.ndim), *values.shape[1:])
    kind = nibabel.Nifti2Image if isinstance(header, nibabel.Nifti2Header) else nibabel.Nifti1Image
    header["vox_offset"] = 0  # extensions are not kept
    header.set_data_dtype(values.dtype)
    image = kind(values.T, None, header, dtype=values.dtype)
    image.header.set_slope_inter(like.scale, like.offset)
    return image


def _typed(values: NDArray[Any], wanted: np.dtype[Any]) -> NDArray[Any]:
    """Return values as the wanted type if all fit, integers otherwise as the smallest type that holds them."""
    with np.errstate(all="ignore"):
        found = values.astype(wanted.newbyteorder("="))
    if np.array_equal(found, values):
        return found
    if values.dtype.kind not in "iu":
        return values
    lowest, highest = int(values.min()), int(values.max())
    return values.astype(np.min_scalar_type(highest if lowest >= 0 else min(lowest, -1 - highest)))


def parted(path: str | Path) -> tuple[Path, str]:
    """Return the file and the dataset of `file::dataset`; no dataset of other paths."""
    file, separator, name = str(path).rpartition("::")
    return (Path(file), name) if separator and suffix_of(Path(file)) in _READERS_OF_DATASETS else (Path(path), "")


def header_of(content: bytes) -> Any:
    """Return the header of NIfTI in these bytes; ValueError for other bytes."""
    nibabel = package("nibabel", Path("a scan"))
    kind = nibabel.Nifti2Header if len(content) == nibabel.Nifti2Header.sizeof_hdr else nibabel.Nifti1Header
    try:
        return kind(content)
    except Exception as error:  # it raises errors of every kind
        raise ValueError(f"the header of a scan is damaged ({error})") from error
