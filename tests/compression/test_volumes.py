"""Scans and arrays of any lengths to an archive, and back byte for byte, or with the same values."""

import gzip
import json
import logging
import shutil
import zlib
from dataclasses import replace
from itertools import product
from pathlib import Path
from random import Random

import h5py
import nibabel
import numpy as np
import pytest
import tifffile
import torch
import zarr

from axial_transformers.compression import ArchiveError, DamagedError, compress, compress_files, decompress_files
from axial_transformers.compression.files.entries import pack_frame, unpack_frame
from axial_transformers.data.scans import read_scan
from axial_transformers.models import AxialTransformer
from tests.scan_writer import dicom, dicom_series
from tests.small_models import archiving_model, random_model, small_config

SHAPE = (5, 7, 9)
"""Of volumes: no length is a multiple of the model's, (2, 4, 4)."""


def model_of(channels: int = 1, **fields) -> AxialTransformer:
    wide = {"values": "ordinal", "mixtures": 2, "num_values": 3000, "lowest": -1000}
    return random_model(small_config((2, 4, 4), channels, "columns", **{**wide, **fields}), torch.float32)


@pytest.fixture(scope="module")
def model() -> AxialTransformer:
    return model_of()


def noise(*shape: int, dtype="int16", low: int = 0, high: int = 250) -> np.ndarray:
    return np.random.default_rng(0).integers(low, high, shape).astype(dtype)


def there_and_back(model, source, target: Path, **options) -> Path:
    archive = target.parent / "a.axl"
    compress_files(model, source, archive, force=True, **options)
    assert decompress_files(model, archive, target) == []
    return target


def files_of(path: Path) -> dict[str, bytes]:
    if path.is_file():
        return {"": path.read_bytes()}
    return {file.relative_to(path).as_posix(): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def nifti(path: Path, values: np.ndarray, **fields) -> Path:
    affine = np.diag([2.0, 3.0, 4.0, 1.0])
    image = nibabel.Nifti1Image(values.T, affine, nibabel.Nifti1Header(endianness="><"[values.dtype.isnative]))
    image.header.set_data_dtype(values.dtype)
    image.header["descrip"] = b"of a patient"
    for name, value in fields.items():
        image.header[name] = value
    image.to_filename(path)
    return path


def write(path: Path, dtype: str) -> Path:
    """A volume of this type, in a file whose name says how."""
    values, kind = noise(*SHAPE, dtype="uint8").astype(dtype), path.name.split(".")[0]
    if path.suffix in (".nii", ".gz"):
        nifti(path, values)
    elif path.suffix == ".tif":
        options = {"big": {"bigtiff": True}, "imagej": {"imagej": True}} if dtype != "int16" else {}
        order = "<>"[dtype[0] == ">"]
        tifffile.imwrite(path, values, byteorder=order, metadata={"axes": "ZYX"}, **options.get(kind, {}))
    elif path.suffix == ".npy":
        np.save(path, np.asfortranarray(values) if kind == "fortran" else values)
    elif path.suffix == ".npz":
        (np.savez_compressed if kind == "packed" else np.savez)(path, scan=values, note=np.arange(3.0))
    elif path.suffix == ".h5":
        with h5py.File(path, "w") as file:
            file["group/x"] = values
    else:
        dicom_series(path, values)
        (path / "notes.txt").write_text("of a patient")
    return path


WRITTEN = (
    *("a.nii", "a.nii.gz", "a.tif", "big.tif", "imagej.tif", "a.npy", "fortran.npy", "a.npz", "packed.npz", "a.h5"),
    "series",
)


@pytest.mark.parametrize("dtype", ["uint8", "<i2", ">i2", ">u2"])
@pytest.mark.parametrize("name", WRITTEN)
def test_files_come_back_byte_for_byte(tmp_path, model, name, dtype, caplog):
    caplog.set_level(logging.INFO, "axial_transformers")
    source = write(tmp_path / name, dtype)
    back = there_and_back(model, source, tmp_path / "back" / name)
    assert f"{source} comes back byte for byte" in caplog.text
    assert ("data of patients" in caplog.text) == (name == "series")
    assert files_of(back) == files_of(source)


def test_a_scan_of_uneven_lengths_comes_back_byte_for_byte(tmp_path):
    shape = (31, 61, 57)
    model = random_model(small_config((8, 16, 16), 1, num_values=40), torch.float32)
    source = nifti(tmp_path / "a.nii.gz", noise(*shape, dtype="uint8", high=40))
    written = compress_files(model, source, tmp_path / "a.axl", verify=False)
    assert (len(written.images), written.examples) == (4 * 4 * 4, 1)
    decompress_files(model, tmp_path / "a.axl", tmp_path / "b.nii.gz")
    assert (tmp_path / "b.nii.gz").read_bytes() == source.read_bytes()
