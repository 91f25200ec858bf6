"""Bad input: each gives one clear line that names the file."""

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from axial_transformers import data
from axial_transformers.data import DataConfig

_PIXELS = np.random.default_rng(0).integers(0, 256, (16, 16, 3)).astype(np.uint8)


def _line(path: Path, config: DataConfig | None = None) -> str:
    with pytest.raises(ValueError) as caught:
        data.load(path, config, split="all")
    line = str(caught.value)
    assert "\n" not in line
    assert str(path) in line
    return line


def _png(folder: Path, name: str = "good.png", pixels: np.ndarray = _PIXELS) -> Path:
    folder.mkdir(exist_ok=True)
    Image.fromarray(pixels).save(folder / name)
    return folder / name


def test_a_source_without_a_name_is_not_the_current_folder(tmp_path, monkeypatch):
    _png(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert len(data.load(".", split="all")) == 1
    with pytest.raises(ValueError, match="empty"):
        data.load("", split="all")


def test_images_of_another_size_or_type_are_named_with_a_hint(tmp_path):
    _png(tmp_path)
    _png(tmp_path, "other.png", _PIXELS[:5])
    line = _line(tmp_path)
    assert "good.png is [16, 16, 3], and other.png is [5, 16, 3]: remove one, or give data.size" in line
    line = _line(tmp_path, DataConfig(size=16))
    assert all(words in line for words in ("other.png is 16x5 pixels, not 16x16", "data.cut=crop"))
    assert "other.png is smaller than a tile of 6x6" in _line(tmp_path, DataConfig(size=6, cut="tiles"))
    assert len(data.load(tmp_path, DataConfig(size=6, cut="crop"), "all")) == 2
    deep = _png(tmp_path / "deep", "a.png", _PIXELS[..., 0].astype(np.uint16))
    assert "a.png has 16 bits a channel, not 8: convert or remove it" in _line(deep, DataConfig(mode="rgb"))
    _png(tmp_path / "deep", "a.tiff", _PIXELS[..., 0].astype(np.float32))
    assert "a.tiff has pixels of type F" in _line(tmp_path / "deep")


def test_an_empty_folder_is_named_with_what_could_be_in_it(tmp_path):
    (tmp_path / "notes.txt").write_text("hello")
    line = _line(tmp_path)
    assert all(kind in line for kind in ("images", "arrays", "tables", "scans", ".parquet", ".tar"))
    assert "scan" in _line(tmp_path / "notes.txt")


def _npy(values: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, values, allow_pickle=True)
    return file.getvalue()


class _Trap:
    def __reduce__(self):
        return (pytest.fail, ("unpickled",))


_SOUND = _npy(np.ones((3, 4, 5), np.uint8))
_BAD_NPY = {
    "cut off": (_SOUND[:-1], "cannot be read"),
    "no header": (_SOUND[:8], "cannot be read"),
    "junk": (b"hello", "cannot be read"),
    "empty": (b"", "cannot be read"),
    "objects": (_npy(np.array([[[_Trap()]]], object)), "cannot be read"),
    "structured": (_npy(np.zeros((10, 10), [("a", "u1")])), "uint8"),
    "complex": (_npy(np.zeros((2, 5), np.complex64)), "complex64"),
    "one axis": (_npy(np.zeros(100, np.uint8)), "shape"),
    "no examples": (_npy(np.zeros((0, 5, 5), np.uint8)), "shape"),
}


@pytest.mark.parametrize("name", _BAD_NPY)
def test_bad_arrays_are_named(tmp_path, name):
    content, words = _BAD_NPY[name]
    (tmp_path / "bad.npy").write_bytes(content)
    with zipfile.ZipFile(tmp_path / "bad.npz", "w") as archive:
        archive.writestr("images.npy", content)
    assert words in _line(tmp_path / "bad.npy")
    assert words in _line(tmp_path / "bad.npz")


def test_npz_files_that_are_none_or_damaged_are_named(tmp_path):
    path = tmp_path / "a.npz"
    path.write_text("hello")
    assert "a.npz cannot be read" in _line(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("notes.txt", "hello")
    assert "holds no arrays" in _line(path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("images.npy", _SOUND)
        checksum = archive.getinfo("images.npy").CRC.to_bytes(4, "little")
    path.write_bytes(path.read_bytes().replace(checksum, b"\0\1\2\3"))
    assert "Bad CRC" in _line(path)


@pytest.mark.parametrize("order", ["<", ">"])
def test_arrays_of_either_byte_order_have_their_values(tmp_path, order):
    values = np.random.default_rng(0).integers(-5, 999, (3, 4, 5)).astype(f"{order}i2")
    np.save(tmp_path / "a.npy", values)
    np.savez(tmp_path / "a.npz", images=values)
    for path in (tmp_path / "a.npy", tmp_path / "a.npz"):
        assert np.array_equal(data.load(path, split="all").values[..., 0], values)
        cut = data.load(path, DataConfig(size=(2, 4, 5)), split="all")
        assert np.array_equal(cut.values[:][..., 0], values[None, :2])


def test_labels_that_do_not_fit_are_named(tmp_path):
    path, images = tmp_path / "a.npz", _PIXELS.reshape(4, 4, 16, 3)
    wrong = [np.arange(3), np.arange(4.0), np.arange(4)[:, None].repeat(2, 1), np.int64(3), np.ones(4, bool)]
    for labels in (*wrong, [0, -1, 2, 3], [0, 1, 2, 10**12]):
        np.savez(path, images=images, labels=labels)
        assert "4 integers 0..65535 are needed" in _line(path)
    np.savez(path, images=images, labels=[*"abc"])
    assert "labels <U1 [3]: 4 integers 0..65535 are needed, or names" in _line(path)
    np.savez(path, images=images[:1], labels=np.int64(0))
    assert "has labels int64 []: 1 integers" in _line(path)
    for name, count in {"train_1": 3, "train_2": 4}.items():  # of other files
        labels = np.arange(count, dtype=np.uint64)[:, None]
        np.savez(tmp_path / f"{name}.npz", images=images[: 7 - count], labels=labels)
    path.unlink()
    assert "train_1.npz has labels uint64 [3, 1]: 4 integers" in _line(tmp_path)
