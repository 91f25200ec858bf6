"""Folders of pictures and arrays to an archive file, and back to the same pixels, names and modes."""

import io
import json
import os
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from axial_transformers.compression import (
    DamagedError,
    TruncatedError,
    compress,
    compress_files,
    container,
    decompress,
    decompress_files,
)
from axial_transformers.compression.files.source import cut_tiles, join_tiles
from axial_transformers.models import AxialTransformer
from tests.paths import DATA
from tests.small_models import CHUNKS_OF_64, archiving_model


@pytest.fixture(scope="module")
def gray() -> AxialTransformer:
    return archiving_model(1)


def noise(*shape: int, high: int = 256, dtype=np.uint8) -> np.ndarray:
    return np.random.default_rng(0).integers(0, high, shape).astype(dtype)


def pictures_of(folder) -> dict[str, tuple]:
    found = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        with Image.open(path) as image:
            found[path.relative_to(folder).as_posix()] = (image.mode, image.size, image.tobytes())
    return found


def test_other_sizes_are_tiled_or_stored(tmp_path, gray):
    (tmp_path / "source").mkdir()
    Image.fromarray(noise(7, 16)).save(tmp_path / "source" / "a.png")
    Image.fromarray(noise(1, 1)).save(tmp_path / "source" / "b.png")
    for other_sizes, tiles in {"store": 0, "tile": 3 * 4 + 1}.items():
        archive, back = tmp_path / f"{other_sizes}.axl", tmp_path / other_sizes
        assert len(compress_files(gray, tmp_path / "source", archive, other_sizes=other_sizes).images) == tiles
        decompress_files(gray, archive, back)
        assert pictures_of(back) == pictures_of(tmp_path / "source")


@pytest.mark.parametrize("axes", [(3, 5), (7, 9), (1, 1), (6, 10)])
@pytest.mark.parametrize("tile", [(3, 5), (4, 4), (1, 2)])
def test_tiles_join_to_what_was_cut(axes, tile):
    examples = noise(2, *axes, 3)
    cut = cut_tiles(examples, tile)
    assert cut.shape[1:] == (*tile, 3)
    assert np.array_equal(join_tiles(cut, axes), examples)
    rows, columns = min(axes[0], tile[0]), min(axes[1], tile[1])
    assert np.array_equal(cut[0][:rows, :columns], examples[0][:rows, :columns])


@pytest.mark.parametrize(
    ("channels", "array"),
    [
        (1, noise(70, 3, 5)),
        (1, noise(4, 3, 5, 1)),
        (3, noise(4, 3, 5, 3)),
        (1, noise(4, 3, 5, dtype=np.int64)),
        (1, noise(4, 3, 5) > 100),
        (1, noise(4, 5, 7)),
    ],
    ids=lambda value: f"{value.dtype}{list(value.shape)}" if isinstance(value, np.ndarray) else None,
)
@pytest.mark.parametrize("suffix", [".npz", ".npy"])
def test_arrays_come_back_with_name_type_and_shape(tmp_path, channels, array, suffix):
    source, back = tmp_path / f"source{suffix}", tmp_path / f"back{suffix}"
    if suffix == ".npz":
        np.savez(source, pixels=array, labels=np.arange(len(array)))
    else:
        np.save(source, array)
    model = archiving_model(channels)
    written = compress_files(model, source, tmp_path / "a.axl", other_sizes="tile")
    assert written.left_out == (["labels"] if suffix == ".npz" else [])
    decompress_files(model, tmp_path / "a.axl", back)
    found = np.load(back)
    found = found["pixels"] if suffix == ".npz" else found
    assert found.dtype == array.dtype
    assert np.array_equal(found, array)


def test_sources_without_images_of_the_model_are_refused(tmp_path, gray):
    np.savez(tmp_path / "floats.npz", images=np.geomspace(1, 2, 60).reshape(4, 3, 5))
    np.savez(tmp_path / "large.npz", images=np.full((4, 3, 5), 300))
    np.savez(tmp_path / "two.npz", a=noise(4, 3, 5), b=noise(4, 3, 5))
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "readme.txt").write_text("no picture")
    for name, message in [
        ("floats.npz", "not at equal steps"), ("large.npz", r"300\.\.300 of .* 0\.\.255"),
        ("two.npz", "holds 2 arrays"),
        ("empty", "no pictures"), ("notes", "no pictures"), ("notes/readme.txt", "no picture that can be read"),
    ]:  # fmt: skip
        with pytest.raises(ValueError, match=message):
            compress_files(gray, tmp_path / name, tmp_path / "a.axl")
    with pytest.raises(FileNotFoundError):
        compress_files(gray, tmp_path / "nowhere", tmp_path / "a.axl")
    assert not (tmp_path / "a.axl").exists()


def test_nothing_is_overwritten(tmp_path, gray):
    np.save(tmp_path / "images.npy", noise(2, 3, 5))
    compress_files(gray, tmp_path / "images.npy", tmp_path / "a.axl")
    with pytest.raises(FileExistsError):
        decompress_files(gray, tmp_path / "a.axl", tmp_path / "images.npy")
    with pytest.raises(ValueError, match=r"ends in \.npz or \.npy"):
        decompress_files(gray, tmp_path / "a.axl", tmp_path / "folder")


def test_an_archive_replaces_only_files_and_only_if_told(tmp_path, gray):
    source, archive = tmp_path / "images.npy", tmp_path / "a.axl"
    np.save(source, noise(2, 3, 5))
    compress_files(gray, source, archive)
    with pytest.raises(FileExistsError, match=r"a\.axl exists already: give another name, or force=True"):
        compress_files(gray, source, archive)
    archive.write_text("old")
    compress_files(gray, source, archive, force=True)
    assert archive.read_bytes().startswith(container.MAGIC)
    (tmp_path / "link").symlink_to(archive)
    (tmp_path / "dangling").symlink_to(tmp_path / "none")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for target in (tmp_path / "link", tmp_path / "dangling", tmp_path / "folder", tmp_path / "pipe", Path("/dev/null")):
        for replace in (False, True):
            with pytest.raises(FileExistsError):
                compress_files(gray, source, target, force=replace)
    assert Path("/dev/null").is_char_device()
    assert (tmp_path / "pipe").is_fifo()
    assert (tmp_path / "link").is_symlink()


@pytest.mark.parametrize("kind", ["folder", "array"])
def test_a_source_is_not_replaced_by_its_archive(tmp_path, gray, kind):
    source = tmp_path / "source" / "a.png" if kind == "folder" else tmp_path / "a.npy"
    source.parent.mkdir(exist_ok=True)
    Image.fromarray(noise(3, 5)).save(source) if kind == "folder" else np.save(source, noise(2, 3, 5))
    content = source.read_bytes()
    (tmp_path / "same").hardlink_to(source)
    for target in (source, tmp_path / "same"):
        with pytest.raises(FileExistsError, match="what is to be compressed"):
            compress_files(gray, source.parent if kind == "folder" else source, target, force=True)
    assert source.read_bytes() == content


def test_a_file_that_appears_meanwhile_is_not_replaced(tmp_path, gray):
    np.save(tmp_path / "a.npy", noise(2, 3, 5))
    archive = tmp_path / "a.axl"

    def meanwhile(chunks):
        archive.write_text("of another process")
        return iter(chunks)

    with pytest.raises(FileExistsError):
        compress_files(gray, tmp_path / "a.npy", archive, progress=meanwhile)
    assert archive.read_text() == "of another process"


@pytest.mark.parametrize("name", ["file", "allow_pickle", "a/b", "[x]", "ü"])
def test_arrays_of_any_name_come_back(tmp_path, gray, name):
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive, archive.open(f"{name}.npy", "w") as file:
        np.save(file, noise(2, 3, 5))
    compress_files(gray, tmp_path / "a.npz", tmp_path / "a.axl")
    decompress_files(gray, tmp_path / "a.axl", tmp_path / "b.npz")
    assert np.array_equal(np.load(tmp_path / "b.npz")[name], noise(2, 3, 5))


@pytest.mark.parametrize("kind", ["folder", "array"])
def test_what_damaged_chunks_do_not_hold_can_be_salvaged(tmp_path, gray, kind):
    source, pixels = tmp_path / "source", noise(130, 3, 5)
    if kind == "folder":
        source.mkdir()
        for i, values in enumerate(pixels):
            Image.fromarray(values).save(source / f"{i:03}.png")
        target = tmp_path / "back"
    else:
        source, target = source.with_suffix(".npz"), tmp_path / "back.npz"
        np.savez(source, images=pixels)
    archive = tmp_path / "a.axl"
    with CHUNKS_OF_64:
        compress_files(gray, source, archive, verify=False)
    content = archive.read_bytes()
    archive.write_bytes(content[:-1])
    with pytest.raises(TruncatedError, match="chunk 1 of 2"):
        decompress_files(gray, archive, target)
    assert not target.exists()
    lost = decompress_files(gray, archive, target, salvage=True)
    assert len(lost) == 65
    if kind == "folder":
        expected = {name: picture for name, picture in pictures_of(source).items() if name < "065.png"}
        assert pictures_of(target) == expected
    else:
        assert np.array_equal(np.load(target)["images"], pixels[:65])


@pytest.mark.parametrize("kind", ["folder", "array"])
def test_one_picture_or_example_is_restored_without_the_other_chunks(tmp_path, gray, kind):
    source, pixels, archive = tmp_path / "source", noise(130, 3, 5), tmp_path / "a.axl"
    if kind == "folder":
        source.mkdir()
        for i, values in enumerate(pixels):
            Image.fromarray(values).save(source / f"{i:03}.png")
        (source / "050.txt").write_text("a note")
        name, target, unknown = "100.png", tmp_path / "back.png", "holds no '130.png', but '000.png, 001.png"
    else:
        source = source.with_suffix(".npy")
        np.save(source, pixels)
        name, target, unknown = "100", tmp_path / "back.npy", r"choose one of 0\.\.129, not 130.png"
    with CHUNKS_OF_64:
        compress_files(gray, source, archive, verify=False)
    content = bytearray(archive.read_bytes())
    content[container.read_header(io.BytesIO(content)).start(0)] ^= 1
    archive.write_bytes(content)
    assert decompress_files(gray, archive, target, only=name) == []
    restored = np.asarray(Image.open(target)) if kind == "folder" else np.load(target)[0]
    assert np.array_equal(restored, pixels[100])
    if kind == "folder":
        decompress_files(gray, archive, tmp_path / "notes", only="050.txt")
        assert [(file.name, file.read_text()) for file in (tmp_path / "notes").iterdir()] == [("050.txt", "a note")]
    with pytest.raises(ValueError, match=unknown):
        decompress_files(gray, archive, tmp_path / "none.npy", only="130.png")
    with pytest.raises(DamagedError, match="chunk 0 of"):
        decompress_files(gray, archive, tmp_path / f"other{target.suffix}", only="000.png" if kind == "folder" else "0")


def described(tmp_path, model, description, count=1, files=()):
    """An archive of `count` images that carries this description of them."""
    metadata = zlib.compress(json.dumps(description).encode())
    images = torch.zeros(count, *model.config.shape, model.config.channels, dtype=torch.uint8)
    (tmp_path / "a.axl").write_bytes(compress(model, images, metadata=metadata, files=files, verify=False))
    return tmp_path / "a.axl"


@pytest.mark.parametrize(
    "pictures",
    [
        [["../escaped.png", "L", 3, 5]],
        [["/tmp/escaped.png", "L", 3, 5]],
        [["a/../../b.png", "L", 3, 5]],
        [["a\0.png", "L", 3, 5]],
        [["", "L", 3, 5]],
        [["a.png", "L", 3, 0]],
        [["a.png", "L", 3, 1 << 40]],
        [["a.png", "L", 3, 10]],
        [["a.png", "L", 3, 5], ["b.png", "L", 3, 5]],
        [["a.png", "RGB", 3, 5]],
        [["a.png", "L", 3]],
        [["a.png", "L", 3, 5.0]],
        ["a.png"],
        {"a.png": 1},
        [],
    ],
    ids=str,
)
def test_descriptions_that_do_not_fit_are_refused(tmp_path, gray, pictures):
    archive = described(tmp_path, gray, {"pictures": pictures})
    with pytest.raises(DamagedError):
        decompress_files(gray, archive, tmp_path / "inner" / "back")
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["a.axl"]


@pytest.mark.parametrize(
    "change",
    [
        {"shape": [2, 3, 5]}, {"shape": [1, 3, 1 << 50]}, {"shape": "1x3x5"}, {"shape": [1, 3, -5]}, {"shape": []},
        {"dtype": "O"}, {"dtype": "float64"}, {"array": 3}, {"dtype": None},
    ],
    ids=str,
)  # fmt: skip
def test_descriptions_of_arrays_that_do_not_fit_are_refused(tmp_path, gray, change):
    archive = described(tmp_path, gray, {"array": "images", "dtype": "uint8", "shape": [1, 3, 5], **change})
    with pytest.raises(DamagedError):
        decompress_files(gray, archive, tmp_path / "back.npz")
    assert not (tmp_path / "back.npz").exists()


@pytest.mark.parametrize("metadata", [b"", b"no zlib", zlib.compress(b"no json"), zlib.compress(b"[" * 100000)])
def test_metadata_that_is_none_is_refused(tmp_path, gray, metadata):
    (tmp_path / "a.axl").write_bytes(compress(gray, torch.zeros(1, 3, 5, 1, dtype=torch.uint8), metadata=metadata))
    with pytest.raises(DamagedError):
        decompress_files(gray, tmp_path / "a.axl", tmp_path / "back")


STORED = DATA / "archives"


def test_a_stored_archive_decodes_to_its_images_and_is_written_the_same():
    model = AxialTransformer.from_pretrained(STORED / "model")
    with np.load(STORED / "images.npz") as arrays:
        images, label = torch.from_numpy(arrays["images"]), torch.arange(len(arrays["images"])) % 4
    archive = (STORED / "labelled.axl").read_bytes()
    assert torch.equal(decompress(model, archive, label), images)
    assert compress(model, images, label, verify=False) == archive


@pytest.mark.parametrize("name", ["tokens", "numbers"])
def test_a_stored_archive_of_many_values_decodes_to_them_and_is_written_the_same(name):
    model = AxialTransformer.from_pretrained(STORED / name)
    with np.load(STORED / f"{name}.npz") as arrays:
        values = torch.from_numpy(arrays["values"])
    archive = (STORED / f"{name}.axl").read_bytes()
    assert torch.equal(decompress(model, archive).int(), values)
    assert compress(model, values, verify=False) == archive


def test_a_stored_archive_of_pictures_gives_its_files_and_is_written_the_same(tmp_path):
    model = AxialTransformer.from_pretrained(STORED / "model")
    decompress_files(model, STORED / "pictures.axl", tmp_path / "again")
    assert pictures_of(tmp_path / "again") == pictures_of(STORED / "pictures")
    compress_files(model, STORED / "pictures", tmp_path / "new.axl", other_sizes="tile", verify=False)
    assert (tmp_path / "new.axl").read_bytes() == (STORED / "pictures.axl").read_bytes()
