"""Formats of scans: files that other libraries wrote are read, and return from archives."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import nibabel
import numpy as np
import pytest
import tifffile
import torch
import zarr
from astropy.io import fits

from axial_transformers import storage
from axial_transformers.compression import compress_files, decompress_files
from axial_transformers.compression.contents import read_contents
from axial_transformers.data import DataConfig, load, open_source
from axial_transformers.data.scans import SUFFIXES, Scan, is_scan, read_scan
from tests.scan_writer import (
    file_of_afni,
    file_of_fits,
    file_of_freesurfer,
    file_of_meta_image,
    file_of_nrrd,
    make_scan,
)
from tests.small_models import random_model, small_config

AFFINE = np.array([[0.0, 0, 4, 5], [-2, 0, 0, 6], [0, 3, 0, 7], [0, 0, 0, 1]])
"""Voxels [W, H, D] to millimetres: along x, y and z of the body lie D, W and H."""
LPS = np.diag([-1.0, -1, 1, 1])


def values_of(*shape: int, dtype: str = "int16", high: int = 300) -> np.ndarray:
    return np.random.default_rng(len(shape)).integers(0, high, shape).astype(dtype)


def affine_of(scan: Scan) -> np.ndarray:
    kind = nibabel.Nifti2Header if len(scan.header) > 348 else nibabel.Nifti1Header
    return kind(scan.header).get_best_affine()


def agree(scan: Scan, values: np.ndarray, axes: str, affine: np.ndarray | None = None) -> None:
    assert scan.axes == axes
    assert scan.values.dtype.newbyteorder("=") == values.dtype.newbyteorder("=")
    assert np.array_equal(scan.values, values)
    if affine is not None:
        assert np.allclose(affine_of(scan), affine, atol=1e-5)


def nrrd(path: Path, values: np.ndarray) -> None:
    """With the axes of `AFFINE`, in the directions of DICOM."""
    directions = " ".join(f"({','.join(map(str, column))})" for column in (LPS @ AFFINE)[:3, :3].T)
    origin = f"({','.join(map(str, (LPS @ AFFINE)[:3, 3]))})"
    stated = {"space_directions": directions, "space_origin": origin}
    file_of_nrrd(path, values, ["domain"] * 3, "left-posterior-superior", **stated)


def meta_image(path: Path, values: np.ndarray) -> None:
    affine = LPS @ AFFINE
    spacing = np.linalg.norm(affine[:3, :3], axis=0)
    turned = " ".join(map(str, (affine[:3, :3] / spacing).T.ravel()))
    words = {"Offset": affine[:3, 3], "ElementSpacing": spacing}
    stated = {name: " ".join(map(str, each)) for name, each in words.items()}
    file_of_meta_image(path, values, TransformMatrix=turned, **stated)


def pair(path: Path, values: np.ndarray) -> None:
    nibabel.Nifti1Pair(values.T, AFFINE).to_filename(path)


def hdf5(path: Path, values: np.ndarray) -> None:
    with h5py.File(path, "w", userblock_size=512 if path.suffix == ".mat" else 0) as file:
        file["v"] = values.T if path.suffix == ".mat" else values
        if path.suffix == ".mat":
            file["v"].attrs["MATLAB_class"] = np.bytes_(values.dtype.name)


AFNI_AFFINE = LPS @ [[2, 0, 0, 5], [0, 3, 0, 6], [0, 0, 4, 7], [0, 0, 0, 1]]
Write = Callable[[Path, np.ndarray], Any]
ROWS: dict[str, tuple[Write, np.ndarray | None]] = {
    ".nii": (lambda path, values: nibabel.Nifti1Image(values.T, AFFINE).to_filename(path), AFFINE),
    ".nii.gz": (lambda path, values: nibabel.Nifti2Image(values.T, AFFINE).to_filename(path), AFFINE),
    ".hdr": (pair, AFFINE),
    ".mgz": (lambda path, values: file_of_freesurfer(path, values, AFFINE), AFFINE),
    ".mgh": (lambda path, values: file_of_freesurfer(path, values, AFFINE), AFFINE),
    ".HEAD": (lambda path, values: file_of_afni(path, values[None], [0.0]), AFNI_AFFINE),
    ".nrrd": (nrrd, AFFINE),
    ".nhdr": (nrrd, AFFINE),
    ".mha": (meta_image, AFFINE),
    ".mhd": (meta_image, AFFINE),
    ".dcm": (make_scan, None),
    ".tif": (make_scan, None),
    ".tiff": (lambda path, values: tifffile.imwrite(path, values, metadata={"axes": "ZYX"}), None),
    ".fits": (lambda path, values: file_of_fits(path, [values]), None),
    ".fit": (lambda path, values: file_of_fits(path, [values], BSCALE=0.5, BZERO=7), None),
    ".fts": (lambda path, values: fits.PrimaryHDU(values).writeto(path), None),
    ".fits.gz": (lambda path, values: file_of_fits(path, [values]), None),
    **dict.fromkeys((".h5", ".hdf5", ".he5", ".nc", ".nc4", ".mat"), (hdf5, None)),
    ".zarr": (lambda path, values: zarr.create_array(path, data=values), None),
}


def test_every_suffix_of_the_table_is_tried_here():
    assert {suffix.lower() for suffix in ROWS} == {*SUFFIXES}


@pytest.mark.parametrize("suffix", ROWS)
def test_what_other_libraries_wrote_is_read_and_returns_from_an_archive(tmp_path, suffix):
    write, affine = ROWS[suffix]
    path, values = tmp_path / f"a{suffix}", values_of(6, 9, 8)
    write(path, values)
    assert is_scan(path)
    scan = read_scan(path)
    agree(scan, values, "DHW", affine)
    model = random_model(small_config((2, 4, 4), 1, "columns", num_values=300), torch.float32)
    compress_files(model, path, tmp_path / "a.axl", force=True, embed=False)
    decompress_files(model, tmp_path / "a.axl", tmp_path / "back")
    (returned,) = (tmp_path / "back").iterdir()
    assert returned.name == f"a{scan.suffix}"
    again = read_scan(returned)
    agree(again, values, "DHW", affine)
    assert (again.scale, again.offset) == (scan.scale, scan.offset)


@pytest.mark.parametrize("names", [("time", "lat", "lon"), ("band", "y", "x"), ("x", "z", "y"), ("", "", "time")])
def test_names_of_axes_and_units_return_from_an_archive(tmp_path, names):
    values = values_of(4, 4, 5)
    with h5py.File(tmp_path / "a.nc", "w") as file:
        file["v"] = values
        file["v"].attrs.update(scale_factor=np.float32(0.5), add_offset=-3)
        for axis, name in zip(file["v"].dims, names, strict=True):
            axis.label = name
    scan = read_scan(tmp_path / "a.nc")
    channels = 4 if "C" in scan.axes else 1
    shape = (2, 2) if "C" in scan.axes else (2, 2, 2)
    model = random_model(small_config(shape, channels, "columns", num_values=300), torch.float32)
    compress_files(model, tmp_path / "a.nc", tmp_path / "a.axl", force=True, embed=False)
    decompress_files(model, tmp_path / "a.axl", tmp_path / "back.h5")
    again = read_scan(tmp_path / "back.h5")
    assert np.array_equal(again.values, values)
    assert (again.values.dtype, again.axes, again.scale, again.offset) == (values.dtype, scan.axes, 0.5, -3.0)


@pytest.mark.parametrize("suffix", [".nrrd", ".hdr", ".mgz", ".mha", ".fits"])
@pytest.mark.parametrize("dtype", ["uint8", "float32", "int16"])
def test_types_are_kept(tmp_path, suffix, dtype):
    write, affine = ROWS[suffix]
    values = values_of(3, 4, 5, dtype=dtype, high=200)
    write(tmp_path / f"a{suffix}", values)
    agree(read_scan(tmp_path / f"a{suffix}"), values, "DHW", affine)


def test_a_folder_holds_a_file_and_its_values_once(tmp_path):
    for suffix in (".hdr", ".HEAD", ".nhdr", ".mhd"):
        folder = tmp_path / suffix
        folder.mkdir()
        for name in "ab":
            ROWS[suffix][0](folder / f"{name}{suffix}", values_of(2, 4, 4))
        assert len(load(folder, DataConfig(size=(2, 4, 4)), "all")) == 2
        path = next(each for each in folder.iterdir() if each.suffix == suffix)
        model = small_config((2, 4, 4), num_values=300)
        size = sum(each.stat().st_size for each in folder.iterdir() if each.stem == path.stem)
        assert read_contents(open_source(path), model).input_size == size


def test_volumes_over_time_and_channels_are_read(tmp_path):
    series = values_of(2, 3, 4, 5)
    file_of_freesurfer(tmp_path / "a.mgz", series, AFFINE)
    file_of_afni(tmp_path / "a.HEAD", series, [0.5, 0.5])
    file_of_meta_image(tmp_path / "a.mha", series)
    for name in ("a.mgz", "a.HEAD", "a.mha"):
        agree(read_scan(tmp_path / name), series, "TDHW")
    assert read_scan(tmp_path / "a.HEAD").scale == 0.5
    pixels = values_of(4, 5, 3)
    file_of_meta_image(tmp_path / "b.mha", pixels, channels=3)
    file_of_nrrd(tmp_path / "b.nrrd", pixels, ["vector", "domain", "domain"])
    for name in ("b.mha", "b.nrrd"):
        agree(read_scan(tmp_path / name), pixels, "HWC")
        assert read_scan(tmp_path / name).suffix == ".npy"


def test_volumes_of_afni_with_factors_of_their_own_are_refused(tmp_path):
    file_of_afni(tmp_path / "a.HEAD", values_of(2, 3, 4, 5), [0.5, 2.0])
    with pytest.raises(ValueError, match=r"a\.HEAD has volumes of 2 factors: convert it"):
        read_scan(tmp_path / "a.HEAD")


def test_analyze_does_not_say_which_side_is_left(tmp_path):
    values = values_of(3, 4, 5)
    header = np.zeros(348, np.uint8)
    header[:4] = np.array([348], "<i4").view(np.uint8)
    header[40:56] = np.array([4, 5, 4, 3, 1, 0, 0, 0], "<i2").view(np.uint8)
    header[70:74] = np.array([4, 16], "<i2").view(np.uint8)
    header[76:92] = np.array([1, 2, 3, 4], "<f4").view(np.uint8)
    (tmp_path / "a.hdr").write_bytes(header.tobytes())
    (tmp_path / "a.img").write_bytes(values.tobytes())
    with pytest.warns(UserWarning, match="does not say which side is left"):
        agree(read_scan(tmp_path / "a.hdr"), values, "DHW")


@pytest.mark.parametrize(
    ("stored", "zero", "expected"),
    [("int16", 32768, "uint16"), ("int32", 2**31, "uint32"), ("uint8", -128, "int8"), ("int16", 1000, "int16")],
)
def test_fits_may_say_that_integers_have_no_sign(tmp_path, stored, zero, expected):
    values = np.random.default_rng(0).integers(-100, 100, (3, 4, 5)).astype(stored)
    file_of_fits(tmp_path / "a.fits", [values], BZERO=zero, BSCALE=1)
    scan = read_scan(tmp_path / "a.fits")
    meant = values.astype(np.int64) + zero
    assert scan.values.dtype == np.dtype(expected).newbyteorder(scan.values.dtype.byteorder)
    assert (scan.values.astype(np.int64) * scan.scale + scan.offset).tolist() == meant.tolist()


def test_scale_of_fits_is_kept_and_missing_values_are_said(tmp_path):
    values = values_of(3, 4, 5)
    file_of_fits(tmp_path / "a.fits", [values], BSCALE=0.5, BZERO=10, BLANK=int(values[0, 0, 0]))
    with pytest.warns(UserWarning, match=f"BLANK says that {values[0, 0, 0]} stands for what is missing"):
        scan = read_scan(tmp_path / "a.fits")
    agree(scan, values, "DHW")
    assert (scan.scale, scan.offset) == (0.5, 10)


def test_one_of_several_images_of_fits_is_named(tmp_path):
    images = [values_of(4, 5), values_of(3, 4, 5), values_of(1, 4, 5)]
    file_of_fits(tmp_path / "a.fits", images)
    with pytest.raises(ValueError, match=r"a\.fits holds 3 arrays \(E1, E2, PRIMARY\): name one, as in a\.fits::name"):
        read_scan(tmp_path / "a.fits")
    agree(read_scan(f"{tmp_path / 'a.fits'}::PRIMARY"), images[0], "HW")
    agree(read_scan(f"{tmp_path / 'a.fits'}::E1"), images[1], "DHW")
    agree(read_scan(f"{tmp_path / 'a.fits'}::E2"), images[2][0], "HW")
    packed = fits.CompImageHDU(images[1], name="SCI", compression_type="GZIP_1")
    fits.HDUList([fits.PrimaryHDU(), packed]).writeto(tmp_path / "b.fits")
    agree(read_scan(tmp_path / "b.fits"), images[1], "DHW")


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("a.grib2", "grib_to_netcdf"), ("a.czi", "bfconvert"), ("a.nd2", "bfconvert"), ("a.SEGY", "segyio"),
        ("a.mnc", "mnc2nii"), ("a.bsq", "gdal_translate"), ("a.hdr", "gdal_translate"), ("a.img", r"\.hdr"),
    ],
)  # fmt: skip
def test_a_format_that_is_not_read_is_one_line_that_says_with_what_to_convert_it(tmp_path, name, advice):
    (tmp_path / name).write_bytes(b"ENVI\nsamples = 3\n")
    for source in (tmp_path / name, tmp_path):
        with pytest.raises(ValueError, match=rf"{name} is .*{advice}") as caught:
            load(source, DataConfig(skip_bad=0), "all")
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("package", "suffix"), [("SimpleITK", ".nrrd"), ("astropy", ".fits"), ("nibabel", ".mgz")])
def test_without_the_extra_one_line_names_it(tmp_path, monkeypatch, package, suffix):
    ROWS[suffix][0](tmp_path / f"a{suffix}", values_of(3, 4, 5))
    monkeypatch.setattr(storage, "find_spec", lambda wanted: None if wanted == package else True)
    with pytest.raises(ValueError, match=rf"a{suffix} needs the package {package}: pip install '.*\[scientific\]'"):
        read_scan(tmp_path / f"a{suffix}")


@pytest.mark.parametrize("suffix", [".nrrd", ".mha", ".mgz", ".HEAD", ".fits", ".hdr"])
def test_files_that_are_cut_off_are_named_in_one_line(tmp_path, suffix):
    path = tmp_path / f"a{suffix}"
    ROWS[suffix][0](path, values_of(6, 9, 80))
    detached = [each for each in tmp_path.iterdir() if each != path]
    for file in (path, *detached):
        content = file.read_bytes()
        for kept in (0.0, 0.3, 0.95):
            if file.suffix == ".HEAD" and kept:
                continue  # lines that it does not need may be missing
            file.write_bytes(content[: int(len(content) * kept)])
            with pytest.raises((ValueError, OSError), match=rf"a{suffix}") as caught:
                read_scan(path)
            assert "\n" not in str(caught.value)
        file.write_bytes(content)
