"""Scans: values and geometry survive a round trip, and bad files give one line that names them."""

import errno
import gzip
import importlib
import io
import json
import logging
import shutil
import struct
import subprocess
import sys
import warnings
from importlib.util import find_spec
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
from axial_transformers.data import DataConfig, load, npy, scan_files
from axial_transformers.data.scans import Scan, is_scan, read_scan, write_scan
from tests.scan_writer import dicom, dicom_series, frames_with_places

_AFFINE = np.array([[2.0, 0.1, 0, -90], [0, 2.5, 0.2, -126], [0, 0, 3, -72], [0, 0, 0, 1]])


def _values(*shape: int, dtype: str = "int16") -> np.ndarray:
    random = np.random.default_rng(len(shape))
    if np.dtype(dtype).kind == "f":
        return random.normal(size=shape).astype(dtype)
    return random.integers(max(np.iinfo(dtype).min, -999), min(np.iinfo(dtype).max, 999), shape).astype(dtype)


def _nifti(path: Path, values: np.ndarray, affine: np.ndarray = _AFFINE, slope: float = 1, inter: float = 0) -> Path:
    image = nibabel.Nifti1Image(values.T, affine, dtype=values.dtype)
    image.header.set_slope_inter(slope, inter)
    image.to_filename(path)
    return path


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
@pytest.mark.parametrize("dtype", ["int16", "uint16", "uint8", "float32", ">i2", "int64"])
@pytest.mark.parametrize("shape", [(5,), (4, 5), (3, 4, 5), (2, 3, 4, 5)])
def test_nifti_keeps_values_and_geometry_in_a_round_trip(tmp_path, suffix, dtype, shape):
    values = _values(*shape, dtype=np.dtype(dtype).newbyteorder("=").name)
    image = nibabel.Nifti1Image(values.T, _AFFINE, dtype=values.dtype)
    image.header.set_zooms((2, 2.5, 3, 0.7)[: len(shape)][::1])
    image.set_sform(_AFFINE, 2)
    if dtype[0] == ">":
        header = image.header.as_byteswapped(">")
        image = nibabel.Nifti1Image(values.T.astype(dtype), None, header)
    image.to_filename(tmp_path / f"a{suffix}")

    scan = read_scan(tmp_path / f"a{suffix}")
    _agree(scan, values, {1: "L", 2: "HW", 3: "DHW", 4: "TDHW"}[len(shape)])
    write_scan(tmp_path / f"b{suffix}", scan.values, scan)
    first, second = (nibabel.load(tmp_path / f"{name}{suffix}") for name in "ab")
    assert first.header.get_zooms() == second.header.get_zooms()
    assert first.header["sform_code"] == second.header["sform_code"] == 2
    assert np.array_equal(first.affine, second.affine)
    assert np.array_equal(np.asarray(second.dataobj), values.T)
    assert second.get_data_dtype().newbyteorder("=") == values.dtype


def test_nifti_keeps_stored_integers_beside_slope_and_offset(tmp_path):
    values = _values(3, 4, 5)
    scan = read_scan(_nifti(tmp_path / "a.nii", values, slope=0.5, inter=-3))
    _agree(scan, values, "DHW")
    assert (scan.scale, scan.offset) == (0.5, -3)
    write_scan(tmp_path / "b.nii.gz", values[:2], scan)
    assert np.array_equal(nibabel.load(tmp_path / "b.nii.gz").get_fdata(), (values[:2] * 0.5 - 3).T)


def test_uncompressed_nifti_is_mapped_and_never_written(tmp_path):
    path = _nifti(tmp_path / "a.nii", _values(3, 4, 5))
    content = path.read_bytes()
    scan = read_scan(path)
    assert isinstance(scan.values, np.memmap)
    scan.values[:] = 0
    assert path.read_bytes() == content


@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 1, 1, 1)])
def test_one_voxel_is_an_image(tmp_path, shape):
    _agree(read_scan(_nifti(tmp_path / "a.nii.gz", np.full(shape, 7, np.uint8))), np.full((1, 1), 7, np.uint8), "HW")
    _agree(
        read_scan(dicom_series(tmp_path / "b", np.full((1, 1, 1), 7, np.uint16))), np.full((1, 1), 7, np.uint16), "HW"
    )
    tifffile.imwrite(tmp_path / "c.tif", np.full((1, 1), 7, np.uint8))
    assert read_scan(tmp_path / "c.tif").values.tolist() == [[7]]


def test_axes_of_length_one_behind_the_second_are_dropped(tmp_path):
    values = _values(3, 4, 5)
    _agree(read_scan(_nifti(tmp_path / "a.nii", values[None])), values, "DHW")
    _agree(read_scan(_nifti(tmp_path / "b.nii", values[None, :1])), values[0], "HW")


@pytest.mark.parametrize("frames", [1, 2])
def test_vectors_of_nifti_are_channels_in_a_round_trip(tmp_path, frames):
    values = _values(6, frames, 3, 4, 5, dtype="float32")  # [U, T, D, H, W]
    scan = read_scan(_nifti(tmp_path / "a.nii", values))
    last = np.moveaxis(values, 0, -1)
    _agree(scan, last[0] if frames == 1 else last, "DHWC" if frames == 1 else "TDHWC")
    write_scan(tmp_path / "b.nii", scan.values, scan)
    assert np.array_equal(np.asarray(nibabel.load(tmp_path / "b.nii").dataobj), values.T)


def test_colours_of_nifti_are_channels_in_a_round_trip(tmp_path):
    values = _values(3, 4, 5, 3, dtype="uint8")
    packed = values.view([("R", "u1"), ("G", "u1"), ("B", "u1")])[..., 0]
    nibabel.Nifti1Image(packed.T, _AFFINE).to_filename(tmp_path / "a.nii.gz")
    scan = read_scan(tmp_path / "a.nii.gz")
    _agree(scan, values, "DHWC")
    write_scan(tmp_path / "b.nii.gz", scan.values[:2], scan)
    _agree(read_scan(tmp_path / "b.nii.gz"), values[:2], "DHWC")


def test_nifti_2_and_extensions_are_read(tmp_path):
    values = _values(3, 4, 5)
    image = nibabel.Nifti2Image(values.T, _AFFINE)
    image.header.extensions.append(nibabel.nifti1.Nifti1Extension("comment", b"x" * 5000))
    image.to_filename(tmp_path / "a.nii")
    scan = read_scan(tmp_path / "a.nii")
    _agree(scan, values, "DHW")
    write_scan(tmp_path / "b.nii", scan.values, scan)
    again = nibabel.load(tmp_path / "b.nii")
    assert isinstance(again, nibabel.Nifti2Image)
    assert np.array_equal(np.asarray(again.dataobj), values.T)
    assert not again.header.extensions


def test_six_axes_are_refused(tmp_path):
    assert "axes are unclear" in _line(_nifti(tmp_path / "a.nii", _values(2, 2, 2, 2, 2, 2)))


def test_the_written_type_is_that_of_the_scan_or_the_smallest_that_fits(tmp_path):
    scan = read_scan(_nifti(tmp_path / "a.nii", _values(3, 4, 5, dtype="uint8")))
    for values, expected in (([0, 255], "uint8"), ([0, 256], "uint16"), ([-1, 5], "int8"), ([-1, 70_000], "int32")):
        for name in ("b.nii", "b.tif", "b.npy"):
            write_scan(tmp_path / name, np.array(values).reshape(1, 2), scan)
        assert nibabel.load(tmp_path / "b.nii").get_data_dtype() == expected
        assert tifffile.imread(tmp_path / "b.tif").dtype == expected
        assert np.load(tmp_path / "b.npy").tolist() == [values]


@pytest.mark.parametrize("suffix", [".dcm", ""])
@pytest.mark.parametrize("dtype", ["int16", "uint16", "uint8"])
def test_a_dicom_series_is_sorted_by_position(tmp_path, suffix, dtype):
    values = _values(5, 3, 4, dtype=dtype)
    folder = dicom_series(tmp_path / "a", values, suffix, InstanceNumber=1, RescaleSlope=2, RescaleIntercept=-1024)
    (folder / "DICOMDIR").write_bytes(bytes(128) + b"DICM")
    (folder / "notes.txt").write_text("no slice")
    assert is_scan(folder)
    scan = read_scan(folder)
    _agree(scan, values, "DHW")
    assert (scan.scale, scan.offset, scan.suffix) == (2, -1024, ".nii.gz")


def test_a_dicom_series_becomes_nifti_with_its_geometry(tmp_path):
    scan = read_scan(dicom_series(tmp_path / "a", _values(5, 3, 4), RescaleSlope=2))
    write_scan(tmp_path / "a.nii.gz", scan.values[:2], scan)
    image = nibabel.load(tmp_path / "a.nii.gz")
    # x and y change their sign; columns are 3 mm apart, rows 2 mm, slices 4 mm
    assert np.allclose(image.affine, [[-3, 0, 0, -10], [0, -2, 0, -20], [0, 0, 4, 30], [0, 0, 0, 1]])
    assert np.allclose(image.header.get_qform(), image.affine)
    assert image.header.get_xyzt_units()[0] == "mm"
    assert np.array_equal(image.get_fdata(), 2.0 * scan.values[:2].T)


def test_sagittal_slices_are_sorted_along_their_normal(tmp_path):
    values, facing = _values(3, 4, 5), [0, 1, 0, 0, 0, -1]  # the normal is -x
    (tmp_path / "a").mkdir()
    for i, x in enumerate((5, -1, 2)):
        tags = {"ImagePositionPatient": [x, 20, 30], "ImageOrientationPatient": facing}
        (tmp_path / "a" / f"{i}.dcm").write_bytes(dicom(values[i], **tags))
    scan = read_scan(tmp_path / "a")
    assert np.array_equal(scan.values, values[[0, 2, 1]])
    expected = [[0, 0, 3, -5], [-3, 0, 0, -20], [0, -2, 0, 30], [0, 0, 0, 1]]
    assert np.allclose(scan.header.get_best_affine(), expected)


def test_the_geometry_of_oblique_slices_is_that_of_nibabel(tmp_path):
    turned, _ = np.linalg.qr(np.random.default_rng(1).normal(size=(3, 3)))
    along, down = turned[:, 0].round(6), turned[:, 1].round(6)
    (tmp_path / "a").mkdir()
    for i, pixels in enumerate(_values(3, 4, 5)):
        place = (np.array([7, -8, 9]) + 1.5 * i * np.cross(along, down)).round(6)
        tags = {"ImageOrientationPatient": [*along, *down], "ImagePositionPatient": [*place], "SliceThickness": 1.5}
        (tmp_path / "a" / f"{i}.dcm").write_bytes(dicom(pixels, **tags))
    with warnings.catch_warnings(action="ignore"):  # it calls itself experimental
        theirs = (
            importlib.import_module("nibabel.nicom.dicomwrappers").wrapper_from_file(tmp_path / "a" / "0.dcm").affine
        )
    # They count rows before columns, so slices against our normal, and in DICOM's directions.
    expected = np.diag([-1, -1, 1, 1]) @ theirs[:, [1, 0, 2, 3]] * [1, 1, -1, 1]
    assert np.allclose(read_scan(tmp_path / "a").header.get_best_affine(), expected, atol=1e-5)


def test_slices_without_positions_follow_their_numbers(tmp_path):
    values = _values(5, 3, 4)
    _agree(read_scan(dicom_series(tmp_path / "a", values, ImagePositionPatient=None)), values, "DHW")
    (tmp_path / "a" / "00.dcm").unlink()
    assert "lacks a slice" in _line(tmp_path / "a")


@pytest.mark.parametrize("lost", range(1, 6))
def test_a_missing_slice_is_told(tmp_path, lost):
    folder = dicom_series(tmp_path / "a", _values(8, 3, 4))
    next(file for file in folder.iterdir() if f"{(7 * lost + 3) % 8:02}" in file.name).unlink()
    assert "lacks a slice, or has one twice" in _line(folder)
    assert "8 apart, most 4" in _line(folder)


def test_a_slice_that_comes_twice_is_told(tmp_path):
    folder = dicom_series(tmp_path / "a", _values(4, 3, 4))
    shutil.copy(folder / "03.dcm", folder / "04.dcm")
    assert "lacks a slice, or has one twice: 03.dcm and 04.dcm are 0 apart" in _line(folder)


@pytest.mark.parametrize(
    ("tags", "name"),
    [
        ({"SeriesInstanceUID": "1.2.3"}, "SeriesInstanceUID"), ({"RescaleSlope": 3}, "RescaleSlope"),
        ({"ImageOrientationPatient": [0, 1, 0, 0, 0, 1]}, "ImageOrientationPatient"),
        ({"ImageOrientationPatient": None}, "ImageOrientationPatient"),
    ],
)  # fmt: skip
def test_mixed_series_are_refused(tmp_path, tags, name):
    folder = dicom_series(tmp_path / "a", _values(3, 4, 5))
    (folder / "x.dcm").write_bytes(dicom(_values(4, 5), ImagePositionPatient=[10, 20, 42], **tags))
    assert f"mixes slices of {name}" in _line(folder)
    assert "x.dcm" in _line(folder)


@pytest.mark.parametrize("pixels", [_values(5, 5), _values(4, 5, dtype="uint8")])
def test_mixed_sizes_and_types_are_refused(tmp_path, pixels):
    folder = dicom_series(tmp_path / "a", _values(3, 4, 5))
    (folder / "x.dcm").write_bytes(dicom(pixels, ImagePositionPatient=[10, 20, 42]))
    assert "mixes slices of" in _line(folder)


def test_orientations_that_differ_by_rounding_are_one_series(tmp_path):
    folder = dicom_series(tmp_path / "a", _values(3, 4, 5))
    tags = {"ImagePositionPatient": [10, 20, 42.01], "ImageOrientationPatient": [0.9999, 1e-5, 0, 0, 1, 0]}
    (folder / "x.dcm").write_bytes(dicom(_values(4, 5), **tags))
    assert read_scan(folder).values.shape == (4, 4, 5)


@pytest.mark.parametrize("packed", [False, True])
def test_frames_of_one_dicom_file_are_sorted_by_their_positions(tmp_path, packed):
    values = _values(3, 4, 5)
    (tmp_path / "a.dcm").write_bytes(dicom(values, packed, **frames_with_places([9, 5, 1])))
    assert is_scan(tmp_path / "a.dcm")
    scan = read_scan(tmp_path / "a.dcm")
    _agree(scan, values[::-1], "DHW")
    assert (scan.scale, scan.offset) == (2, -5)
    assert np.allclose(scan.header.get_best_affine(), [[-3, 0, 0, -10], [0, -2, 0, -20], [0, 0, 4, 1], [0, 0, 0, 1]])


def test_frames_without_positions_are_times(tmp_path):
    (tmp_path / "a.dcm").write_bytes(dicom(_values(3, 4, 5)))
    _agree(read_scan(tmp_path / "a.dcm"), _values(3, 4, 5), "THW")


def test_colours_of_dicom_are_channels(tmp_path):
    pixels = _values(4, 5, 3, dtype="uint8")
    tags = {"Rows": 4, "Columns": 5, "SamplesPerPixel": 3, "PlanarConfiguration": 0, "NumberOfFrames": None}
    (tmp_path / "a.dcm").write_bytes(dicom(pixels, PhotometricInterpretation="RGB", **tags))
    scan = read_scan(tmp_path / "a.dcm")
    _agree(scan, pixels, "HWC")
    write_scan(tmp_path / "a.nii", pixels, scan)
    _agree(read_scan(tmp_path / "a.nii"), pixels, "HWC")


def test_deep_colours_of_dicom_become_vectors_of_nifti(tmp_path):
    pixels = _values(4, 5, 3, dtype="uint16")
    tags = {"Rows": 4, "Columns": 5, "SamplesPerPixel": 3, "PlanarConfiguration": 0, "NumberOfFrames": None}
    (tmp_path / "a.dcm").write_bytes(dicom(pixels, PhotometricInterpretation="RGB", **tags))
    write_scan(tmp_path / "a.nii", pixels, read_scan(tmp_path / "a.dcm"))
    _agree(read_scan(tmp_path / "a.nii"), pixels, "HWC")


def test_dicom_without_an_image_is_named(tmp_path):
    (tmp_path / "a.dcm").write_bytes(dicom(_values(4, 5), Rows=None))
    assert "holds no image" in _line(tmp_path / "a.dcm")


@pytest.mark.parametrize(
    ("packed", "syntax", "reason"),
    [(True, JPEGLSLossless, "Unable to deco"), (False, DeflatedExplicitVRLittleEndian, "is a deflated DICOM file")],
)
def test_packings_that_are_not_unpacked_are_named(tmp_path, packed, syntax, reason):
    found = pydicom.dcmread(io.BytesIO(dicom(_values(4, 5), packed)))
    found.file_meta.TransferSyntaxUID = syntax
    found.save_as(tmp_path / "a.dcm")
    assert reason in _line(tmp_path / "a.dcm")


@pytest.mark.parametrize(
    ("axes", "letters", "shape"),
    [
        ("ZYX", "DHW", (3, 4, 5)), ("TZYX", "TDHW", (2, 3, 4, 5)), ("TYX", "THW", (3, 4, 5)), ("YXS", "HWC", (8, 9, 3)),
        ("TZCYX", "TDCHW", (2, 3, 2, 4, 5)), ("QYX", "DHW", (3, 4, 5)), ("QQYX", "TDHW", (2, 3, 4, 5)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("byteorder", ["<", ">"])
@pytest.mark.parametrize("compression", [None, "zlib"])
def test_tiff_stacks_keep_values_and_axes_in_a_round_trip(tmp_path, axes, letters, shape, byteorder, compression):
    values = _values(*shape, dtype="uint16")
    tifffile.imwrite(
        tmp_path / "a.tif", values, byteorder=byteorder, compression=compression, metadata={"axes": axes},
        photometric="rgb" if axes[-1] == "S" else "minisblack",
    )  # fmt: skip
    scan = read_scan(tmp_path / "a.tif")
    _agree(scan, values, letters)
    assert isinstance(scan.values, np.memmap) == (compression is None)
    assert is_scan(tmp_path / "a.tif") == (len(shape) > 3 or axes[-1] == "X")
    write_scan(tmp_path / "b.tif", scan.values, scan)
    _agree(read_scan(tmp_path / "b.tif"), values, letters)
    write_scan(tmp_path / "b.tif", scan.values[0], scan)
    assert np.array_equal(tifffile.imread(tmp_path / "b.tif"), values[0])


@pytest.mark.parametrize("kind", ["ome", "imagej", "bigtiff"])
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32"])
def test_kinds_of_tiff_are_read(tmp_path, kind, dtype):
    values = _values(2, 3, 4, 5, dtype=dtype)
    tifffile.imwrite(tmp_path / "a.tif", values, **{kind: True}, metadata={"axes": "TZYX"}, photometric="minisblack")
    assert is_scan(tmp_path / "a.tif")
    _agree(read_scan(tmp_path / "a.tif"), values, "TDHW")


def test_tiff_files_of_one_page_are_no_scans_and_damaged_ones_are_refused(tmp_path):
    tifffile.imwrite(tmp_path / "a.tif", _values(4, 5))
    (tmp_path / "b.tif").write_bytes(b"II*\0\xff\xff\xff\xff")
    (tmp_path / "c.tif").write_bytes(b"")
    (tmp_path / "d.tif").write_bytes(b"MM\0+\0\x08\0\0" + b"\xff" * 8)
    assert not any(is_scan(tmp_path / f"{name}.tif") for name in "ae")
    for name in "bcd":
        assert f"{name}.tif" in _line(tmp_path / f"{name}.tif")


def test_tiff_files_that_name_others_are_refused(tmp_path):
    tifffile.imwrite(tmp_path / "a.ome.tif", _values(3, 4, 5), metadata={"axes": "ZYX"}, ome=True)
    file = tifffile.TiffFile(tmp_path / "a.ome.tif")
    text = file.ome_metadata.replace("</TiffData>", '<UUID FileName="b.ome.tif">urn:uuid:1</UUID></TiffData>')
    text = (
        text
        if "FileName" in text
        else text.replace("<TiffData", '<TiffData><UUID FileName="b.tif">u</UUID></TiffData><TiffData')
    )
    tifffile.imwrite(tmp_path / "c.ome.tif", _values(3, 4, 5), description=text, metadata=None)
    assert "part of several files" in _line(tmp_path / "c.ome.tif")


def test_tiff_pages_of_several_sizes_are_refused(tmp_path):
    with tifffile.TiffWriter(tmp_path / "a.tif") as file:
        file.write(_values(4, 5))
        file.write(_values(6, 7))
    assert is_scan(tmp_path / "a.tif")
    assert "no array or several" in _line(tmp_path / "a.tif")


_ORDERS = "int16", "uint16", "uint8", "float32", ">i2", ">u2", "bool"


@pytest.mark.parametrize("dtype", _ORDERS)
@pytest.mark.parametrize(
    ("shape", "axes"), [((5,), "L"), ((4, 5), "HW"), ((3, 4, 5), "DHW"), ((2, 3, 4, 5), "TDHW"), ((4, 5, 3), "HWC")]
)
@pytest.mark.parametrize("options", [{}, {"chunks": True, "compression": "gzip"}])
def test_hdf5_datasets_are_read(tmp_path, dtype, shape, axes, options):
    values = _values(*shape, dtype="uint8").astype(dtype)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("group/x", data=values, **options)
    for name in ("a.h5", "a.h5::group/x", "a.h5::/group/x"):
        assert is_scan(tmp_path / name)
        _agree(read_scan(str(tmp_path / name)), values, axes)


@pytest.mark.parametrize("dtype", _ORDERS[:-1])
@pytest.mark.parametrize("version", [2, 3])
def test_zarr_arrays_are_read(tmp_path, dtype, version):
    values = _values(3, 4, 5, dtype="uint8").astype(dtype)
    group = zarr.open_group(tmp_path / "a.zarr", mode="w", zarr_format=version)
    group.create_array("group/x", data=values, chunks=(2, 3, 4))
    zarr.create_array(tmp_path / "b.zarr", data=values, chunks=(2, 3, 4), zarr_format=version)
    for name in ("a.zarr", "a.zarr::group/x", "b.zarr"):
        assert is_scan(tmp_path / name)
        _agree(read_scan(tmp_path / name), values, "DHW")


def test_names_are_listed_where_one_must_be_given(tmp_path):
    group = zarr.open_group(tmp_path / "a.zarr", mode="w")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for name in ("x", "y"):
            file[name] = _values(4, 5)
            group.create_array(name, data=_values(4, 5))
    for suffix in (".h5", ".zarr"):
        assert "holds 2 arrays ('x', 'y'): name one, as in" in _line(tmp_path / f"a{suffix}")
        assert "holds 2 arrays" in _line(f"{tmp_path / 'a'}{suffix}::z")
        assert read_scan(f"{tmp_path / 'a'}{suffix}::y").values.shape == (4, 5)
    with h5py.File(tmp_path / "b.h5", "w"):
        pass
    assert "holds no arrays" in _line(tmp_path / "b.h5")


def test_large_datasets_are_read_where_they_are_sliced(tmp_path, monkeypatch):
    monkeypatch.setattr(scan_files, "UNPACKED_LIMIT", 1000)
    values = _values(30, 20, 10)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", data=values, chunks=(5, 10, 10), compression="gzip")
    zarr.create_array(tmp_path / "a.zarr", data=values, chunks=(5, 10, 10))
    for name in ("a.h5", "a.zarr"):
        found = read_scan(tmp_path / name).values
        assert not isinstance(found, np.ndarray)
        assert (found.shape, found.dtype, found.ndim) == (values.shape, values.dtype, 3)
        assert np.array_equal(found[3:7, :, 2], values[3:7, :, 2])
        assert np.array_equal(np.asarray(found), values)
        write_scan(tmp_path / "b.npy", found, read_scan(tmp_path / name))
        assert np.array_equal(np.load(tmp_path / "b.npy"), values)
    (tmp_path / "a.zarr" / "c" / "0" / "0" / "0").write_bytes(b"damaged")
    with pytest.raises(ValueError, match=r"a\.zarr cannot be read"):
        load(tmp_path / "a.zarr", DataConfig(size=(5, 10, 10)))


def test_hdf5_that_refers_to_other_files_is_refused(tmp_path):
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret words")
    with h5py.File(tmp_path / "b.h5", "w") as file:
        file["x"] = _values(4, 5)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("raw", (12,), np.uint8, external=[(str(secret), 0, 12)])
        layout = h5py.VirtualLayout((4, 5), np.int16)
        layout[:] = h5py.VirtualSource(tmp_path / "b.h5", "x", (4, 5))
        file.create_virtual_dataset("virtual", layout)
        file["link"] = h5py.ExternalLink(tmp_path / "b.h5", "x")
    for name, reason in (("raw", "refers to other"), ("virtual", "refers to other"), ("link", "holds 2 arrays")):
        assert reason in _line(f"{tmp_path / 'a.h5'}::{name}")


def test_what_is_no_number_is_refused(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["text"] = ["a", "b"]
        file["complex"] = np.ones(3, np.complex64)
        file["fields"] = np.ones(3, [("a", "u1"), ("b", "u2")])
        file["empty"] = np.ones((0, 5))
        file["scalar"] = 5
        file["many"] = np.ones((2,) * 6)
    for name in ("text", "complex", "fields", "empty", "scalar", "many"):
        assert "holds an array" in _line(f"{tmp_path / 'a.h5'}::{name}")
    nibabel.Nifti1Image(np.ones((3, 4), np.complex64), None).to_filename(tmp_path / "a.nii")
    assert "type complex64" in _line(tmp_path / "a.nii")


def test_pickles_in_zarr_are_refused_before_zarr_sees_them(tmp_path, monkeypatch):
    monkeypatch.setattr(zarr, "open_array", lambda *args, **options: pytest.fail("opened"))
    sound = {
        "chunks": [2], "compressor": None, "dtype": "<u2", "fill_value": 0, "filters": None, "order": "C", "shape": [2],
        "zarr_format": 2,
    }  # fmt: skip
    (tmp_path / "a.zarr").mkdir()
    for change in (
        {"filters": [{"id": "pickle"}]}, {"compressor": {"id": "pickle"}}, {"dtype": "|O"}, {"dtype": [["a", "<u2"]]},
        {"filters": [{"id": "json2"}]}, {"filters": [{"id": "zlib"}], "compressor": {"id": "zlib"}}, {"dtype": "<c8"},
    ):  # fmt: skip
        (tmp_path / "a.zarr" / ".zarray").write_text(json.dumps({**sound, **change}))
        assert "save numbers" in _line(tmp_path / "a.zarr")


def test_claims_are_refused_before_memory_is_taken(tmp_path):
    values = _values(3, 4, 5)
    content = bytearray(_nifti(tmp_path / "a.nii", values).read_bytes())
    struct.pack_into("<4h", content, 40, 3, 32767, 32767, 32767)
    (tmp_path / "a.nii").write_bytes(content)
    assert "decompression bomb" in _line(tmp_path / "a.nii")
    struct.pack_into("<4h", content, 40, 3, 5, 4, 4)
    (tmp_path / "a.nii").write_bytes(content)
    assert "it is cut off" in _line(tmp_path / "a.nii")

    tifffile.imwrite(tmp_path / "a.tif", values, metadata={"axes": "ZYX"})
    content = bytearray((tmp_path / "a.tif").read_bytes())
    page = tifffile.TiffFile(tmp_path / "a.tif").pages[0]
    struct.pack_into("<I", content, page.tags["ImageLength"].valueoffset, 1 << 22)
    struct.pack_into("<I", content, page.tags["RowsPerStrip"].valueoffset, 1)
    (tmp_path / "a.tif").write_bytes(content)
    assert "strips of pixels" in _line(tmp_path / "a.tif")

    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", (1 << 20, 1 << 20), np.uint8, chunks=(1 << 10, 1 << 10))
        file.create_dataset("y", (1 << 24,), np.uint8, chunks=(1,))
    assert "decompression bomb" in _line(f"{tmp_path / 'a.h5'}::x")
    assert "cut into 16,777,216 blocks" in _line(f"{tmp_path / 'a.h5'}::y")
    zarr.create_array(tmp_path / "b.zarr", shape=(1 << 20,), chunks=(1,), dtype="uint8")
    assert "cut into 1,048,576 blocks" in _line(tmp_path / "b.zarr")
    zarr.create_array(tmp_path / "a.zarr", shape=(5,), chunks=(1 << 40,), dtype="uint8")
    assert "decompression bomb" in _line(tmp_path / "a.zarr")

    tags = {"Rows": 60_000, "Columns": 60_000, "NumberOfFrames": 3}
    (tmp_path / "a.dcm").write_bytes(dicom(values, **tags))
    assert "decompression bomb" in _line(tmp_path / "a.dcm")
    (tmp_path / "a.dcm").write_bytes(dicom(values, NumberOfFrames=1 << 30))
    assert "claims 1,073,741,824 frames" in _line(tmp_path / "a.dcm")


def test_what_is_packed_twice_is_refused(tmp_path):
    plan = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plan.set_chunk((4, 5))
    plan.set_shuffle()
    plan.set_deflate(6)
    plan.set_deflate(6)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        h5py.h5d.create(file.id, b"x", h5py.h5t.NATIVE_INT16, h5py.h5s.create_simple((4, 5)), plan)
    assert "more than once: refused as a decompression bomb" in _line(tmp_path / "a.h5")


def test_zipped_bombs_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(scan_files, "UNPACKED_LIMIT", 1 << 20)
    (tmp_path / "a.nii.gz").write_bytes(gzip.compress(bytes(1 << 25)))
    assert "decompression bomb" in _line(tmp_path / "a.nii.gz")


def _sound_files(place: Path) -> list[Path]:
    values = _values(3, 4, 5)
    for name in ("a.nii", "a.nii.gz"):
        _nifti(place / name, values)
    tifffile.imwrite(place / "a.tif", values, metadata={"axes": "ZYX"})
    tifffile.imwrite(place / "b.tif", values, compression="zlib", metadata={"axes": "ZYX"})
    with h5py.File(place / "a.h5", "w") as file:
        file["x"] = values
    (place / "a.dcm").write_bytes(dicom(values))
    return sorted(place.iterdir())


@pytest.mark.parametrize("kept", [0.0, 0.02, 0.1, 0.5, 0.95])
def test_files_that_are_cut_off_are_named(tmp_path, kept):
    for path in _sound_files(tmp_path):
        path.write_bytes(path.read_bytes()[: int(path.stat().st_size * kept)])
        _line(path)


def test_a_missing_file_is_named(tmp_path):
    for name in ("a.nii", "a.dcm", "a.tif", "a.h5", "a.h5::x", "a.zarr"):
        with pytest.raises(FileNotFoundError) as caught:
            read_scan(tmp_path / name)
        assert caught.value.filename == str(tmp_path / name.partition("::")[0])


def test_other_files_are_no_scans(tmp_path):
    (tmp_path / "a.png").write_bytes(b"")
    assert not is_scan(tmp_path / "a.png")
    assert not is_scan(tmp_path)
    assert not is_scan("https://host/a::b")
    assert "is no scan: give .nii" in _line(tmp_path / "a.png")
    assert "holds no DICOM file" in _line(tmp_path)


def test_writing_is_whole_or_nothing(tmp_path):
    scan = Scan(_values(3, 4), "HW")
    with pytest.raises(ValueError, match=r"a\.png has no suffix of a scan"):
        write_scan(tmp_path / "a.png", scan.values, scan)
    with pytest.raises(ValueError, match=r"a\.nii cannot be written"):
        write_scan(tmp_path / "a.nii", np.ones((1,) * 8), scan)
    assert not [*tmp_path.iterdir()]
    for name in ("a.nii", "a.nii.gz", "a.tif", "a.npy"):
        write_scan(tmp_path / name, scan.values, scan)
        first = (tmp_path / name).read_bytes()
        write_scan(tmp_path / name, scan.values, scan)
        assert (tmp_path / name).read_bytes() == first
    assert nibabel.load(tmp_path / "a.nii").get_data_dtype() == np.int16
    assert {path.name for path in tmp_path.iterdir()} == {"a.nii", "a.nii.gz", "a.tif", "a.npy"}


@pytest.mark.parametrize("package", ["nibabel", "pydicom", "tifffile", "h5py", "zarr"])
def test_without_the_extra_one_line_names_it(tmp_path, monkeypatch, package):
    files = _sound_files(tmp_path)
    zarr.create_array(tmp_path / "a.zarr", data=_values(3, 4, 5))
    monkeypatch.setattr(storage, "find_spec", lambda name: None if name == package else find_spec(name))
    of = {"nibabel": "a.nii.gz", "pydicom": "a.dcm", "tifffile": "a.tif", "h5py": "a.h5", "zarr": "a.zarr"}[package]
    line = _line(tmp_path / of)
    assert f"{of} needs the package {package}: pip install 'axial-transformers[scientific]'" in line
    assert "cannot be read" not in line
    assert len(files) == 6


def test_parsers_are_imported_at_their_first_use_and_stay_silent(tmp_path, caplog):
    packages = {"nibabel", "pydicom", "tifffile", "h5py", "zarr"}
    code = f"import sys, axial_transformers.data.scans as s; sys.exit(bool({packages} & {{*sys.modules}}))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
    (tmp_path / "a.tif").write_bytes(_sound_files(tmp_path)[4].read_bytes()[:-30])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for path in sorted(tmp_path.iterdir()):
            path.write_bytes(path.read_bytes()[:-2])
            _line(path)
    assert not caplog.records
    assert not any(logging.getLogger(name).disabled for name in ("nibabel.global", "pydicom", "tifffile"))


def test_limits_are_those_of_arrays():
    assert scan_files.UNPACKED_LIMIT == npy.UNPACKED_LIMIT


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
