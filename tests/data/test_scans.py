"""Scans: values and geometry survive a round trip, and bad files give one line that names them."""

import errno
import importlib
import io
import logging
import warnings
from pathlib import Path

import h5py
import nibabel
import numpy as np
import pydicom
import pytest
import tifffile
import zarr
from pydicom.uid import DeflatedExplicitVRLittleEndian, JPEGLSLossless

from axial_transformers import storage
from axial_transformers.data import DataConfig, hdf5_and_zarr, load
from axial_transformers.data.scans import SUFFIXES, Scan, is_scan, read_scan, write_scan
from tests.scan_writer import dicom, dicom_series, make_scan

_AFFINE = np.array([[2.0, 0.1, 0, -90], [0, 2.5, 0.2, -126], [0, 0, 3, -72], [0, 0, 0, 1]])


def _values(*shape: int, dtype: str = "int16") -> np.ndarray:
    random = np.random.default_rng(len(shape))
    if np.dtype(dtype).kind == "f":
        return random.normal(size=shape).astype(dtype)
    return random.integers(max(np.iinfo(dtype).min, -999), min(np.iinfo(dtype).max, 999), shape).astype(dtype)


def _line(path: Path | str) -> str:
    with pytest.raises(ValueError) as caught:
        read_scan(path)
    line = str(caught.value)
    assert len(line.splitlines()) == 1
    assert str(path).partition("::")[0] in line
    return line


def _agree(scan: Scan, values: np.ndarray, axes: str) -> None:
    assert scan.axes == axes
    assert scan.values.dtype.newbyteorder("=") == values.dtype.newbyteorder("=")
    assert np.array_equal(scan.values, values)


@pytest.mark.parametrize("suffix", [".nii", ".nii.gz"])
@pytest.mark.parametrize(
    ("dtype", "axes", "kind"),
    [
        ("int16", "L", nibabel.Nifti1Image),
        ("uint16", "HW", nibabel.Nifti2Image),
        ("uint8", "DHW", nibabel.Nifti2Image),
        ("float32", "TDHW", nibabel.Nifti1Image),
        (">i2", "DHW", nibabel.Nifti1Image),
    ],
)
def test_nifti_keeps_values_and_geometry_in_a_round_trip(tmp_path, suffix, dtype, axes, kind):
    values = _values(*range(6 - len(axes), 6), dtype=np.dtype(dtype).newbyteorder("=").name)
    image = kind(values.T, _AFFINE, dtype=values.dtype)
    image.header.set_zooms((2, 2.5, 3, 0.7)[: len(axes)])
    image.set_sform(_AFFINE, 2)
    if dtype[0] == ">":
        image = kind(values.T.astype(dtype), None, image.header.as_byteswapped(">"))
    image.header.set_slope_inter(0.5, -3)
    image.header.extensions.append(nibabel.nifti1.Nifti1Extension("comment", b"x" * 5000))
    image.to_filename(tmp_path / f"a{suffix}")

    scan = read_scan(tmp_path / f"a{suffix}")
    _agree(scan, values, axes)
    assert (scan.scale, scan.offset) == (0.5, -3)
    write_scan(tmp_path / f"b{suffix}", scan.values, scan)
    first, second = (nibabel.load(tmp_path / f"{name}{suffix}") for name in "ab")
    assert type(first) is type(second)
    assert first.header.get_zooms() == second.header.get_zooms()
    assert first.header["sform_code"] == second.header["sform_code"] == 2
    assert np.array_equal(first.affine, second.affine)
    assert np.array_equal(second.dataobj.get_unscaled(), values.T)
    assert (second.dataobj.slope, second.dataobj.inter) == (0.5, -3)
    assert second.get_data_dtype().newbyteorder("=") == values.dtype
    assert not second.header.extensions


def test_nifti_is_mapped_and_never_written_and_axes_of_length_one_are_dropped(tmp_path):
    values, one = _values(3, 4, 5), np.full((1, 1), 7, np.uint8)
    files = {
        "a.nii": (values[None], values),
        "b.nii": (values[None, :1], values[0]),
        "a.nii.gz": (one[None, None], one),
    }
    for name, (stored, found) in files.items():
        make_scan(tmp_path / name, stored)
        _agree(read_scan(tmp_path / name), found, "DHW"[-found.ndim :])
    content, scan = (tmp_path / "a.nii").read_bytes(), read_scan(tmp_path / "a.nii")
    assert isinstance(scan.values, np.memmap)
    scan.values[:] = 0
    assert (tmp_path / "a.nii").read_bytes() == content
    _agree(read_scan(dicom_series(tmp_path / "b", one[None].astype(np.uint16))), one.astype(np.uint16), "HW")


@pytest.mark.parametrize(("suffix", "dtype"), [(".dcm", "int16"), ("", "uint16"), (".840", "uint8")])
@pytest.mark.filterwarnings("ignore:.*DICOMDIR holds no image")
def test_a_dicom_series_among_other_files_is_sorted_by_position_and_becomes_nifti(tmp_path, suffix, dtype):
    values = _values(5, 3, 4, dtype=dtype)
    folder = dicom_series(tmp_path / "a", values, suffix, InstanceNumber=1, RescaleSlope=2, RescaleIntercept=-1024)
    (folder / "DICOMDIR").write_bytes(dicom(values[0], Rows=None, PixelData=None))
    (folder / "notes.txt").write_text("no slice")
    assert is_scan(folder)
    scan = read_scan(folder)
    _agree(scan, values, "DHW")
    assert (scan.scale, scan.offset, scan.suffix) == (2, -1024, ".nii.gz")
    write_scan(tmp_path / "a.nii.gz", scan.values[:2], scan)
    image = nibabel.load(tmp_path / "a.nii.gz")
    # x and y change their sign; columns are 3 mm apart, rows 2 mm, slices 4 mm
    assert np.allclose(image.affine, [[-3, 0, 0, -10], [0, -2, 0, -20], [0, 0, 4, 30], [0, 0, 0, 1]])
    assert np.allclose(image.header.get_qform(), image.affine)
    assert image.header.get_xyzt_units()[0] == "mm"
    assert np.array_equal(image.get_fdata(), 2.0 * values[:2].T - 1024)


def test_series_in_sub_folders_are_read_or_named(tmp_path):
    values = _values(5, 3, 4)
    for name in ("DICOM/S1", "DICOM/S2"):
        (tmp_path / name).mkdir(parents=True)
    dicom_series(tmp_path / "DICOM" / "S1", values, "")
    (tmp_path / "DICOM" / "S2" / "report").write_bytes(dicom(values[0], Rows=None, PixelData=None))
    assert is_scan(tmp_path)
    with pytest.warns(UserWarning, match="report"):
        assert np.array_equal(load(tmp_path, DataConfig(size=(5, 3, 4)), "all").values[:][0, ..., 0], values)
    dicom_series(tmp_path / "DICOM" / "S2", values, "", SeriesInstanceUID="1.2.3")
    (tmp_path / "DICOM" / "S2" / "report").unlink()
    both = "DICOM/S1/00 and DICOM/S2/00 differ in SeriesInstanceUID"
    assert f"holds more than one series of slices ({both}): give a folder or file of one" in _line(tmp_path)
    _agree(read_scan(tmp_path / "DICOM" / "S2"), values, "DHW")


def test_images_of_a_series_each_below_folders_of_splits_are_scans_of_their_own(tmp_path):
    values = _values(4, 3, 5, dtype="uint8")
    for i, pixels in enumerate(values):
        (tmp_path / "train" / "ab"[i // 2]).mkdir(parents=True, exist_ok=True)
        (tmp_path / "train" / "ab"[i // 2] / f"{i}.dcm").write_bytes(dicom(pixels, SeriesInstanceUID=f"1.2.{i}"))
    assert not is_scan(tmp_path)
    assert np.array_equal(load(tmp_path, split="all").values[:][..., 0], values)


def test_oblique_slices_are_sorted_along_their_normal_with_the_geometry_of_nibabel(tmp_path):
    turned, _ = np.linalg.qr(np.random.default_rng(1).normal(size=(3, 3)))
    along, down, values = turned[:, 0].round(6), turned[:, 1].round(6), _values(3, 4, 5)
    (tmp_path / "a").mkdir()
    for name, i in zip("bca", range(3)):
        place = (np.array([7, -8, 9]) + 1.5 * i * np.cross(along, down)).round(6)
        tags = {"ImageOrientationPatient": [*along, *down], "ImagePositionPatient": [*place], "SliceThickness": 1.5}
        (tmp_path / "a" / f"{name}.dcm").write_bytes(dicom(values[i], **tags))
    with warnings.catch_warnings(action="ignore"):  # it calls itself experimental
        wrappers = importlib.import_module("nibabel.nicom.dicomwrappers")
        theirs = wrappers.wrapper_from_file(tmp_path / "a" / "b.dcm").affine
    # They count rows before columns, so slices against our normal, and in DICOM's directions.
    expected = np.diag([-1, -1, 1, 1]) @ theirs[:, [1, 0, 2, 3]] * [1, 1, -1, 1]
    scan = read_scan(tmp_path / "a")
    _agree(scan, values, "DHW")
    assert np.allclose(nibabel.Nifti1Header(scan.header).get_best_affine(), expected, atol=1e-5)


MORE = [10, 20, 42]
"""Where a fourth slice lies."""
SLICES = [
    ("x.dcm differ in RescaleSlope): give a folder", (4, 5), "int16", {"RescaleSlope": 3}),
    ("x.dcm differ in Rows)", (5, 5), "int16", {}),
    ("x.dcm differ in BitsAllocated)", (4, 5), "uint8", {}),
    ("x.dcm differ in NumberOfFrames)", (2, 4, 5), "int16", {}),
    ("mixes slices of several orientations", (4, 5), "int16", {"ImageOrientationPatient": [0, 1, 0, 0, 0, 1]}),
    ("holds slices without positions", (4, 5), "int16", {"ImageOrientationPatient": None}),
    ("lacks a slice near 02.dcm, or has one twice", (4, 5), "int16", {"ImagePositionPatient": [10, 20, 46]}),
    ("or has one twice", (4, 5), "int16", {"ImagePositionPatient": [10, 20, 38]}),
]


@pytest.mark.parametrize(("says", "shape", "dtype", "tags"), SLICES)
def test_slices_that_differ_or_lack_or_come_twice_are_told(tmp_path, says, shape, dtype, tags):
    folder = dicom_series(tmp_path / "a", _values(3, 4, 5))
    (folder / "x.dcm").write_bytes(dicom(_values(*shape, dtype=dtype), **{"ImagePositionPatient": MORE, **tags}))
    assert says in _line(folder)


def test_slices_may_differ_by_rounding(tmp_path):
    folder = dicom_series(tmp_path / "a", _values(3, 4, 5))
    place = {"ImagePositionPatient": [10, 20, 42.01], "ImageOrientationPatient": [0.9999, 1e-5, 0, 0, 1, 0]}
    (folder / "x.dcm").write_bytes(dicom(_values(4, 5), **place))
    assert read_scan(folder).values.shape == (4, 4, 5)


def _repacked(pixels: np.ndarray, packing: str, packed: bool = False) -> bytes:
    found, file = pydicom.dcmread(io.BytesIO(dicom(pixels, packed))), io.BytesIO()
    found.file_meta.TransferSyntaxUID = packing
    found.save_as(file)
    return file.getvalue()


@pytest.mark.parametrize(
    ("shape", "axes", "write"),
    [
        ((3, 4, 5), "DHW", dicom),
        ((3, 4, 5), "DHW", lambda frames: dicom(frames, packed=True)),
        ((4, 5), "HW", lambda pixels: _repacked(pixels, DeflatedExplicitVRLittleEndian)),
    ],
)
def test_a_file_of_dicom_is_unpacked_its_frames_in_their_order(tmp_path, shape, axes, write):
    (tmp_path / "a").write_bytes(write(_values(*shape)))
    for path in (tmp_path, tmp_path / "a"):
        assert is_scan(path)
        _agree(read_scan(path), _values(*shape), axes)


@pytest.mark.parametrize(("dtype", "colours"), [("uint16", "RGB"), ("uint8", "YBR_FULL")])
def test_colours_of_dicom_are_channels_as_stored(tmp_path, recwarn, dtype, colours):
    pixels = _values(4, 5, 3, dtype=dtype)
    tags = {"Rows": 4, "Columns": 5, "SamplesPerPixel": 3, "PlanarConfiguration": 0, "NumberOfFrames": None}
    (tmp_path / "a.dcm").write_bytes(dicom(pixels, PhotometricInterpretation=colours, **tags))
    scan = read_scan(tmp_path / "a.dcm")
    _agree(scan, pixels, "HWC")
    assert (scan.suffix, scan.header) == (".npy", b"")
    lines = [str(each.message).partition(": ")[2] for each in recwarn]
    assert lines == ["its channels are YBR_FULL, not RGB, as they are stored"] * (colours != "RGB")


_COLOURS = {"photometric": "rgb", "extrasamples": [0], "planarconfig": "contig"}
_BANDS = {"photometric": "minisblack", "extrasamples": [0] * 4, "planarconfig": "contig"}
_TIFFS = [
    ("DHW", "uint16", (3, 4, 5), {"metadata": {"axes": "ZYX"}}),
    ("TDHW", "float32", (2, 3, 4, 5), {"metadata": {"axes": "TZYX"}, "ome": True}),
    ("TDHW", "uint8", (2, 3, 4, 5), {"metadata": {"axes": "TZYX"}, "imagej": True}),
    ("THW", "uint16", (3, 4, 5), {"metadata": {"axes": "TYX"}, "byteorder": ">"}),
    ("TDCHW", "uint16", (2, 3, 2, 4, 5), {"metadata": {"axes": "TZCYX"}, "compression": "zlib"}),
    ("TDHW", "uint16", (2, 3, 4, 5), {"byteorder": ">", "compression": "zlib"}),
    ("HWC", "uint16", (8, 9, 3), {"photometric": "rgb"}),
    ("HWC", "uint8", (8, 9, 4), _COLOURS),  # Pillow would show three of these bands
    ("HWC", ">u2", (8, 9, 4), {**_COLOURS, "byteorder": ">"}),
    ("HWC", "uint8", (8, 9, 5), _BANDS),
    ("HW", "float32", (4, 5), {}),  # numbers that no picture holds
    ("HW", "int8", (4, 5), {}),
]


@pytest.mark.parametrize(("axes", "dtype", "shape", "options"), _TIFFS)
def test_tiff_keeps_values_and_axes_in_a_round_trip(tmp_path, axes, dtype, shape, options):
    values = _values(*shape, dtype=np.dtype(dtype).newbyteorder("=").name)
    tifffile.imwrite(tmp_path / "a.tif", values.astype(dtype), **{"photometric": "minisblack", **options})
    assert is_scan(tmp_path / "a.tif")
    scan = read_scan(tmp_path / "a.tif")
    _agree(scan, values, axes)
    assert isinstance(scan.values, np.memmap) == ("compression" not in options)
    write_scan(tmp_path / "b.tif", scan.values, scan)
    _agree(read_scan(tmp_path / "b.tif"), values, axes)


@pytest.mark.parametrize("stored_as", [{"tile": (16, 16)}, {"rowsperstrip": 16}])
def test_tiles_of_tiff_that_are_not_stored_are_zeros(tmp_path, stored_as):
    values = _values(48, 16, dtype="uint8")
    values[16:32] = 0
    tifffile.imwrite(tmp_path / "a.tif", values + 1, photometric="minisblack", metadata=None, **stored_as)
    assert not is_scan(tmp_path / "a.tif")
    tifffile.imwrite(tmp_path / "a.tif", values, photometric="minisblack", metadata=None, **stored_as)
    with tifffile.TiffFile(tmp_path / "a.tif", mode="r+b") as file:
        tags = file.pages[0].tags
        for code in (324, 325) if "tile" in stored_as else (273, 279):
            tags[code].overwrite([tags[code].value[0], 0, tags[code].value[2]])
    assert is_scan(tmp_path / "a.tif")
    _agree(read_scan(tmp_path / "a.tif"), values, "HW")
    assert load(tmp_path / "a.tif", DataConfig(size=(48, 16)), "all").values[:][0, ..., 0].tolist() == values.tolist()


@pytest.mark.parametrize(
    ("dtype", "shape", "axes"),
    [
        ("int16", (5,), "L"), ("uint16", (4, 5), "HW"), ("uint8", (3, 4, 5), "DHW"), ("float32", (2, 3, 4, 5), "TDHW"),
        (">i2", (4, 5, 3), "HWC"), ("bool", (2, 5, 5, 3), "DHWC"),
    ],
)  # fmt: skip
def test_datasets_of_hdf5_and_zarr_are_read(tmp_path, dtype, shape, axes):
    values = _values(*shape, dtype="uint8").astype(dtype)
    packed = {"chunks": True, "compression": "gzip", "shuffle": True}
    for name, options in (("a.h5", {}), ("b.h5", packed)):
        with h5py.File(tmp_path / name, "w") as file:
            file.create_dataset("group/x", data=values, **options)
    for kind in (2, 3):
        group = zarr.open_group(tmp_path / f"{kind}.zarr", mode="w", zarr_format=kind)
        shards = tuple(2 * side for side in shape) if kind == 3 else None
        group.create_array("group/x", data=values, chunks=shape, shards=shards)
    for name in ("a.h5", "a.h5::group/x", "a.h5::/group/x", "b.h5", "2.zarr", "3.zarr", "3.zarr::group/x"):
        assert is_scan(tmp_path / name)
        _agree(read_scan(str(tmp_path / name)), values, axes)
    zarr.create_array(tmp_path / "alone.zarr", data=values)
    _agree(read_scan(tmp_path / "alone.zarr"), values, axes)


@pytest.mark.parametrize("suffix", [".nc", ".mat", ".zarr"])
def test_one_of_several_datasets_is_named(tmp_path, suffix):
    values, path = _values(3, 4, 5), tmp_path / f"t2m{suffix}"
    if suffix == ".zarr":
        group = zarr.open_group(path, mode="w")
        group.create_array("t2m", data=values)
        group.create_array("time", data=np.arange(3))
    else:
        with h5py.File(path, "w", userblock_size=512 if suffix == ".mat" else 0) as file:
            file["time"] = np.arange(3)
            file.create_dataset("t2m", data=values, chunks=(1, 4, 5), compression="gzip")
    assert is_scan(f"{path}::t2m")
    _agree(read_scan(f"{path}::t2m"), values, "DHW")
    assert load(f"{path}::t2m", DataConfig(size=(1, 4, 5)), "all").values.shape == (3, 1, 4, 5, 1)
    for name in (path, f"{path}::z"):
        assert f"holds 2 arrays (t2m, time): name one, as in t2m{suffix}::name" in _line(name)


def _netcdf(path: Path, values: np.ndarray, axes: tuple[str, ...], **attributes: object) -> Path:
    """A file as netCDF4 writes it: a variable v, whose axes have scales."""
    with h5py.File(path, "w") as file:
        variable = file.create_dataset("v", data=values)
        for number, (name, length) in enumerate(zip(axes, values.shape, strict=True)):
            file[name] = np.arange(length)
            file[name].make_scale(name)
            variable.dims[number].attach_scale(file[name])
        file["crs"] = 1
        variable.attrs.update(attributes)
    return path


NAMED_AXES = [
    (("time", "level", "lat", "lon"), "TDHW"), (("time", "lat", "lon"), "THW"), (("lat", "lon"), "HW"),
    (("time", "band", "y", "x"), "TCHW"), (("lon", "lat", "time"), "WHT"), (("Z", "Y", "X", "C"), "DHWC"),
    (("member", "time", "depth", "latitude", "longitude"), "LTDHW"), (("time", "level", "y", "x", "band"), "TDHWC"),
    (("time", "station"), "TW"), (("a", "b", "c"), "DHC"), (("x", "lon", "time"), "WHT"),
]  # fmt: skip


@pytest.mark.parametrize(("names", "axes"), NAMED_AXES)
def test_axes_are_those_that_the_names_in_the_file_say(tmp_path, names, axes):
    values = _values(*range(2, 2 + len(names)))
    _netcdf(tmp_path / "a.nc", values, names)
    with h5py.File(tmp_path / "labels.h5", "w") as file:
        file["v"] = values
        for axis, name in zip(file["v"].dims, names):
            axis.label = name
    zarr.open_group(tmp_path / "3.zarr", mode="w").create_array("v", data=values, dimension_names=names)
    older = zarr.open_group(tmp_path / "2.zarr", mode="w", zarr_format=2).create_array("v", data=values)
    older.attrs["_ARRAY_DIMENSIONS"] = names
    for kind in (2, 3):
        scale = zarr.open_group(tmp_path / f"{kind}.zarr").create_array("time", data=np.arange(3))
        scale.attrs["_ARRAY_DIMENSIONS"] = ["time"]
    for name in ("a.nc", "labels.h5", "3.zarr", "2.zarr"):
        _agree(read_scan(tmp_path / name), values, axes)


def _ome_zarr(path: Path, values: np.ndarray, axes: str, version: int) -> None:
    """An image of three resolutions, and masks of it."""
    names = [{"name": axis, "type": "space"} for axis in axes]
    stated = {"multiscales": [{"axes": names, "datasets": [{"path": str(each)} for each in range(3)]}]}
    whole = zarr.open_group(path, mode="a", zarr_format=version)
    for group in (whole, whole.create_group("labels").create_group("cells")):
        group.attrs.update({"ome": stated} if version == 3 else stated)
        for each in range(3):
            group.create_array(str(each), data=values[..., :: 2**each, :: 2**each])


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize(("axes", "expected"), [("tczyx", "TCDHW"), ("zyx", "DHW"), ("czyx", "CDHW"), ("yx", "HW")])
def test_an_image_of_ome_zarr_opens_at_its_full_resolution(tmp_path, version, axes, expected):
    values = _values(*range(2, 7))[(0,) * (5 - len(axes))]
    _ome_zarr(tmp_path / "a.zarr", values, axes, version)
    _agree(read_scan(tmp_path / "a.zarr"), values, expected)
    _agree(read_scan(f"{tmp_path / 'a.zarr'}::1"), values[..., ::2, ::2], expected)
    zarr.open_group(tmp_path / "b.zarr", mode="w", zarr_format=version)
    _ome_zarr(tmp_path / "b.zarr/0", values, axes, version)
    assert "holds 2 arrays (0/0, 0/labels/cells/0): name one" in _line(tmp_path / "b.zarr")
    _agree(read_scan(f"{tmp_path / 'b.zarr'}::0/0"), values, expected)


def test_five_axes_without_names_are_asked_about(tmp_path):
    values = _values(2, 3, 4, 5, 6)
    zarr.create_array(tmp_path / "a.zarr", data=values)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["v"] = values
    for name in ("a.zarr", "a.h5"):
        assert "has shape [2, 3, 4, 5, 6]: say what its axes are, as by data.axes=TDHWC or TCDHW" in _line(
            tmp_path / name
        )
        for axes in ("TDHWC", "TCDHW"):
            _agree(read_scan(tmp_path / name, axes), values, axes)
        examples = load(tmp_path / name, DataConfig(size=(4, 5, 6), axes="TCDHW"), "all")
        assert np.array_equal(examples.values[:][..., 0], values[:, 0])


@pytest.mark.parametrize("options", [{"imagej": True}, {"ome": True}])
def test_many_channels_of_gray_are_asked_about(tmp_path, options):
    for count, path in ((40, tmp_path / "a.tif"), (4, tmp_path / "b.tif")):
        tifffile.imwrite(path, _values(count, 8, 9, dtype="uint16"), photometric="minisblack", **options)
    _agree(read_scan(tmp_path / "b.tif"), _values(4, 8, 9, dtype="uint16"), "CHW")
    assert "has shape [40, 8, 9]: say what its axes are, as by data.axes=DHW or CHW" in _line(tmp_path / "a.tif")
    examples = load(tmp_path / "a.tif", DataConfig(axes="DHW", size=(8, 8, 8)), "all")
    assert examples.values.shape == (5, 8, 8, 8, 1)
    assert load(tmp_path / "a.tif", DataConfig(axes="CHW", size=8, cut="tiles"), "all").values.shape == (1, 8, 8, 40)


def test_axes_that_are_stated_replace_those_of_the_file_and_all_have_letters(tmp_path):
    path, values = tmp_path / "a.nii", _values(3, 4, 5)
    make_scan(path, values)
    for axes in ("THW", "CHW", "HWC", "NHW"):
        _agree(read_scan(path, axes), values, axes)
    assert load(path, DataConfig(axes="CHW", size=(4, 5)), "all").values.shape == (1, 4, 5, 3)
    for axes in ("TDHW", "HC", "TH", "HW"):
        with pytest.raises(
            ValueError, match=rf"a\.nii has shape \[3, 4, 5\] and axes DHW, not those of data.axes={axes}"
        ):
            load(path, DataConfig(axes=axes, size=(4, 5)), "all")


def test_channels_of_the_file_need_no_letter(tmp_path):
    import tifffile

    tifffile.imwrite(tmp_path / "a.tif", _values(3, 4, 5, 2), metadata={"axes": "ZYXC"})
    for axes in ("DHW", "DHWC"):
        assert read_scan(tmp_path / "a.tif", axes).axes == "DHWC"


@pytest.mark.parametrize("config", [DataConfig(axes="NHW"), DataConfig(axes="NHW", size=2, cut="tiles")])
def test_an_axis_of_a_scan_that_is_called_n_is_one_of_examples(tmp_path, config):
    values = _values(3, 4, 5)
    make_scan(tmp_path / "a.nii", values)
    side = config.size or 5
    examples = load(tmp_path / "a.nii", config, "all")
    assert examples.shape == (config.size or 4, side)
    for name, example in zip(examples.names, examples.values[:, ..., 0], strict=True):
        _, number, place = name.split("#")
        row, column = (int(word) * side for word in place.split(","))
        np.testing.assert_array_equal(example, values[int(number), row : row + len(example), column : column + side])


@pytest.mark.parametrize("at_once", [1 << 28, 1000])
def test_matlab_stores_axes_in_the_other_order(tmp_path, monkeypatch, at_once):
    monkeypatch.setattr(hdf5_and_zarr, "_AT_ONCE", at_once)
    pixels, volume = _values(48, 64, 3, dtype="uint8"), _values(30, 20, 10)
    for name, values in (("rgb", pixels), ("volume", volume)):
        with h5py.File(tmp_path / f"{name}.mat", "w", userblock_size=512) as file:
            file[name] = values.T
            file[name].attrs["MATLAB_class"] = np.bytes_(values.dtype.name)
    _agree(read_scan(tmp_path / "rgb.mat"), pixels, "HWC")
    scan = read_scan(tmp_path / "volume.mat")
    _agree(scan, volume, "DHW")
    for box in (3, slice(2, 5), (slice(3, 7), 4), (1, 2, 3), (slice(None), slice(None), slice(1, 3))):
        assert np.array_equal(scan.values[box], volume[box])
    found = load(tmp_path / "volume.mat", DataConfig(size=(5, 10, 10)), "all").values[:]
    assert np.array_equal(found[1, ..., 0], volume[:5, 10:, :])
    assert load(tmp_path / "rgb.mat", DataConfig(size=(48, 64)), "all").values.shape == (1, 48, 64, 3)


def test_scale_and_offset_of_netcdf_are_kept_beside_its_integers(tmp_path, recwarn):
    values = _values(3, 4, 5)
    scaling = {"scale_factor": 0.5, "add_offset": np.array([273.0])}
    scan = read_scan(_netcdf(tmp_path / "a.nc", values, ("time", "lat", "lon"), **scaling, _FillValue=np.int16(-32767)))
    _agree(scan, values, "THW")
    assert (scan.scale, scan.offset) == (0.5, 273)
    of_zarr = {"scale_factor": 2, "add_offset": -1, "_FillValue": "AAAAAAAA+H8="}
    zarr.create_array(tmp_path / "a.zarr", data=values, attributes=of_zarr)
    scan = read_scan(tmp_path / "a.zarr")
    assert (scan.scale, scan.offset) == (2, -1)
    assert not recwarn


@pytest.mark.parametrize("at_once", [1 << 28, 10])
def test_attributes_of_netcdf_may_say_that_bytes_have_no_sign(tmp_path, monkeypatch, at_once):
    monkeypatch.setattr(hdf5_and_zarr, "_AT_ONCE", at_once)
    values = np.arange(240, dtype=np.uint8).reshape(4, 6, 10)
    for stated in ("true", b"true"):
        name = f"{type(stated).__name__}.nc"
        scan = read_scan(_netcdf(tmp_path / name, values.view(np.int8), ("z", "y", "x"), _Unsigned=stated))
        assert np.array_equal(scan.values[1:3, 2], values[1:3, 2])
        _agree(scan, values, "DHW")


@pytest.mark.parametrize(
    ("attributes", "said"),
    [
        ({"_FillValue": np.int16(7)}, "_FillValue says that 7 stands for what is missing"),
        ({"missing_value": np.array([-1, 7], np.int16)}, "missing_value says that 7 stands for"),
        ({"_FillValue": np.int16(-1), "_Unsigned": "true"}, "_FillValue says that 65535 stands for"),
        ({"valid_range": [0, 10]}, "valid numbers are from 0 to 10"),
        ({"valid_max": 10}, "valid numbers are from -inf to 10"),
        ({"valid_range": np.array([0, -6], np.int16), "_Unsigned": "true"}, "valid numbers are from 0 to 65530"),
    ],
)
def test_numbers_that_stand_for_missing_ones_are_read_and_that_is_said(tmp_path, attributes, said):
    values = np.arange(12, dtype=np.int16).reshape(3, 4)
    values[0, 0] = -1 if "_Unsigned" in attributes else 0
    with pytest.warns(UserWarning, match=said):
        scan = read_scan(_netcdf(tmp_path / "a.nc", values, ("y", "x"), **attributes))
    assert np.array_equal(scan.values.astype(np.int16), values)


def test_nothing_is_said_of_numbers_without_a_sign_that_are_valid(tmp_path, recwarn):
    values = np.array([[0, 7], [40_000, 65_535]], np.uint16)
    valid = np.array([0, -1], np.int16)
    scan = read_scan(_netcdf(tmp_path / "a.nc", values.view(np.int16), ("y", "x"), valid_range=valid, _Unsigned="true"))
    assert np.array_equal(scan.values, values)
    assert not recwarn


def test_texts_of_matlab_are_no_arrays(tmp_path):
    values = _values(3, 4, 5)
    with h5py.File(tmp_path / "a.mat", "w", userblock_size=512) as file:
        for name, stored, kind in (("v", values.T, "int16"), ("note", np.array([[104], [105]], np.uint16), "char")):
            file[name] = stored
            file[name].attrs["MATLAB_class"] = np.bytes_(kind)
    _agree(read_scan(tmp_path / "a.mat"), values, "DHW")
    with pytest.raises(ValueError, match=r"1 arrays \(v\)"):
        read_scan(f"{tmp_path}/a.mat::note")


@pytest.mark.parametrize("shared", [True, False])
def test_slopes_of_enhanced_dicom_stand_in_groups_shared_or_by_frame(tmp_path, shared):
    values = _values(3, 4, 5)

    def group(slope: float, intercept: float) -> pydicom.Dataset:
        item, found = pydicom.Dataset(), pydicom.Dataset()
        item.RescaleSlope, item.RescaleIntercept, item.RescaleType = slope, intercept, "HU"
        found.PixelValueTransformationSequence = pydicom.Sequence([item])
        return found

    def stated(*groups: pydicom.Dataset) -> dict[str, object]:
        usual = [groups[0]] if shared else []
        own = [pydicom.Dataset()] * 2 + [*groups[1:]] if shared else groups
        names = ("SharedFunctionalGroupsSequence", "PerFrameFunctionalGroupsSequence")
        return {name: pydicom.Sequence(each) for name, each in zip(names, (usual, own)) if each}

    (tmp_path / "a.dcm").write_bytes(dicom(values, **stated(*[group(2, -1024)] * 3)))
    scan = read_scan(tmp_path / "a.dcm")
    assert (scan.scale, scan.offset) == (2, -1024)
    (tmp_path / "b.dcm").write_bytes(dicom(values, **stated(group(2, -1024), group(3, 0), group(2, -1024))))
    assert "has frames of 2 slopes and intercepts (2 and -1024, 3 and 0" in _line(tmp_path / "b.dcm")


REFUSED = {
    "text": ["a", "b"], "complex": np.ones(3, np.complex64), "fields": np.ones(3, [("a", "u1"), ("b", "u2")]),
    "empty": np.ones((0, 5)), "scalar": 5, "many": np.ones((2,) * 6), "nothing": h5py.Empty("f4"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_array_of_numbers_is_refused(tmp_path, name):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file[name] = REFUSED[name]
    assert ("cannot be read" if name == "nothing" else "give integers or floats on 1 to 4 axes") in _line(
        tmp_path / "a.h5"
    )


def test_colours_and_vectors_of_nifti_are_refused(tmp_path):
    colours = np.ones((3, 4), [("R", "u1"), ("G", "u1"), ("B", "u1")])
    nibabel.Nifti1Image(colours, None).to_filename(tmp_path / "a.nii")
    make_scan(tmp_path / "b.nii", _values(3, 1, 2, 2, 2))
    for path in (tmp_path / "a.nii", tmp_path / "b.nii"):
        assert "give integers or floats on 1 to 4 axes and channels" in _line(path)


def test_what_is_no_scan_is_told(tmp_path):
    h5py.File(tmp_path / "b.h5", "w").close()
    assert "holds 0 arrays (none)" in _line(tmp_path / "b.h5")
    (tmp_path / "a.dcm").write_bytes(dicom(_values(4, 5), Rows=None))
    assert "holds no DICOM file with an image" in _line(tmp_path / "a.dcm")
    (tmp_path / "a.dcm").write_bytes(_repacked(_values(4, 5), JPEGLSLossless, packed=True))
    assert "a.dcm cannot be read (Unable to deco" in _line(tmp_path / "a.dcm")
    with tifffile.TiffWriter(tmp_path / "b.tif") as file:
        for sides in ((4, 5), (6, 7)):
            file.write(_values(*sides))
    assert "holds 2 arrays: save one array in one file" in _line(tmp_path / "b.tif")
    (tmp_path / "a.png").write_bytes(b"")
    (tmp_path / "none").mkdir()
    tifffile.imwrite(tmp_path / "a.tif", _values(4, 5, dtype="uint8"))
    assert not any(map(is_scan, (tmp_path / "a.png", tmp_path / "a.tif", tmp_path / "none", "https://host/a::b")))
    assert f"is no scan: give {', '.join(SUFFIXES)}, or a folder of DICOM" in _line(tmp_path / "a.png")
    assert "holds no DICOM file" in _line(tmp_path / "none")


@pytest.mark.filterwarnings("ignore:.* holds no image")
def test_files_that_are_cut_off_or_missing_are_named(tmp_path):
    for path in [tmp_path / name for name in ("a.nii", "a.nii.gz", "a.tif", "packed.tif", "a.h5", "a.dcm")]:
        make_scan(path, _values(1, 40, 50))
        content = path.read_bytes()
        for kept in (0.0, 0.1, 0.95):
            path.write_bytes(content[: int(len(content) * kept)])
            _line(path)
    for name in ("none.nii", "none.dcm", "none.tif", "none.h5", "none.h5::x", "none.zarr"):
        with pytest.raises(FileNotFoundError) as caught:
            read_scan(tmp_path / name)
        assert caught.value.filename == str(tmp_path / name.partition("::")[0])


def test_writing_is_whole_or_nothing_and_always_the_same(tmp_path):
    scan = Scan(_values(3, 4), "HW")
    with pytest.raises(ValueError, match=r"a\.png"):
        write_scan(tmp_path / "a.png", scan.values, scan)
    with pytest.raises(ValueError, match=r"a\.nii"):
        write_scan(tmp_path / "a.nii", np.ones((1,) * 8), scan)
    with pytest.raises(ValueError, match="channels"):
        write_scan(tmp_path / "a.nii", scan.values, Scan(scan.values, "HC"))
    assert not [*tmp_path.iterdir()]
    for name in ("a.nii", "a.nii.gz", "a.tif", "a.npy"):
        write_scan(tmp_path / name, scan.values, scan)
        first = (tmp_path / name).read_bytes()
        write_scan(tmp_path / name, scan.values, scan)
        assert (tmp_path / name).read_bytes() == first
    assert len([*tmp_path.iterdir()]) == 4


@pytest.mark.parametrize(
    ("package", "name"),
    [("nibabel", "a.nii.gz"), ("pydicom", "a.dcm"), ("tifffile", "a.tif"), ("h5py", "a.h5"), ("zarr", "a.zarr")],
)
def test_without_the_extra_one_line_names_it(tmp_path, monkeypatch, package, name):
    make_scan(tmp_path / name, _values(3, 4, 5))
    monkeypatch.setattr(storage, "find_spec", lambda wanted: None if wanted == package else True)
    assert f"{name} needs the package {package}: pip install 'axial-transformers[scientific]'" in _line(tmp_path / name)


def test_what_a_library_warns_of_is_said_once_with_the_name(tmp_path, caplog):
    with warnings.catch_warnings(action="ignore"):
        folder = dicom_series(tmp_path / "a", _values(5, 3, 4), SeriesInstanceUID="1.02.3")
    make_scan(tmp_path / "a.nii", _values(3, 4, 5))
    content = (tmp_path / "a.nii").read_bytes()
    offset = np.float32(353).tobytes()  # not divisible by 16
    caplog.clear()
    (tmp_path / "a.nii").write_bytes(content[:108] + offset + content[112:352] + b"\0" + content[352:])
    for path, words in ((folder, "'1.02.3'"), (tmp_path / "a.nii", "vox offset (=353) not divisible by 16")):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            read_scan(path)
        (line,) = (str(each.message) for each in said)
        assert line.startswith(f"{path}: ")
        assert words in line
    assert not caplog.records
    assert not any(logging.getLogger(name).filters for name in ("nibabel.global", "pydicom", "tifffile"))


@pytest.mark.parametrize("name", ["a.nii", "a.tif", "a.npy"])
def test_files_that_memory_cannot_hold_are_mapped_for_reading(tmp_path, monkeypatch, name):
    values, original = _values(4, 5, 6), np.memmap

    class Short(original):
        def __new__(cls, path, dtype=np.uint8, mode="r+", *others, **options):
            if mode == "c":
                raise OSError(errno.ENOMEM, "Cannot allocate memory")
            return original.__new__(cls, path, dtype, mode, *others, **options)

    write_scan(tmp_path / name, values, Scan(values, "DHW"))
    monkeypatch.setattr(np, "memmap", Short)
    examples = load(tmp_path / name, DataConfig(size=(2, 3, 3)), "all")
    assert len(examples) == 4
    assert np.array_equal(examples.values[:][0, ..., 0], values[:2, :3, :3])


def test_large_datasets_are_read_where_they_are_sliced(tmp_path, monkeypatch):
    monkeypatch.setattr(hdf5_and_zarr, "_AT_ONCE", 1000)
    values = _values(30, 20, 10)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", data=values, chunks=(5, 10, 10), compression="gzip")
    zarr.create_array(tmp_path / "a.zarr", data=values, chunks=(5, 10, 10))
    for name in ("a.h5", "a.zarr"):
        found = read_scan(tmp_path / name).values
        assert not isinstance(found, np.ndarray)
        assert np.array_equal(found[3:7, :, 2], values[3:7, :, 2])
        assert load(tmp_path / name, DataConfig(size=(5, 10, 10)), "all").values.shape == (12, 5, 10, 10, 1)
