"""Bad input: each gives one clear line that names the file, and takes little memory."""

import io
import struct
import subprocess
import sys
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
from axial_transformers.compression.files.pictures import PictureEntry
from PIL import Image

from axial_transformers import data
from axial_transformers.data import DataConfig
from axial_transformers.models import AxialTransformerConfig

_PIXELS = np.random.default_rng(0).integers(0, 256, (16, 16, 3)).astype(np.uint8)
_IMAGES = _PIXELS.reshape(4, 4, 16, 3)


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


@pytest.mark.parametrize("kept", [0.02, 0.1, 0.5, 0.95])
def test_a_truncated_png_is_named(tmp_path, kept):
    _png(tmp_path)
    whole = _png(tmp_path, "torn.png").read_bytes()
    (tmp_path / "torn.png").write_bytes(whole[: int(len(whole) * kept)])
    assert "torn.png is not a whole image" in _line(tmp_path)


def test_a_tiff_that_claims_more_pixels_than_its_strips_hold_is_named(tmp_path):
    written = io.BytesIO()
    Image.fromarray(_PIXELS[:8, :8]).save(written, "TIFF")
    content = written.getvalue()
    honest, claims = (struct.pack("<HHI", 257, 4, 1) + struct.pack("<I", height) for height in (8, 8_323_080))
    assert content.count(honest) == 1
    (tmp_path / "tall.tif").write_bytes(content.replace(honest, claims))
    assert "it claims 8x8323080 pixels, and holds 64" in _line(tmp_path / "tall.tif")
    assert PictureEntry.of_file(tmp_path / "tall.tif", "tall.tif", AxialTransformerConfig(shape=(8, 8))) is None


def test_a_source_without_a_name_is_not_the_current_folder(tmp_path, monkeypatch):
    _png(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert len(data.load(".", split="all")) == 1
    with pytest.raises(ValueError, match="the name of the source is empty"):
        data.load("", split="all")


def test_a_text_file_named_png_is_named(tmp_path):
    _png(tmp_path)
    (tmp_path / "text.png").write_text("hello")
    assert "text.png is not a whole image" in _line(tmp_path)


def test_an_image_of_another_size_is_named_with_a_hint(tmp_path):
    _png(tmp_path)
    _png(tmp_path, "other.png", _PIXELS[:5])
    line = _line(tmp_path)
    assert all(words in line for words in ("other.png is 16x5", "good.png is 16x16", "crop, stretch or tiles"))
    line = _line(tmp_path, DataConfig(size=16))
    assert all(words in line for words in ("other.png is 16x5 pixels, not 16x16", "data.fit=crop"))
    assert "smaller than one 6x6 tile" in _line(tmp_path, DataConfig(size=6, fit="tiles"))
    assert len(data.load(tmp_path, DataConfig(size=6, fit="crop"), "all")) == 2


def test_images_whose_meaning_is_unclear_are_named(tmp_path):
    alpha = np.concatenate([_PIXELS, np.full((16, 16, 1), 255, np.uint8)], -1)
    alpha[3, 3, 3] = 254
    _png(tmp_path / "alpha", "a.png", alpha)
    assert "a.png is transparent" in _line(tmp_path / "alpha", DataConfig(mode="rgb"))
    _png(tmp_path / "deep", "a.png", _PIXELS[..., 0].astype(np.uint16))
    _png(tmp_path / "deep", "b.png", _PIXELS[..., 0])
    assert "b.png: 8-bit and 16-bit" in _line(tmp_path / "deep")
    assert "16-bit gray" in _line(tmp_path / "deep", DataConfig(mode="rgb"))
    _png(tmp_path / "float", "a.tiff", _PIXELS[..., 0].astype(np.float32))
    assert "a.tiff has pixels of type F" in _line(tmp_path / "float")
    (tmp_path / "moving").mkdir()
    frames = [Image.fromarray(_PIXELS), Image.fromarray(255 - _PIXELS)]
    frames[0].save(tmp_path / "moving" / "a.gif", save_all=True, append_images=frames[1:])
    assert "a.gif holds several images" in _line(tmp_path / "moving")


@pytest.mark.parametrize("end", [b",;", b"!\xf9\x04", b"!\xf9\x01\x00"], ids=["image", "extension", "short"])
def test_a_gif_that_is_damaged_behind_its_first_image_is_named(tmp_path, end):
    """Whether it has a second image is found by reading on."""
    Image.fromarray(_PIXELS).save(tmp_path / "a.gif")
    (tmp_path / "a.gif").write_bytes((tmp_path / "a.gif").read_bytes()[:-1] + end)
    assert "a.gif is not a whole image" in _line(tmp_path)


def test_an_empty_folder_is_named(tmp_path):
    assert "holds no images" in _line(tmp_path)
    (tmp_path / "notes.txt").write_text("hello")
    assert "holds no images" in _line(tmp_path)


def _npy(header: str, body: bytes = b"", version: bytes = b"\x01\x00") -> bytes:
    text = header.encode() + b"\n"
    length = len(text).to_bytes(2 if version[0] == 1 else 4, "little")
    return b"\x93NUMPY" + version + length + text + body


def _header(shape: str, descr: str = "|u1") -> str:
    return f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape}}}"


_BAD_NPY = {
    "terabytes": (_npy(_header("(1000000, 1000, 1000)"), b"x" * 100), "claims shape"),
    "overflow": (_npy(_header(f"({2**62}, {2**62}, 4)"), b"x" * 100), "claims shape"),
    "negative": (_npy(_header("(-2, -5, 10)"), b"x" * 100), "claims shape"),
    "cut off": (_npy(_header("(10, 10, 2)"), b"x" * 100), "holds 100"),
    "too long": (_npy(_header("(10, 10)"), b"x" * 101), "holds 101"),
    "objects": (_npy(_header("(10,)", "|O"), b"x" * 80), "never unpickled"),
    "no header": (b"\x93NUMPY\x01\x00", "cannot be read"),
    "junk": (b"hello", "cannot be read"),
    "empty": (b"", "cannot be read"),
    "junk header": (_npy("{'descr': __import__('os')}"), "cannot be read"),
    "deep header": (_npy("(" * 9000), "cannot be read"),
    "header of gigabytes": (b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + b" " * 100, "cannot be read"),
    "structured": (_npy("{'descr': [('a', '|u1')], 'fortran_order': False, 'shape': (10, 10)}", b"x" * 100), "uint8"),
    "floats": (_npy(_header("(2, 5)", "<f8"), np.geomspace(1, 2, 10).tobytes()), "not at equal steps"),
    "complex": (_npy(_header("(2, 5)", "<c8"), b"x" * 80), "complex64"),
    "one axis": (_npy(_header("(100,)"), b"x" * 100), "shape"),
    "no examples": (_npy(_header("(0, 5, 5)")), "shape"),
    "too large values": (_npy(_header("(2, 5)", "<i4"), b"\x00\x01\x00\x7f" * 5 + bytes(20)), "at most 65,536 values"),
}


@pytest.mark.parametrize("name", _BAD_NPY)
@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_bad_arrays_are_named(tmp_path, name, suffix):
    content, words = _BAD_NPY[name]
    path = tmp_path / f"bad{suffix}"
    if suffix == ".npy":
        path.write_bytes(content)
    else:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("images.npy", content)
    assert words in _line(path)


def test_object_arrays_are_never_unpickled(tmp_path):
    class Trap:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "sprung",))

    np.savez(tmp_path / "a.npz", images=np.array([Trap()] * 3, object))
    assert "never unpickled" in _line(tmp_path / "a.npz")
    assert not (tmp_path / "sprung").exists()


def test_archives_that_are_none_are_named(tmp_path):
    path = tmp_path / "a.npz"
    path.write_text("hello")
    assert "a.npz cannot be read" in _line(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("notes.txt", "hello")
    assert "it holds nothing" in _line(path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("images.npy", _npy(_header("(10, 10)"), b"x" * 100))
    assert "packed in a way" in _line(path)


def test_labels_that_do_not_fit_are_named(tmp_path):
    path = tmp_path / "a.npz"
    for labels in (np.arange(3), np.arange(4.0), np.arange(4)[:, None].repeat(2, 1)):
        np.savez(path, images=_IMAGES, labels=labels)
        assert "4 integers are needed" in _line(path)
    for labels in (np.array([0, -1, 2, 3]), np.array([0, 1, 2, 10**12])):
        np.savez(path, images=_IMAGES, labels=labels)
        assert "has labels" in _line(path)


def _bomb(path: Path, size: int) -> None:
    """An archive of zeros: a thousand times smaller than what it unpacks to."""
    pack = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    with zipfile.ZipFile(path, "w") as archive:
        with archive.open("images.npy", "w") as member:
            header = _npy(_header(f"({size >> 20}, 1024, 1024)"))
            member.write(pack.compress(header) + pack.flush(zlib.Z_FULL_FLUSH))
            zeros = pack.compress(bytes(1 << 20)) + pack.flush(zlib.Z_FULL_FLUSH)
            for _ in range(size >> 20):
                member.write(zeros)
            member.write(pack.flush())
        packed = archive.getinfo("images.npy")
        packed.compress_type, packed.file_size = zipfile.ZIP_DEFLATED, len(header) + size


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs RLIMIT_AS as Linux keeps it")
def test_hostile_files_take_at_most_a_gigabyte(tmp_path):
    for name, (content, _) in _BAD_NPY.items():
        (tmp_path / f"{name}.npy").write_bytes(content)
        with zipfile.ZipFile(tmp_path / f"{name}.npz", "w") as archive:
            archive.writestr("images.npy", content)
    _bomb(tmp_path / "bomb.npz", 3 << 29)
    with (tmp_path / "sparse.npy").open("wb") as stream:
        stream.write(b"\x93NUMPY\x02\x00\xff\xff\xff\xff")
        stream.truncate(1 << 42)
    for side in (9_000, 30_000):  # a bomb by our measure, and by Pillow's
        folder = tmp_path / f"images{side}"
        folder.mkdir()
        Image.new("1", (side, side)).save(folder / "bomb.png", compress_level=1)
    sources = sorted(path for path in tmp_path.iterdir())
    script = """
import resource, sys
from axial_transformers import data
pages = int(open("/proc/self/statm").read().split()[0])
limit = pages * resource.getpagesize() + (1 << 30)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
for source in sys.argv[1:]:
    try:
        data.load(source, split="all")
    except ValueError as error:
        assert source in str(error) and "memory" not in str(error).lower(), error
        print(error)
    else:
        raise SystemExit(f"{source} was accepted")
"""
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, sources)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == len(sources)
    assert "decompression bomb" in done.stdout
