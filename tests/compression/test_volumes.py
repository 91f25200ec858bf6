"""Scans and arrays of any lengths to an archive, and back byte for byte, or with the same values."""

import gzip
import io
import logging
import zlib
from pathlib import Path
from random import Random

import h5py
import nibabel
import numpy as np
import pydicom
import pytest
import tifffile
import torch
from pydicom.uid import ExplicitVRBigEndian

from axial_transformers.compression import (
    ArchiveError,
    ArchiveReader,
    DamagedError,
    compress,
    compress_files,
    decompress_files,
)
from axial_transformers.compression.files import volumes
from axial_transformers.compression.files.entries import pack, pack_frame, unpack_frame
from axial_transformers.data.scans import read_scan
from axial_transformers.models import AxialTransformer
from tests.scan_writer import dicom, dicom_series, frames_with_places, make_scan
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
        np.savez(path, scan=values)
    elif path.suffix == ".h5":
        with h5py.File(path, "w") as file:
            file["group/x"] = values
    else:
        dicom_series(path, values.astype(values.dtype.newbyteorder("=")))
        (path / "notes.txt").write_text("of a patient")
    return path


WRITTEN = (
    *("a.nii", "a.nii.gz", "a.tif", "big.tif", "imagej.tif", "a.npy", "fortran.npy", "a.npz", "a.h5"),
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


def test_big_endian_dicom_comes_back_byte_for_byte(tmp_path, model):
    (tmp_path / "series").mkdir()
    for i, pixels in enumerate(noise(3, 4, 5)):
        place = {"ImagePositionPatient": [10, 20, 30 + 4 * i], "InstanceNumber": i + 1}
        found = pydicom.dcmread(io.BytesIO(dicom(pixels, **place)))
        found.file_meta.TransferSyntaxUID = ExplicitVRBigEndian
        found["PixelData"].VR, found.PixelData = "OW", pixels.astype(">i2").tobytes()
        pydicom.dcmwrite(tmp_path / "series" / f"{i}", found, little_endian=False, implicit_vr=False)
    assert read_scan(tmp_path / "series").values.tolist() == noise(3, 4, 5).tolist()
    back = there_and_back(model, tmp_path / "series", tmp_path / "back")
    assert files_of(back) == files_of(tmp_path / "series")


def test_frames_of_one_dicom_file_come_back_in_their_order(tmp_path, model):
    values = noise(3, 4, 5)
    values[1] = 0
    (tmp_path / "a.dcm").write_bytes(dicom(values, **frames_with_places([9, 5, 1])))
    back = there_and_back(model, tmp_path / "a.dcm", tmp_path / "b.dcm")
    assert back.read_bytes() == (tmp_path / "a.dcm").read_bytes()


def test_pages_with_other_bytes_between_them_come_back_byte_for_byte(tmp_path, model):
    with tifffile.TiffWriter(tmp_path / "a.tif") as file:
        for page in noise(3, 4, 5):
            file.write(page, contiguous=False, metadata=None, description="a page of its own")
    assert (
        there_and_back(model, tmp_path / "a.tif", tmp_path / "b.tif").read_bytes() == (tmp_path / "a.tif").read_bytes()
    )


@pytest.mark.parametrize("kind", ["channels", "vectors", "fifth axis"])
def test_colours_and_vectors_come_back_byte_for_byte(tmp_path, kind):
    values, model = noise(5, 3, 4, 3, dtype="uint8"), model_of(3, num_values=250, lowest=0)
    if kind == "channels":
        source = tmp_path / "a.npy"
        np.save(source, values)
    elif kind == "vectors":
        source = tmp_path / "a.nii"
        colours = values.view([("R", "u1"), ("G", "u1"), ("B", "u1")])[..., 0]
        nibabel.Nifti1Image(colours.T, np.eye(4)).to_filename(source)
    else:
        source = nifti(tmp_path / "a.nii", np.moveaxis(values, -1, 0)[:, None])
    back = there_and_back(model, source, tmp_path / f"b{source.suffix}")
    assert back.read_bytes() == source.read_bytes()


@pytest.mark.parametrize("level", [1, 6, 9])
def test_gzip_files_keep_level_and_head(tmp_path, model, level, caplog):
    caplog.set_level(logging.INFO, "axial_transformers")
    content = nifti(tmp_path / "a.nii", noise(*SHAPE)).read_bytes()
    with gzip.GzipFile("name of its own", "wb", level, (tmp_path / "a.nii.gz").open("wb"), mtime=1234567) as file:
        file.write(content)
    there_and_back(model, tmp_path / "a.nii.gz", tmp_path / "b.nii.gz")
    assert "byte for byte" in caplog.text
    assert (tmp_path / "b.nii.gz").read_bytes() == (tmp_path / "a.nii.gz").read_bytes()


def test_gzip_files_of_other_packers_keep_their_content(tmp_path, model, caplog):
    caplog.set_level(logging.INFO, "axial_transformers")
    content = nifti(tmp_path / "a.nii", noise(*SHAPE)).read_bytes() + b"more"
    parts = gzip.compress(content[:100]) + gzip.compress(content[100:], 3)
    (tmp_path / "a.nii.gz").write_bytes(parts)
    there_and_back(model, tmp_path / "a.nii.gz", tmp_path / "b.nii.gz")
    assert "with the same bytes, which gzip packs anew" in caplog.text
    assert gzip.decompress((tmp_path / "b.nii.gz").read_bytes()) == content


def test_a_zlib_that_packs_otherwise_is_told(tmp_path, model, caplog, monkeypatch):
    caplog.set_level(logging.INFO, "axial_transformers")
    source = nifti(tmp_path / "a.nii.gz", noise(*SHAPE))
    compress_files(model, source, tmp_path / "a.axl")
    monkeypatch.setattr(volumes, "_deflated", lambda content, level: _stored(content))
    assert decompress_files(model, tmp_path / "a.axl", tmp_path / "b.nii.gz") == []
    assert "a.nii.gz: this machine's zlib packs otherwise" in caplog.text
    assert gzip.decompress((tmp_path / "b.nii.gz").read_bytes()) == gzip.decompress(source.read_bytes())


def _stored(content: bytes) -> bytes:
    packer = zlib.compressobj(0, zlib.DEFLATED, -15)
    return packer.compress(content) + packer.flush()


@pytest.mark.parametrize("name", ["packed.tif", "packed.dcm", "packed.h5", "a.zarr"])
def test_packed_values_come_back_as_another_file_of_them(tmp_path, model, name, caplog):
    caplog.set_level(logging.INFO, "axial_transformers")
    values = noise(*SHAPE)
    make_scan(tmp_path / name, values)
    suffix = {".dcm": ".nii.gz", ".tif": ".tif"}.get(Path(name).suffix, ".npy")
    back = there_and_back(model, tmp_path / name, tmp_path / f"b{suffix}")
    kept = "values, type and geometry" if suffix == ".nii.gz" else "values and type"
    assert f"comes back as {name.split('.')[0]}{suffix}: {kept}\n" in caplog.text
    found = np.load(back) if suffix == ".npy" else read_scan(back).values
    assert found.dtype == values.dtype
    assert np.array_equal(found, values)


def test_geometry_and_scale_stay_when_headers_are_dropped(tmp_path, model, caplog):
    caplog.set_level(logging.INFO, "axial_transformers")
    source = nifti(tmp_path / "smith.nii.gz", noise(*SHAPE, dtype=">i2"), scl_slope=2, scl_inter=3)
    there_and_back(model, source, tmp_path / "dropped.nii.gz", drop_header=True)
    assert "comes back as scan.nii.gz: values, type and geometry" in caplog.text
    there_and_back(model, write(tmp_path / "series", "int16"), tmp_path / "series.nii.gz", drop_header=True)
    scan, back = read_scan(source), read_scan(tmp_path / "dropped.nii.gz")
    assert (back.scale, back.offset, back.axes) == (2, 3, "DHW")
    assert np.array_equal(back.values, scan.values)
    assert np.array_equal(back.header.get_best_affine(), scan.header.get_best_affine())
    assert b"of a patient" not in back.header.binaryblock
    found, scan = read_scan(tmp_path / "series.nii.gz"), read_scan(tmp_path / "series")
    assert np.array_equal(found.values, scan.values)
    assert np.allclose(found.header.get_best_affine(), scan.header.get_best_affine())
    archive = (tmp_path / "a.axl").read_bytes()
    assert not any(word in archive for word in (b"smith", b"patient", b"series"))


def test_what_a_packed_series_leaves_out_is_said(tmp_path, model):
    series = dicom_series(tmp_path / "series", noise(*SHAPE), packed=True)
    for name in ("notes.txt", ".hidden"):
        (series / name).write_text("of a patient")
    written = compress_files(model, series, tmp_path / "a.axl")
    assert written.left_out == [".hidden", "notes.txt"]
    decompress_files(model, tmp_path / "a.axl", tmp_path / "b.nii.gz")
    assert np.array_equal(read_scan(tmp_path / "b.nii.gz").values, noise(*SHAPE))


def test_values_that_the_model_does_not_know_are_stored_if_they_are_few(tmp_path, model):
    values = noise(10, 10, 10)
    values[3, 4, 5:7] = -32768, 32767
    np.save(tmp_path / "a.npy", values)
    there_and_back(model, tmp_path / "a.npy", tmp_path / "b.npy")
    assert np.array_equal(np.load(tmp_path / "b.npy"), values)
    np.save(tmp_path / "c.npy", values + 2000)
    with pytest.raises(ValueError, match=r"values .* of .*c\.npy, but the model knows -1000\.\.1999"):
        compress_files(model, tmp_path / "c.npy", tmp_path / "c.axl")


@pytest.mark.parametrize(
    ("name", "grid", "dtype"),
    [
        ("a.nii.gz", (0.1, 0.0), "<f4"),
        ("a.nii.gz", None, ">f4"),
        ("a.npy", (0.1, 0.0), ">f8"),
        ("a.npy", (0.25, 7.5), "<f2"),
    ],
)
def test_floats_at_the_steps_of_the_model_come_back_byte_for_byte(tmp_path, name, grid, dtype):
    step, offset = grid or (1, 0)
    values, source, model = (offset + noise(*SHAPE) / (1 / step)).astype(dtype), tmp_path / name, model_of(grid=grid)
    if name == "a.npy":
        np.save(source, values)
    else:
        nifti(source, values)
    assert there_and_back(model, source, tmp_path / f"back_{name}").read_bytes() == source.read_bytes()
    values.flat[3] = offset + (5970 if dtype == "<f2" else 30_001) / (1 / step)
    np.save(tmp_path / "c.npy", values)  # the model does not know one of its values
    assert (
        there_and_back(model, tmp_path / "c.npy", tmp_path / "d.npy").read_bytes() == (tmp_path / "c.npy").read_bytes()
    )
    np.save(tmp_path / "b.npy", noise(*SHAPE) / 7)
    with pytest.raises(ValueError, match=r"b\.npy holds .* the model knows"):
        compress_files(model, tmp_path / "b.npy", tmp_path / "b.axl")


@pytest.mark.parametrize("shape", [(5, 7, 9), (5, 7, 9, 1), (1, 1, 1), (2, 3, 4, 5, 2)])
def test_axes_before_those_of_the_model_are_examples(tmp_path, model, shape):
    np.save(tmp_path / "a.npy", noise(*shape))
    archive = tmp_path / "a.axl"
    written = compress_files(model, tmp_path / "a.npy", archive, other_sizes="tile")
    assert written.examples == {3: 1, 4: 5, 5: 6}[len(shape)]
    decompress_files(model, archive, tmp_path / "b.npy")
    assert (tmp_path / "b.npy").read_bytes() == (tmp_path / "a.npy").read_bytes()


def test_slices_are_examples_of_a_model_of_pictures(tmp_path):
    model, source = archiving_model(1), nifti(tmp_path / "a.nii", noise(4, 5, 7, dtype="uint8"))
    assert compress_files(model, source, tmp_path / "a.axl").examples == 4
    decompress_files(model, tmp_path / "a.axl", tmp_path / "b.nii")
    assert (tmp_path / "b.nii").read_bytes() == source.read_bytes()


def test_what_cannot_be_done_is_one_line(tmp_path, model):
    np.save(tmp_path / "floats.npy", np.geomspace(1, 2, 315).reshape(SHAPE))
    np.save(tmp_path / "flat.npy", noise(9, 9))
    nifti(tmp_path / "a.nii", noise(*SHAPE))
    np.save(tmp_path / "a.npy", noise(3, 2, 4, 4))
    for name, options, message in [
        ("floats.npy", {}, "floats.npy holds"), ("flat.npy", {}, r"flat\.npy is of \[9, 9, 1\]"),
        ("a.npy", {"drop_header": True}, "a.npy is no scan, whose header drop_header leaves out"),
    ]:  # fmt: skip
        with pytest.raises(ValueError, match=message):
            compress_files(model, tmp_path / name, tmp_path / "a.axl", **options)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = noise(*SHAPE)
    with pytest.raises(FileExistsError, match="is, or is a link to, what is to be compressed"):
        compress_files(model, f"{tmp_path / 'a.h5'}::x", tmp_path / "a.h5", force=True)
    compress_files(model, tmp_path / "a.nii", tmp_path / "a.axl")
    for target, options, message in [
        ("b.png", {}, r"holds 'a\.nii': give a target of this suffix"),
        ("b.nii", {"only": "0"}, "holds one scan, which is restored whole"),
        ("a.nii", {}, "exists already"),
    ]:
        with pytest.raises((ValueError, FileExistsError), match=message):
            decompress_files(model, tmp_path / "a.axl", tmp_path / target, **options)


def framed(model, tmp_path, change, content=b"") -> Path:
    """An archive whose description of its scan is changed."""
    nifti(tmp_path / "a.nii", noise(2, 4, 4))
    compress_files(model, tmp_path / "a.nii", tmp_path / "a.axl", force=True)
    with (tmp_path / "a.axl").open("rb") as file:
        reader = ArchiveReader(file, model)
        description, kept = unpack_frame(reader.content(1))
        (images,) = reader.images([0])
    of_file = {name: change[name] for name in change if name in description["files"][0]}
    files = [{**description["files"][0], **of_file}]
    changed = {**description, "files": files, **{name: change[name] for name in change if name not in of_file}}
    archive = compress(model, images, metadata=pack({"scan": 1}, 9), files=[pack_frame(changed, kept + content)])
    (tmp_path / "a.axl").write_bytes(archive)
    return tmp_path / "a.axl"


@pytest.mark.parametrize(
    "change",
    [
        {"name": "../b.nii"}, {"name": "/b.nii"}, {"name": ""}, {"name": 3}, {"level": 2}, {"level": -1}, {"level": 6},
        {"gaps": [352]}, {"gaps": [352, -1]}, {"gaps": [1 << 60, 0]}, {"gaps": [1, 0]}, {"gaps": "ab"}, {"gaps": []},
        {"slices": [0, 0], "gaps": [0, 0, 352]}, {"slices": [1]}, {"slices": []}, {"slices": [-1]}, {"files": []},
        {"shape": [2, 4, 5, 1]}, {"shape": [2, 4, -4, 1]}, {"shape": []}, {"shape": [1] * 40}, {"shape": [9, 4, 4, 1]},
        {"shape": [2, 4, 4]}, {"shape": [2, 4, 2, 2]}, {"shape": [1 << 40, 2, 4, 4, 1], "order": [0, 1, 2, 3, 4]},
        {"order": [0, 1, 2, 2]}, {"order": [0, 1, 2]}, {"order": None}, {"dtype": "O"}, {"dtype": "<c8"},
        {"dtype": "<i3"}, {"dtype": "i2,i2"}, {"folder": 1}, {"dataset": "x"}, {"unknown": 1},
        {"slices": [0, 1, 2], "gaps": [352, 0, 0, 0]},
    ],
    ids=str,
)  # fmt: skip
def test_descriptions_that_do_not_fit_are_refused(tmp_path, model, change):
    archive = framed(model, tmp_path, change)
    for target in ("back.nii", "back.nii.gz"):
        with pytest.raises(DamagedError):
            decompress_files(model, archive, tmp_path / "inner" / target)
    assert {path.name for path in tmp_path.rglob("*") if path.is_file()} == {"a.axl", "a.nii"}


@pytest.mark.parametrize("content", [b"more", bytes(9), b"\xff" * 10])
def test_other_bytes_behind_the_gaps_are_refused(tmp_path, model, content):
    with pytest.raises(DamagedError):
        decompress_files(model, framed(model, tmp_path, {}, content), tmp_path / "back.nii")


@pytest.mark.parametrize(
    "packed", [b"", b"none", zlib.compress(b"{" * 9), zlib.compress(b"[]"), zlib.compress(bytes(1 << 25))]
)
def test_frames_that_are_none_are_refused(tmp_path, model, packed):
    images = torch.zeros(1, 2, 4, 4, 1, dtype=torch.int64)
    for files in ([packed], [], [packed, packed]):
        archive = compress(model, images, metadata=pack({"scan": 1}, 9), files=files)
        (tmp_path / "a.axl").write_bytes(archive)
        with pytest.raises(DamagedError):
            decompress_files(model, tmp_path / "a.axl", tmp_path / "back.nii")


def test_mutated_archives_give_typed_errors_or_the_same_files(tmp_path, model):
    source = nifti(tmp_path / "a.nii.gz", noise(2, 4, 4))
    compress_files(model, source, tmp_path / "a.axl")
    sound, draw = (tmp_path / "a.axl").read_bytes(), Random(0)
    for _ in range(60):
        content = bytearray(sound)
        for _ in range(draw.choice((1, 3))):
            content[draw.randrange(len(content))] = draw.randrange(256)
        (tmp_path / "b.axl").write_bytes(content[: draw.choice((len(content), draw.randrange(len(content))))])
        try:
            decompress_files(model, tmp_path / "b.axl", tmp_path / "b.nii.gz")
        except ArchiveError:
            continue
        assert (tmp_path / "b.nii.gz").read_bytes() == source.read_bytes()
        (tmp_path / "b.nii.gz").unlink()
