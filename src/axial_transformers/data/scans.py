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
from axial_transformers.data.hdf5_and_zarr import SUFFIX, chosen_array, read_hdf5, read_zarr, write_hdf5
from axial_transformers.data.images import opened
from axial_transformers.data.npy import mapped
from axial_transformers.data.scan import Scan as Scan, make_header, package, usual_axes
from axial_transformers.storage.files import source_path, written_whole

WRITTEN = (".nii", ".nii.gz", ".tif", ".tiff", SUFFIX, ".npy")
"""Suffixes of what `write_scan` writes."""
_TIFF_AXES = str.maketrans("XYZIQS", "WHDDDC")
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
    return suffix in SUFFIXES or is_dicom(file) or holds_dicom(file)


def read_scan(path: str | Path, axes: str | None = None) -> Scan:
    """Return the scan in a file, in a folder with one DICOM series, or in `file::dataset` of several arrays.

    Args:
        axes: letters of the axes, in place of those that the file states. N is an axis of examples. Channels that the
            file states may be left out, if the others are the same.

    Raises:
        ValueError: one line for files that are damaged, hold no numbers, or are not one scan; for axes that the file
            does not tell and `axes` does not, and for another number of them; and without the extra `scientific`.
        OSError: for files that cannot be opened.
    """
    return with_axes(path, read_stored(path), axes)


def read_stored(path: str | Path) -> Scan:
    """Return the scan with axes as the file states them; ? for one that it does not state."""
    file, name = parted(path)
    suffix = suffix_of(file)
    if suffix != ".zarr" and (source_path(file).is_dir() or is_dicom(file)):
        suffix = ".dcm"
    file.stat()  # names a missing file
    read = _READERS.get(suffix)
    if not read:
        raise ParsingError(
            advice_on(file) or f"{file} is no scan: give {', '.join(SUFFIXES)}, or a folder of DICOM files"
        )
    with parsing(file), saying_once(file):
        return read(file, name) if read in _OF_ARRAYS else read(file)


def with_axes(path: str | Path, scan: Scan, axes: str | None) -> Scan:
    """Return a scan with the axes that the user states, or else those of the file; errors as of `read_scan`."""
    values = scan.values
    shape = list(values.shape)
    stated = scan.axes
    if axes is not None and axes != stated.replace("C", ""):
        if len(axes) != len(shape):
            raise ParsingError(
                f"{path} has shape {shape} and axes {stated}, not those of data.axes={axes}: name all of them"
            )
        stated = axes
    elif "?" in stated and len(stated) == len(shape):
        ways = {"?HW": "DHW or CHW", "T?HW": "TDHW or TCHW"}.get(stated, "TDHWC or TCDHW")
        raise ParsingError(f"{path} has shape {shape}: say what its axes are, as by data.axes={ways}")
    if values.dtype.kind not in "biuf" or min(shape, default=0) < 1 or len({*stated}) < len(shape):
        raise ParsingError(
            f"{path} holds an array of shape {shape}, {values.dtype}, with axes {stated}: give integers or floats on"
            " 1 to 4 axes and channels, none of length 0, for example as .npy"
        )
    return replace(scan, axes=stated)


def advice_on(path: Path) -> str | None:
    """Return a line about a file of a format that is not read: with what to convert it; None for others."""
    advice = _CONVERTED.get(suffix_of(path))
    return advice and f"{path} is {advice}"


def parted(path: str | Path) -> tuple[Path, str]:
    """Return the file and the dataset of `file::dataset`; no dataset of other paths."""
    file, separator, name = str(path).rpartition("::")
    has_name = separator and _READERS.get(suffix_of(Path(file))) in _OF_ARRAYS
    return (Path(file), name) if has_name else (Path(path), "")


def suffix_of(path: Path) -> str:
    """Return the suffix in small letters, .nii.gz and .fits.gz as a whole."""
    name = path.name.lower()
    return next((suffix for suffix in (".nii.gz", ".fits.gz") if name.endswith(suffix)), path.suffix.lower())


def _read_nibabel(path: Path) -> Scan:
    """Return stored values; axes of length 1 behind the second are dropped."""
    nibabel = package("nibabel", path)
    with path.open("rb") as file:
        if file.read(4) == b"ENVI":
            raise ParsingError(f"{path} is {_ENVI}")
    image = nibabel.load(path)
    values = mapped(lambda mode: nibabel.load(path, mmap=mode).dataobj.get_unscaled()).T
    scale, offset = _read_scaling(path, image.dataobj)
    if isinstance(image, nibabel.Nifti1Image):
        header = bytes(image.header.binaryblock)
        suffix = suffix_of(path)
    else:
        header = _read_geometry(nibabel, path, image)
        suffix = ".nii.gz"
    return _usual_scan(values, scale, offset, suffix, header)


def _read_scaling(path: Path, stored: Any) -> tuple[float, float]:
    """Return slope and intercept; AFNI has a slope for each volume."""
    scaling = getattr(stored, "scaling", None)
    slopes = np.unique(1.0 if scaling is None else scaling)
    if len(slopes) > 1:
        raise ParsingError(f"{path} has volumes of {len(slopes)} factors: convert it, for example by 3dcopy to .nii.gz")
    return float(stored.slope * slopes[0]), float(stored.inter)


def _read_geometry(nibabel: Any, path: Path, image: Any) -> bytes:
    """Return the geometry of an image in a pair of files, or of another format than NIfTI."""
    if isinstance(image, nibabel.Nifti1Pair):  # whose header is one of NIfTI but for where its values are
        kind = nibabel.Nifti2Header if isinstance(image, nibabel.Nifti2Pair) else nibabel.Nifti1Header
        header = kind(image.header.binaryblock, check=False)
        header["magic"] = header.single_magic
        header["vox_offset"] = 0
        return bytes(header.binaryblock)
    if isinstance(image, nibabel.AnalyzeImage):
        say("Analyze does not say which side is left: as nibabel takes it, the first voxel is at the right")
    return make_header(path, image.affine, image.header)


def _usual_scan(values: NDArray[Any], *about: Any) -> Scan:
    """Return a scan of values with the usual axes, without those of length 1 before the last two."""
    while values.ndim > 2 and len(values) == 1:
        values = values[0]
    return Scan(values, usual_axes(values.ndim), *about)


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


def _read_itk(path: Path) -> Scan:
    """Return the values of NRRD or MetaImage; components of a value are channels."""
    simple_itk = package("SimpleITK", path)
    image = simple_itk.ReadImage(str(path))
    values = simple_itk.GetArrayFromImage(image)
    if image.GetNumberOfComponentsPerPixel() > 1:
        return Scan(values, usual_axes(values.ndim, channels=True))
    count = image.GetDimension()
    axes = min(count, 3)
    turned = np.reshape(image.GetDirection(), (count, count)) * image.GetSpacing()
    affine = np.eye(4)
    affine[:axes, :axes] = turned[:axes, :axes]
    affine[:axes, 3] = image.GetOrigin()[:axes]
    return _usual_scan(values, 1.0, 0.0, ".nii.gz", make_header(path, affine))


def _read_fits(path: Path, name: str = "") -> Scan:
    """Return the image of this name, or the only one; integers are without a sign where FITS says so by BZERO."""
    package("astropy", path)
    fits = import_module("astropy.io.fits")
    images: dict[str, Any] = {}
    with fits.open(path, do_not_scale_image_data=True) as file:
        for number, image in enumerate(file):
            if image.is_image and image.shape:
                images[str(number) if image.name in images else image.name or str(number)] = image
        chosen = images[chosen_array(path, name, images)]
        place, header, values = file.index_of(chosen), chosen.header, chosen.data
    scale = float(header.get("BSCALE", 1))
    offset = float(header.get("BZERO", 0))
    if "BLANK" in header and (values == header["BLANK"]).any():
        say(f"BLANK says that {header['BLANK']} stands for what is missing: it is read like other numbers")
    middle = -128 if values.itemsize == 1 else 1 << (8 * values.itemsize - 1)
    if values.dtype.kind in "iu" and (scale, offset) == (1, middle):
        values = fits.getdata(path, place, uint=True, ignore_blank=True)
        offset = 0.0
    return _usual_scan(values, scale, offset, SUFFIX)


_FORMATS: tuple[tuple[Callable[..., Scan], tuple[str, ...]], ...] = (
    (_read_nibabel, (".nii", ".nii.gz", ".hdr", ".mgz", ".mgh", ".head")),  # Analyze, FreeSurfer and AFNI, too
    (_read_itk, (".nrrd", ".nhdr", ".mha", ".mhd")),  # MetaImage, too
    (read_dicom, (".dcm",)),
    (_read_tiff, (".tif", ".tiff")),
    (_read_fits, (".fits", ".fit", ".fts", ".fits.gz")),
    (read_hdf5, (".h5", ".hdf5", ".he5", ".nc", ".nc4", ".mat")),  # NetCDF 4 and MATLAB 7.3, too
    (read_zarr, (".zarr",)),
)
"""The table of formats: a row for each reader; what NIfTI does not hold returns from archives as HDF5."""
_OF_ARRAYS = (_read_fits, read_hdf5, read_zarr)
"""Readers of files that may hold several arrays, of which `file::name` is one."""
_READERS = {suffix: read for read, suffixes in _FORMATS for suffix in suffixes}
SUFFIXES = (*_READERS,)
_ENVI = "ENVI: convert it, for example by gdal_translate -of GTiff"
_CONVERTED = {
    **dict.fromkeys((".bil", ".bip", ".bsq"), _ENVI),
    **dict.fromkeys((".grb", ".grb2", ".grib", ".grib2"), "GRIB: convert it, as by grib_to_netcdf -k 4 to .nc"),
    **dict.fromkeys((".sgy", ".segy"), "SEG-Y: convert it, for example by segyio.tools.cube to .npy"),
    **dict.fromkeys((".img", ".brik"), "the values of a file beside it: give that, which ends in .hdr or .HEAD"),
    ".czi": "CZI: convert it, for example by bfconvert to .ome.tif",
    ".nd2": "ND2: convert it, for example by bfconvert to .ome.tif",
    ".mnc": "MINC: convert it, for example by mnc2nii",
}
"""Formats that are not read, and what else a file of this suffix is."""
_DETACHED = {".hdr": (".img",), ".head": (".BRIK", ".BRIK.gz"), ".mhd": (".raw", ".zraw"), ".nhdr": (".raw", ".raw.gz")}
"""What ends the names of files with the values of a header."""


def files_of(path: Path) -> list[Path]:
    """Return the files of a scan: of a folder, a header and its values, or one file."""
    if path.is_dir():
        return [file for file in path.rglob("*") if file.is_file()]
    beside = [path.with_suffix(suffix) for suffix in _DETACHED.get(suffix_of(path), ())]
    return [path, *(file for file in beside if file.is_file())]


def write_scan(path: Path, values: NDArray[Any], like: Scan) -> None:
    """Write values [*A] of any shape as NIfTI, TIFF, HDF5 or .npy, by the path's suffix; see `Scan.suffix`.

    NIfTI keeps the affine and what values mean; it holds no channels. HDF5 keeps names of axes and what values mean.

    Raises:
        ValueError: one line for other suffixes, and for values that the format cannot hold. Nothing is left behind.
    """
    suffix = suffix_of(path)
    axes = like.axes if values.ndim == len(like.axes) else ""
    with written_whole(path) as aside, parsing(path, "cannot be written", ""):
        if suffix in (".nii", ".nii.gz"):
            if "C" in axes:
                raise ParsingError(f"{path}: channels are not written as NIfTI: give a name in .npy")
            nibabel = package("nibabel", path)
            header = _as_header(like)
            header["vox_offset"] = 0  # extensions are not kept
            header.set_data_dtype(values.dtype)
            kind = nibabel.Nifti2Image if isinstance(header, nibabel.Nifti2Header) else nibabel.Nifti1Image
            image = kind(values.T, None, header, dtype=values.dtype)
            image.header.set_slope_inter(like.scale, like.offset)
            image.to_filename(aside)
        elif suffix in (".tif", ".tiff"):
            codes = {"axes": axes.translate(str.maketrans("LWHD", "QXYZ"))} if axes else {}
            planes = "contig" if axes.endswith("C") and values.shape[-1] > 1 else None
            tifffile = package("tifffile", path)
            tifffile.imwrite(aside, values, photometric="minisblack", planarconfig=planes, metadata=codes)
        elif suffix == SUFFIX:
            write_hdf5(aside, values, like, axes)
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
    header = _as_header(scan)
    step = np.array([*corner[::-1], 0, 0, 0][:3])
    for get, set_affine in ((header.get_sform, header.set_sform), (header.get_qform, header.set_qform)):
        affine, code = get(coded=True)
        if code:
            affine[:3, 3] += affine[:3, :3] @ step
            set_affine(affine, code)
    return replace(scan, header=bytes(header.binaryblock))


def _as_header(scan: Scan) -> Any:
    nibabel = import_module("nibabel")
    is_second = len(scan.header) == nibabel.Nifti2Header.sizeof_hdr
    return (nibabel.Nifti2Header if is_second else nibabel.Nifti1Header)(scan.header or None)
