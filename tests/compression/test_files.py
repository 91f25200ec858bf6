"""Files to an archive and back: values, types, names and headers are equal."""

import importlib
import io
import json
import os
import zipfile
import zlib
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps

from axial_transformers.compression import (
    ArchiveError,
    DamagedError,
    compress,
    compress_files,
    container,
    decompress,
    decompress_files,
    open_archive,
)
from axial_transformers.compression.description import Description, HeldArray
from axial_transformers.data import DataConfig, load, save_arrays
from axial_transformers.data.grid import Grid
from axial_transformers.data.scans import Scan, read_scan, write_scan
from axial_transformers.models import AxialTransformer
from tests.compression.archive_parts import joined, parts
from tests.paths import DATA
from tests.scan_writer import make_scan
from tests.small_models import CHUNKS_OF_64, archiving_model, random_model, small_config

STORED = DATA / "archives"


@pytest.fixture(scope="module")
def gray() -> AxialTransformer:
    return archiving_model(1)


def noise(*shape: int, high: int = 256, dtype=np.uint8) -> np.ndarray:
    return np.random.default_rng(0).integers(0, high, shape).astype(dtype)


def there_and_back(model: AxialTransformer, source: Path, target: Path, **options: object) -> Path:
    archive = target.with_name("there.axl")
    archive.unlink(missing_ok=True)
    compress_files(model, source, archive, embed=False, force=True, verify=False, **options)
    assert decompress_files(model, archive, target) == []
    return target


def image_in(path: Path) -> tuple:
    with Image.open(path) as image:
        return image.mode, image.size, image.tobytes()


def test_a_folder_of_mixed_files_comes_back(tmp_path, gray, caplog):
    caplog.set_level("INFO")
    source = tmp_path / "source"
    for folder in ("cats", "dogs/young", ".hidden", "empty"):
        (source / folder).mkdir(parents=True)
    Image.fromarray(noise(7, 16)).save(source / "cats" / "a.b.png")
    Image.fromarray(noise(3, 5) > 100).save(source / "cats" / "bits.tif")
    Image.fromarray(noise(3, 5)).save(source / "dogs" / "young" / "ü.JPG")
    Image.fromarray(noise(3, 5, 3)).save(source / "dogs" / "colour.bmp")
    (source / "notes.txt").write_bytes(b"notes\n" * 50)
    (source / "nothing").write_bytes(b"")
    (source / "torn.png").write_bytes(b"\x89PNG\r\n")
    (source / ".hidden" / "a.png").write_bytes(b"not to be seen")
    (source / "link").symlink_to(source / "cats")
    with pytest.warns(UserWarning, match="left out: 1 empty folder, 1 hidden name, 1 linked folder"):
        back = there_and_back(gray, source, tmp_path / "back")
    assert image_in(back / "cats" / "a.b.png") == image_in(source / "cats" / "a.b.png")
    assert image_in(back / "cats" / "bits.png") == image_in(source / "cats" / "bits.tif")  # TIFF would be of 8 bits
    assert image_in(back / "dogs" / "young" / "ü.png") == image_in(source / "dogs" / "young" / "ü.JPG")
    stored = ["dogs/colour.bmp", "nothing", "notes.txt", "torn.png"]
    assert [(back / name).read_bytes() for name in stored] == [(source / name).read_bytes() for name in stored]
    assert len([path for path in back.rglob("*") if path.is_file()]) == 7
    said = caplog.text
    assert "3 images will come back with the same pixels, 2 of them re-encoded as PNG" in said
    assert "stored, not coded by the model: 4 files, dogs/colour.bmp, not" in said
    only = there_and_back(gray, source, tmp_path / "only", only_data=True)
    assert len([path for path in only.rglob("*") if path.is_file()]) == 3


MODES = {
    "1": noise(3, 5) > 99, "L": noise(3, 5), "I;16": noise(3, 5, high=65536, dtype=np.uint16), "RGB": noise(3, 5, 3),
    "RGBA": noise(3, 5, 4), "LA": noise(3, 5, 2),
}  # fmt: skip


@pytest.mark.parametrize("suffix", [".png", ".tif", ".webp", ".bmp", ".ppm", ".gif"])
def test_images_of_every_mode_come_back_as_they_look(tmp_path, suffix):
    exif = Image.Exif()
    exif[0x0112] = 6
    colour = Image.fromarray(noise(3, 5, 3))
    images = {mode: (Image.fromarray(pixels), {}) for mode, pixels in MODES.items()} | {
        "palette": (colour.quantize(8), {}),
        "palette with alpha": (colour.quantize(8), {"transparency": bytes(range(0, 200, 25))}),
        "transparent value": (colour, {"transparency": (1, 2, 3)}), "turned": (colour, {"exif": exif}),
    }  # fmt: skip
    kinds = []
    for kind, (image, options) in images.items():
        path = tmp_path / kind / f"a{suffix}"
        path.parent.mkdir()
        try:
            image.save(path, **options)
        except (OSError, ValueError, TypeError):  # the format has no such images
            continue
        kinds.append(kind)
        with Image.open(io.BytesIO(path.read_bytes())) as found:  # given a path, Pillow 13 misreads turned TIFF files
            ImageOps.exif_transpose(found, in_place=True)
            channels = 4 if found.has_transparency_data else 1 if found.mode in ("1", "L", "I", "I;16") else 3
            deep = found.mode in ("I", "I;16")
            shown = np.asarray(found if deep else found.convert("RGBA"))
        config = small_config((4, 4), channels, "columns", num_values=65536 if deep else 256)
        back = there_and_back(random_model(config, torch.float32), path, tmp_path / kind / "back")
        (returned,) = back.iterdir()
        with Image.open(returned) as found:
            assert np.array_equal(np.asarray(found if deep else found.convert("RGBA")), shown), kind
    assert len(kinds) >= 4


def test_a_pgm_with_another_highest_number_returns_as_png(tmp_path, gray):
    """Pillow writes 255 into each PGM: its numbers would be darker."""
    pixels = noise(3, 5, high=101)
    (tmp_path / "source").mkdir()
    for maxval in (100, 255):
        (tmp_path / "source" / f"{maxval}.pgm").write_bytes(f"P5 5 3 {maxval}\n".encode() + pixels.tobytes())
    back = there_and_back(gray, tmp_path / "source", tmp_path / "back")
    assert sorted(path.name for path in back.iterdir()) == ["100.png", "255.pgm"]
    for path in back.iterdir():
        assert image_in(path) == ("L", (5, 3), pixels.tobytes())


def test_names_that_are_taken_or_too_long_for_a_png_are_found_another_or_refused(tmp_path, gray):
    source = tmp_path / "source"
    source.mkdir()
    odd = ("12:30.png", "a\\b.png", "new\nline.png", "-rf.png", os.fsdecode(b"\xff.png"))
    for name in ("a.jpg", "a.png", "b.gif", *odd):
        Image.fromarray(noise(3, 5)).save(source / name, "PNG")
    back = there_and_back(gray, source, tmp_path / "back")
    names = {path.name for path in source.iterdir()} - {"a.jpg", "b.gif"} | {"a.jpg.png", "b.png"}
    assert {path.name for path in back.iterdir()} == names
    Image.fromarray(noise(3, 5)).save(source / "a.jpg.png", "PNG")
    with pytest.raises(ValueError, match=r"^a\.jpg"):
        compress_files(gray, source, tmp_path / "b.axl")


ARRAYS = [
    ("|b1", (70, 3, 5), ".npz"), ("|u1", (5, 7), ".npy"), ("<i2", (4, 3, 5, 1), ".npy"), (">i2", (2, 3, 7, 9), ".npz"),
    ("<u4", (4, 3, 5), ".npy"), (">i8", (5, 7), ".npz"), ("<f4", (2, 3, 7, 9), ".npy"), (">f8", (70, 3, 5), ".npz"),
]  # fmt: skip


@pytest.mark.parametrize(("dtype", "shape", "suffix"), ARRAYS)
def test_arrays_come_back_with_name_type_byte_order_and_shape(tmp_path, dtype, shape, suffix):
    high, grid = 2 if dtype == "|b1" else 40, (0.25, -1.0) if "f" in dtype else None
    model = random_model(small_config((3, 5), 1, "columns", num_values=high, grid=grid), torch.float32)
    whole = noise(*shape, high=high)
    array = Grid(*grid).floats(whole, dtype) if grid else whole.astype(dtype)
    source, named = tmp_path / f"source{suffix}", suffix == ".npz"
    if named:
        np.savez(source, pixels=array, labels=np.arange(7))
    else:
        np.save(source, np.asfortranarray(array))
    options = {"data": DataConfig(key="pixels")} if named else {}
    found = np.load(there_and_back(model, source, tmp_path / f"back{suffix}", **options))
    if named:
        assert np.array_equal(found["labels"], np.arange(7))
        found = found["pixels"]
    assert (found.dtype.str, found.shape) == (array.dtype.str, array.shape)
    assert found.tobytes() == array.tobytes()


def test_minus_zero_comes_back_as_zero(tmp_path):
    model = random_model(small_config((3, 5), lowest=-2, grid=(0.5, 0.0), values="ordinal"), torch.float32)
    values = np.where(np.arange(30).reshape(2, 3, 5) % 3, 0.5, -0.0).astype(np.float32)
    np.save(tmp_path / "a.npy", values)
    found = np.load(there_and_back(model, tmp_path / "a.npy", tmp_path / "b.npy"))
    assert np.array_equal(found, values)
    assert not np.signbit(found).any()


@pytest.mark.parametrize("axes", ["NCHW", "CHW", "HWC"])
def test_channels_may_be_any_axis(tmp_path, axes):
    model, shape = archiving_model(3), tuple({"N": 4, "C": 3, "H": 7, "W": 6}[letter] for letter in axes)
    np.save(tmp_path / "a.npy", noise(*shape))
    found = np.load(there_and_back(model, tmp_path / "a.npy", tmp_path / "b.npy", data=DataConfig(axes=axes)))
    assert np.array_equal(found, noise(*shape))


@pytest.mark.parametrize("name", ["a.nii", "a.nii.gz", "second.nii", "a.tif", "a.h5", "a.zarr", "a.dcm"])
def test_scans_come_back_with_values_type_and_geometry(tmp_path, name):
    values = noise(6, 9, 8, high=300, dtype=np.int16)
    make_scan(tmp_path / name, values)
    scan = read_scan(tmp_path / name)
    model = random_model(small_config((2, 4, 4), 1, "columns", num_values=300), torch.float32)
    (returned,) = there_and_back(model, tmp_path / name, tmp_path / "back").iterdir()
    assert returned.name.endswith(scan.suffix)
    again = replace(scan, values=np.load(returned)) if returned.suffix == ".npy" else read_scan(returned)
    assert (again.axes[1:], again.scale, again.offset) == (scan.axes[1:], scan.scale, scan.offset)
    if scan.header:
        nibabel = importlib.import_module("nibabel")
        kind = nibabel.Nifti2Header if name == "second.nii" else nibabel.Nifti1Header
        assert np.array_equal(kind(again.header).get_sform(), kind(scan.header).get_sform())
    assert np.array_equal(again.values, np.asarray(scan.values))
    assert again.values.dtype == scan.values.dtype


@pytest.mark.parametrize(("axes", "shape"), [("HWC", (8, 9, 3)), ("CHW", (3, 8, 9))])
def test_bands_of_a_scan_come_back_on_their_axis(tmp_path, axes, shape):
    values = noise(*shape, high=300, dtype=np.uint16)
    write_scan(tmp_path / "a.tif", values, Scan(values, axes))
    model = random_model(small_config((4, 4), 3, "columns", num_values=300), torch.float32)
    again = read_scan(there_and_back(model, tmp_path / "a.tif", tmp_path / "b.tif"))
    assert (again.axes, again.values.tolist()) == (axes, values.tolist())


def test_images_whose_values_a_model_does_not_code_are_stored_as_they_are(tmp_path):
    """16 bits and transparency in a model of colours, and the second image of an MPO file."""
    source = tmp_path / "source"
    source.mkdir()
    Image.fromarray(noise(3, 5, 3)).save(source / "colour.png")
    Image.fromarray(noise(3, 5, high=65536, dtype=np.uint16)).save(source / "deep.png")
    Image.fromarray(noise(3, 5, 4)).save(source / "alpha.png")
    pages = [Image.fromarray(noise(6, 10, 3)) for _ in range(2)]
    pages[0].save(source / "two.jpg", "MPO", save_all=True, append_images=pages[1:])
    back = there_and_back(archiving_model(3), source, tmp_path / "back")
    assert image_in(back / "colour.png") == image_in(source / "colour.png")
    for name in ("deep.png", "alpha.png", "two.jpg"):
        assert (back / name).read_bytes() == (source / name).read_bytes()
    with pytest.raises(ValueError, match="2 channels"):
        compress_files(archiving_model(2), source, tmp_path / "b.axl")


def test_clips_tokens_rows_and_splits_come_back_as_arrays(tmp_path):
    datasets = pytest.importorskip("datasets")
    clips, tokens, images = noise(3, 4, 6, 6, 3), noise(5, 12, high=900, dtype=np.uint16), noise(12, 3, 5, high=9)
    np.savez(tmp_path / "clips.npz", videos=clips)
    np.save(tmp_path / "tokens.npy", tokens)
    for part, values in (("train", clips[:2]), ("val", clips[2:])):
        save_arrays(tmp_path / "split" / f"{part}.npz", values, np.arange(len(values)))
    rows = {"x": images.tolist(), "label": [i % 3 for i in range(12)]}
    datasets.Dataset.from_dict(rows).to_parquet(tmp_path / "rows.parquet")
    of_clips, of_rows = small_config((2, 4, 4), 3, "frames", num_values=256), small_config((3, 5), num_values=10)
    of_several = small_config((2, 3, 5), num_values=10)
    for name, config, expected in [
        ("clips.npz", of_clips, {"videos": clips}),
        ("tokens.npy", small_config((12,), num_values=900), {"arr_0": tokens}),
        ("split", of_clips, {"values": clips, "labels": [0, 1, 0]}),
        ("rows.parquet", of_rows, {"values": images[..., None], "labels": rows["label"]}),
        ("rows.parquet", of_several, {"values": images[..., None], "labels": rows["label"]}),
    ]:
        model = random_model(config, torch.float32)
        found = np.load(there_and_back(model, tmp_path / name, tmp_path / f"{len(config.shape)}{name}.npz"))
        assert found.keys() == expected.keys()
        assert all(np.array_equal(found[key], values) for key, values in expected.items())


def test_arrays_of_any_name_come_back(tmp_path, gray):
    for i, name in enumerate(("file", "allow_pickle", "a/b", "[x]", "ü")):
        path = tmp_path / f"{i}.npz"
        with zipfile.ZipFile(path, "w") as archive, archive.open(f"{name}.npy", "w") as file:
            np.save(file, noise(2, 3, 5))
        back = there_and_back(gray, path, tmp_path / f"back{i}.npz")
        assert np.array_equal(np.load(back)[name], noise(2, 3, 5))


def test_sources_without_examples_of_the_model_are_refused(tmp_path, gray):
    np.savez(tmp_path / "floats.npz", images=np.geomspace(1, 2, 60).reshape(4, 3, 5))
    np.savez(tmp_path / "large.npz", images=np.full((4, 3, 5), 300))
    np.savez(tmp_path / "two.npz", a=noise(4, 3, 5), b=noise(4, 3, 5))
    np.save(tmp_path / "row.npy", noise(4))
    (tmp_path / "colour").mkdir()
    Image.fromarray(noise(3, 5, 3)).save(tmp_path / "colour" / "a.png")
    (tmp_path / "empty").mkdir()
    wrong = {
        "floats.npz": "not at equal steps", "large.npz": r"300\.\.300 of .* 0\.\.255", "two.npz": "choose one",
        "row.npy": "of blocks", "colour": "no image of 1, L, I;16", "empty": "holds no images", "none.npz": "none.npz",
    }  # fmt: skip
    for name, message in wrong.items():
        with pytest.raises((ValueError, FileNotFoundError), match=message):
            compress_files(gray, tmp_path / name, tmp_path / "a.axl")
        assert not (tmp_path / "a.axl").exists()


def test_an_archive_replaces_a_regular_file_only_and_only_if_told(tmp_path, gray):
    source, archive = tmp_path / "images.npy", tmp_path / "a.axl"
    np.save(source, noise(2, 3, 5))
    archive.write_text("old")
    with pytest.raises(FileExistsError, match=r"a\.axl"):
        compress_files(gray, source, archive)
    compress_files(gray, source, archive, embed=False, force=True)
    assert archive.read_bytes().startswith(container.START)
    (tmp_path / "link").symlink_to(source)
    (tmp_path / "same").hardlink_to(source)
    (tmp_path / "folder").mkdir()
    for target in (source, tmp_path / "link", tmp_path / "same", tmp_path / "folder", Path("/dev/null")):
        with pytest.raises(FileExistsError):
            compress_files(gray, source, target, force=True)
    assert np.array_equal(np.load(source), noise(2, 3, 5))


def with_flipped_bit(archive: Path, chunk: int) -> None:
    content = bytearray(archive.read_bytes())
    content[container.read_header(io.BytesIO(content)).starts[chunk] + 9] ^= 1
    archive.write_bytes(content)


def test_one_flipped_bit_costs_one_chunk_and_nothing_of_another(tmp_path, gray):
    pixels, source, archive = noise(130, 3, 5), tmp_path / "source", tmp_path / "a.axl"
    source.mkdir()
    for i, values in enumerate(pixels):
        Image.fromarray(values).save(source / f"{i:03}.png")
    (source / "050.txt").write_text("a note")
    with CHUNKS_OF_64:
        compress_files(gray, source, archive, embed=False, force=True, verify=False)
    with_flipped_bit(archive, 1)
    target = tmp_path / "back"
    with pytest.raises(DamagedError, match="chunk 1"):
        decompress_files(gray, archive, target)
    assert not target.exists()
    assert decompress_files(gray, archive, target, salvage=True) == [f"{i:03}.png" for i in range(65, 130)]
    assert {path.name for path in target.iterdir()} == {*(f"{i:03}.png" for i in range(65)), "050.txt"}
    assert np.array_equal(np.asarray(Image.open(target / "060.png")), pixels[60])
    with_flipped_bit(archive, 2)
    assert "050.txt" in decompress_files(gray, archive, tmp_path / "images", salvage=True)
    with_flipped_bit(archive, 0)
    with pytest.raises(ArchiveError, match="every"):
        decompress_files(gray, archive, tmp_path / "none", salvage=True)


def test_a_target_is_a_new_folder_or_a_new_file_of_a_format_that_keeps_the_values(tmp_path, gray):
    Image.fromarray(noise(7, 9)).save(tmp_path / "a.png")
    compress_files(gray, tmp_path / "a.png", tmp_path / "a.axl", embed=False, force=True)
    decompress_files(gray, tmp_path / "a.axl", tmp_path / "b.bmp")
    assert image_in(tmp_path / "b.bmp") == image_in(tmp_path / "a.png")
    with pytest.raises(FileExistsError):
        decompress_files(gray, tmp_path / "a.axl", tmp_path / "b.bmp")
    with pytest.raises(ValueError, match=r"mode L\b"):
        decompress_files(gray, tmp_path / "a.axl", tmp_path / "b.jpg")
    assert not (tmp_path / "b.jpg").exists()
    np.save(tmp_path / "a.npy", noise(4, 3, 5))
    compress_files(gray, tmp_path / "a.npy", tmp_path / "n.axl", embed=False, force=True)
    with pytest.raises(ValueError, match=r"a\.npy"):
        decompress_files(gray, tmp_path / "n.axl", tmp_path / "b.tif")
    decompress_files(gray, tmp_path / "n.axl", tmp_path / "b.npz")
    assert np.array_equal(np.load(tmp_path / "b.npz")["arr_0"], noise(4, 3, 5))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("")
    with pytest.raises(FileExistsError):
        decompress_files(gray, tmp_path / "n.axl", tmp_path / "full")


@pytest.mark.parametrize("target", ["x.out", "v1.2", "x"])
def test_a_target_whose_suffix_is_of_no_format_is_a_folder(tmp_path, gray, target):
    (tmp_path / "folder").mkdir()
    Image.fromarray(noise(7, 9)).save(tmp_path / "folder/a.png")
    np.save(tmp_path / "b.npy", noise(4, 3, 5))
    for source, name in (("folder", "a.png"), ("folder/a.png", "a.png"), ("b.npy", "b.npy")):
        archive, folder = tmp_path / f"{Path(source).stem}.axl", tmp_path / Path(source).stem / target
        compress_files(gray, tmp_path / source, archive, embed=False, force=True)
        decompress_files(gray, archive, folder)
        assert [path.name for path in folder.iterdir()] == [name]


def test_an_image_without_colours_of_its_own_may_be_of_a_model_of_colours(tmp_path):
    Image.fromarray(noise(3, 5)).save(tmp_path / "a.png")
    (returned,) = there_and_back(archiving_model(4), tmp_path / "a.png", tmp_path / "back").iterdir()
    assert image_in(returned) == image_in(tmp_path / "a.png")


def described(tmp_path: Path, model: AxialTransformer, count: int = 1, **changes: object) -> Path:
    """An archive of `count` images of the model whose description has these fields."""
    found = {"images": [], "array": None, "stored": [], **changes}
    images = torch.zeros(count, *model.config.shape, model.config.channels, dtype=torch.uint8)
    header, contents = parts(compress(model, images, verify=False))
    metadata = zlib.compress(json.dumps(found).encode())
    (tmp_path / "a.axl").write_bytes(joined(header, contents, metadata=metadata))
    return tmp_path / "a.axl"


IMAGE = ["a.png", "L", 3, 5]
ARRAY = {"name": "a.npy", "member": "arr_0", "dtype": "|u1", "shape": [1, 3, 5], "channels": None}
WRONG = [
    {"images": [["../escaped.png", "L", 3, 5]]}, {"images": [["/tmp/escaped.png", "L", 3, 5]]},
    {"images": [["a/../../b.png", "L", 3, 5]]}, {"images": [["a\0.png", "L", 3, 5]]}, {"images": [["", "L", 3, 5]]},
    {"images": [["./a.png", "L", 3, 5]]}, {"images": [["a.png", "L", 3, 0]]}, {"images": [["a.png", "L", 3, 1 << 40]]},
    {"images": [["a.png", "L", 3, 10]]}, {"images": [["a.png", "RGB", 3, 5]]}, {"images": [["a.png", "HDR", 3, 5]]},
    {"images": [["a.png", "L", 3]]}, {"images": [["a.png", "L", 3, 5.0]]}, {"images": ["a.png"]}, {"images": []},
    {"images": {"a.png": 1}}, {"images": [IMAGE], "array": ARRAY}, {"images": [IMAGE], "stored": [["b", 3]]},
    {"images": [IMAGE], "stored": [["../b", 0]]}, {"images": [IMAGE], "stored": [["b", -1]]},
    {"images": [IMAGE], "stored": [["a.png", 0]]}, {"images": [IMAGE], "stored": [["a.png/b", 0]]}, 
    {"sounds": []}, {"images": 1, "array": 2, "stored": 3},
    *({"array": {**ARRAY, **change}} for change in [
        {"shape": [2, 3, 5]}, {"shape": [1, 3, 1 << 50]}, {"shape": "1x3x5"}, {"shape": [1, 3, -5]}, {"shape": []},
        {"shape": [1] * 15 + [3, 5]}, {"dtype": "O"}, {"dtype": "c16"}, {"dtype": "i4,i4"}, {"dtype": None},
        {"channels": 3}, {"channels": 1}, {"channels": -1}, {"name": "../a.npy"}, {"name": 3}, {"more": 1},
        {"name": "a.csv"}, {"name": "a.nii", "header": "A"}, {"name": "a.xyz"},
    ]),
]  # fmt: skip


def test_descriptions_that_do_not_fit_are_refused(tmp_path, gray):
    assert decompress_files(gray, described(tmp_path, gray, images=[IMAGE]), tmp_path / "right") == []
    for changes in WRONG:
        archive = described(tmp_path, gray, **changes)
        with pytest.raises(DamagedError):
            decompress_files(gray, archive, tmp_path / "inner" / "back")
    assert {path.name for path in tmp_path.rglob("*") if path.is_file()} == {"a.axl", "a.png"}


def test_descriptions_are_read_as_written_or_refused_if_too_large():
    description = Description(tuple((f"{'same' * 400}{i}.png", "RGB", 480, 640) for i in range(50)))
    assert Description.unpack(description.pack()) == description
    with (
        patch("axial_transformers.compression.description._ALWAYS", 1 << 16),
        pytest.raises(ValueError, match="too many"),
    ):
        description.pack()
    array = HeldArray("a.nii", "values", "<i2", (3, 4), None, "HW", 2.0, -1.0, "AA==")
    assert Description.unpack(Description(array=array).pack()).array == array


def test_hostile_descriptions_are_refused_within_bounds(at_most_a_gigabyte_more):
    many = 1 << 20
    texts = (b"[" + b"[]," * many, b'"' + b'\\"' * many, b'""' * many, b"[" * many, b"1" * many, bytes(1 << 25))
    packed = [zlib.compress(text, level) for text in texts for level in (0, 1)]
    for metadata in (*packed, b"", b"no zlib", zlib.compress(b"no json")):
        with pytest.raises(ArchiveError):
            Description.unpack(metadata)


def test_stored_files_that_do_not_fit_are_refused(tmp_path, gray):
    content = described(tmp_path, gray, images=[IMAGE], stored=[["b", 3]]).read_bytes()
    header, contents = parts(content)
    sound = zlib.compress(b"123")
    for i, stored in enumerate((sound, b"", b"abc", zlib.compress(b"12"), zlib.compress(b"1234"), sound + b"x",
                                sound[:-1] + b"?")):  # fmt: skip
        last = replace(header, chunks=(*header.chunks, container.entry(0, stored)))
        (tmp_path / "b.axl").write_bytes(joined(last, [*contents, stored]))
        if i == 0:
            decompress_files(gray, tmp_path / "b.axl", tmp_path / "right")
            assert (tmp_path / "right" / "b").read_bytes() == b"123"
            continue
        with pytest.raises(DamagedError):
            decompress_files(gray, tmp_path / "b.axl", tmp_path / "back")
        assert not (tmp_path / "back").exists()


@pytest.mark.parametrize("name", ["labelled", "tokens", "numbers"])
def test_a_stored_archive_decodes_to_its_values_and_is_written_the_same(name):
    labelled = name == "labelled"
    model = AxialTransformer.from_pretrained(STORED / ("model" if labelled else name))
    with np.load(STORED / ("images.npz" if labelled else f"{name}.npz")) as arrays:
        values = torch.from_numpy(arrays["images" if labelled else "values"])
    label = torch.arange(len(values)) % 4 if labelled else None
    archive = (STORED / f"{name}.axl").read_bytes()
    assert torch.equal(decompress(model, archive, label).int(), values.int())
    assert compress(model, values, label, verify=False) == archive


def test_a_stored_archive_of_pictures_gives_its_files_and_is_written_the_same(tmp_path):
    model = AxialTransformer.from_pretrained(STORED / "model")
    decompress_files(model, STORED / "pictures.axl", tmp_path / "again")
    for path in (STORED / "pictures").iterdir():
        with Image.open(path) as image, Image.open(tmp_path / "again" / path.name) as again:
            assert again.convert("RGB").tobytes() == image.convert("RGB").tobytes()
    compress_files(model, STORED / "pictures", tmp_path / "new.axl", embed=False, force=True, verify=False)
    assert (tmp_path / "new.axl").read_bytes() == (STORED / "pictures.axl").read_bytes()


FOR_EVER = STORED / "format_8"
"""Archives of the first stable format. They are never written again: every release must read them."""


def test_every_release_reads_the_archives_of_format_8(tmp_path):
    digits = load("digits", split="test").values[:16]
    for name in ("named", "changes"):
        with open_archive(FOR_EVER / f"{name}.axl") as archive:
            assert np.array_equal(archive.values.numpy(), digits)
    with np.load(STORED / "images.npz") as arrays:
        images = arrays["images"]
    label = torch.arange(len(images)) % 4
    with open_archive(FOR_EVER / "labelled_with_model.axl") as archive:
        assert np.array_equal(archive.values.numpy(), images)
        assert torch.equal(archive.labels, label)
    model = AxialTransformer.from_pretrained(STORED / "model")
    assert np.array_equal(decompress(model, (FOR_EVER / "labelled.axl").read_bytes(), label).numpy(), images)
    with open_archive(FOR_EVER / "numbers_with_model.axl") as archive, np.load(STORED / "numbers.npz") as arrays:
        assert np.array_equal(archive.values.numpy(), arrays["values"])
    decompress_files(None, FOR_EVER / "pictures_with_model.axl", tmp_path / "pictures")
    for path in (STORED / "pictures").iterdir():
        with Image.open(path) as image, Image.open(tmp_path / "pictures" / path.name) as again:
            assert again.convert("RGB").tobytes() == image.convert("RGB").tobytes()
