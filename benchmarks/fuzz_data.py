"""The parsers of data, for the fuzzer: tar, shards and their index, pictures, arrays, TFRecord, videos."""

import hashlib
import io
import json
import os
import struct
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any
from unittest.mock import patch

import av
import numpy as np
from PIL import Image

from axial_transformers.data import MOVIES, DataConfig, npy, save_arrays
from axial_transformers.data.arrays import example_of, load_arrays
from axial_transformers.data.loading import load
from axial_transformers.data.shards import index, shard_examples, sources
from axial_transformers.data.shards.record_decoding import class_of, decode_picture, read
from axial_transformers.data.shards.tar import name_at, records
from axial_transformers.pictures import save_clips
from fuzz_mutations import TEXTS, Parser, mutate, mutate_json

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from shard_writer import array, picture

PIXELS = np.random.default_rng(0).integers(0, 256, (6, 7, 3), np.uint8)
_AS_IS = DataConfig()


def put(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


# Tar files and shards


def _tar(members: list[tuple[str, bytes]], form: int, headers: dict[str, str] | None = None) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=form, pax_headers=headers) as tar:
        for name, content in members:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return file.getvalue()


def _mend_tar(name: str, content: bytes) -> bytes:
    """Right sums in whatever looks like a header."""
    mended = bytearray(content)
    for start in range(0, len(content) - 511, 512):
        if mended[start + 257 : start + 262] == b"ustar":
            mended[start + 148 : start + 156] = b" " * 8
            mended[start + 148 : start + 156] = b"%06o\0 " % sum(mended[start : start + 512])
    return bytes(mended)


def _hostile_tar(draw: Random) -> tuple[str, bytes]:
    """Extended headers with numbers, sparse maps, repeated and nested ones, of up to 120 KB."""
    keys = ("size", "path", "mtime", "uid", "hdrcharset", "GNU.sparse.map", "GNU.sparse.size", "GNU.sparse.major")
    keys += ("GNU.sparse.minor", "GNU.sparse.numblocks", "GNU.sparse.offset", "GNU.sparse.name", "linkpath", "comment")
    length = draw.choice((1, 20, 20, 100, 100, 1000, 1000, 20_000, 60_000, 120_000))
    kind = draw.randrange(4)
    if kind == 0:  # a record without its length, or with a wrong one
        body = draw.choice((b"9", b"0", b"1 ", b"1 x=", b"\n", b"7 a=b\n", b"=")) * length
    elif kind == 1:
        body = b"".join(_pax(draw.choice(keys), draw.choice(TEXTS)) for _ in range(draw.choice((1, 2, 8, 1000))))
    elif kind == 2:
        body = _pax(draw.choice(keys), draw.choice(("0,1,", "9", "x", "1,0,", " ")) * length)
    else:
        body = _pax("GNU.sparse.major", "1") + _pax("GNU.sparse.minor", "0") + _pax(draw.choice(keys), "1" * length)
    body = body[:120_000]
    header = tarfile.TarInfo("x")
    header.type, header.size = draw.choice((b"x", b"g", b"L", b"K", b"S", b"X")), len(body)
    block = header.tobuf(tarfile.USTAR_FORMAT) + body.ljust(-(-len(body) // 512) * 512, b"\0")
    return "a.tar", block * draw.choice((1, 1, 2)) + _tar([("a.npy", array(PIXELS))], tarfile.USTAR_FORMAT)


def _pax(key: str, value: str) -> bytes:
    text = f" {key}={value}\n".encode()
    size = len(text) + 1
    while len(str(size)) + len(text) != size:
        size = len(str(size)) + len(text)
    return str(size).encode() + text


def _members() -> list[tuple[str, bytes]]:
    return [
        ("cat/0001.png", picture(PIXELS)),
        ("cat/0001.cls", b"2"),
        ("0002.png", picture(255 - PIXELS)),
        ("0002.cls", b"1"),
        ("0002.json", b"{}"),
        ("0" * 120 + "3.png", picture(PIXELS // 2)),
        ("0" * 120 + "3.cls", b"0"),
    ]


def tar_files(place: Path) -> Parser:
    path = place / "a.tar"
    forms = tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT
    contents = [_tar(_members(), form) for form in forms[:2]] + [_tar(_members()[:5], forms[2])]
    contents.append(
        _tar([("a.npy", array(PIXELS)), ("b.npy", array(PIXELS))], forms[0], {"comment": "1", "mtime": "7"})
    )

    def parse(name: str, content: bytes) -> object:
        found = list(records(put(path, content)))
        with path.open("rb") as stream:
            for record in found:
                with suppress(ValueError):  # of one record: the rest is still read
                    read(stream, record.example, record.name)
                    class_of(read(stream, record.label, record.name), record.name) if record.label else None
                name_at(path, record.header)
        return len(found)

    return Parser(
        seeds=[("a.tar", content) for content in contents], parse=parse, mend=_mend_tar, generate=_hostile_tar,
    )  # fmt: skip


def _forget(*modules: ModuleType) -> None:
    """Empties what the modules have cached."""
    for module in modules:
        for value in vars(module).values():
            if hasattr(value, "cache_clear"):
                value.cache_clear()


def shard_index(place: Path) -> Parser:
    """Files of the cache, beside sound shards: what is read must be what the shards hold, or an error."""
    cache, shard = place / "cache", put(place / "a.tar", _tar(_members(), tarfile.GNU_FORMAT))
    where = patch.dict(os.environ, XDG_CACHE_HOME=str(cache))
    everything = slice(None)

    def loaded() -> tuple[Any, ...]:
        with where:
            _forget(index, shard_examples)
            found = shard_examples.load_shards([shard], _AS_IS)
            labels = None if found.labels is None else found.labels.tolist()
            return found.fingerprint, labels, found.values[everything].tobytes(), list(found.names), found.class_names

    original = loaded()
    paths = sorted(file for file in cache.rglob("*.*") if file.is_file() and file.suffix != ".lock")
    sound = _BETWEEN.join(file.read_bytes() for file in paths)  # about.json, rows.bin

    def parse(name: str, content: bytes) -> object:
        for file, part in zip(paths, content.split(_BETWEEN, len(paths) - 1)):
            file.parent.mkdir(parents=True, exist_ok=True)
            put(file, part)
        return loaded()

    def structured(name: str, content: bytes, draw: Random) -> bytes:
        about, rows = content.split(_BETWEEN)
        if draw.random() < 0.5:
            return about + _BETWEEN + mutate(rows, rows, draw, draw.choice((1, 1, 2, 4)))
        return mutate_json(about, draw, draw.choice((1, 1, 2, 4))) + _BETWEEN + rows

    return Parser(
        seeds=[("index", sound)], parse=parse, right=lambda name, result: result == original, mend=_mend_index,
        structured=structured,
    )  # fmt: skip


_BETWEEN = b"\n----\n"  # two files as one input


def _mend_index(name: str, content: bytes) -> bytes:
    """The right checksum of the index, over what else is in about.json and the rows."""
    about, _, rows = content.partition(_BETWEEN)
    try:
        found = json.loads(about)
        found.pop("checksum", None)
        checksum = hashlib.sha256(json.dumps(found).encode() + rows).hexdigest()
        return json.dumps({"checksum": checksum, **found}).encode() + _BETWEEN + rows
    except (ValueError, RecursionError, AttributeError, TypeError):
        return content


def shard_names(place: Path) -> Parser:
    patterns = (
        "train-{000..009}.tar", "{train,val}-0.tar", "a{b,{c,d}}{1..3}.tar", "{00..03}{a,b}", "{{{a,b},c},d}", "}" * 50,
    )  # fmt: skip
    extremes = "{" * 2000, "{a," * 3000, "{1..999999999999999999}", "{0..9}" * 6, "{a,b}" * 40, "{a,b" * 800 + "}" * 800

    def parse(name: str, content: bytes) -> object:
        return len(sources.expand(" ".join(content.decode(errors="replace").split())))

    def generate(draw: Random) -> tuple[str, bytes]:
        return "pattern", draw.choice(extremes).encode()

    seeds = [("pattern", pattern.encode()) for pattern in patterns]
    return Parser(seeds=seeds, parse=parse, generate=generate, generated=0.002)


# Pictures


def _saved(mode: str, suffix: str, **options: Any) -> tuple[str, bytes]:
    file = io.BytesIO()
    image = Image.fromarray(PIXELS).convert("L" if mode == "I;16" else mode)
    if mode == "I;16":
        image = Image.fromarray(PIXELS[..., 0].astype(np.uint16) * 257)
    image.save(file, Image.registered_extensions()[suffix], **options)
    return f"a{suffix}", file.getvalue()


def _mend_png(name: str, content: bytes) -> bytes:
    """Right checksums in the chunks of a PNG file."""
    mended, start = bytearray(content), 8
    while content[:4] == b"\x89PNG" and start + 12 <= len(content):
        (size,) = struct.unpack_from(">I", mended, start)
        end = start + 8 + size
        if end + 4 > len(content):
            break
        struct.pack_into(">I", mended, end, zlib.crc32(mended[start + 4 : end]))
        start = end + 4
    return bytes(mended)


def images(place: Path) -> Parser:
    Image.init()
    more = [Image.fromarray(255 - PIXELS)]
    seeds = [_saved(mode, ".png") for mode in ("1", "L", "LA", "P", "RGB", "RGBA", "I;16")]
    seeds += [_saved(mode, ".jpg", quality=90) for mode in ("L", "RGB", "CMYK")]
    exif = Image.Exif()
    exif[0x112] = 6
    seeds += [_saved("RGB", ".jpg", progressive=True, exif=exif)]
    seeds += [_saved("RGB", ".png", exif=exif), _saved("RGB", ".webp", exif=exif)]
    seeds += [_saved("P", ".gif"), _saved("RGB", ".gif", save_all=True, append_images=more)]
    packings = ("raw", "tiff_lzw", "tiff_adobe_deflate", "jpeg", "packbits")
    seeds += [_saved("RGB", ".tif", compression=packing) for packing in packings]
    seeds += [_saved("1", ".tif", compression="group4"), _saved("I;16", ".tif"), _saved("P", ".tif")]
    seeds += [_saved("RGB", ".tif", save_all=True, append_images=more)]
    seeds += [
        _saved("RGB", ".webp", lossless=True),
        _saved("RGBA", ".webp"),
        _saved("RGB", ".webp", save_all=True, append_images=more),
    ]
    seeds += [_saved(mode, ".bmp") for mode in ("1", "L", "P", "RGB")]
    seeds += [_saved("RGB", ".ppm"), _saved("L", ".pgm"), _saved("1", ".pbm"), ("a.ppm", b"P3 2 1 255 1 2 3 4 5 6\n")]

    def parse(name: str, content: bytes) -> object:
        values, _ = decode_picture(content, name, _AS_IS)
        return values.shape

    return Parser(seeds=seeds, parse=parse, mend=_mend_png)


# Arrays


def _hostile_npy(draw: Random) -> tuple[str, bytes]:
    """A header that is well-formed, but says extreme things."""
    types = (
        "|u1",
        "<u2",
        "|b1",
        "|O",
        "<f8",
        "<i8",
        "|V0",
        "|V9",
        "|S0",
        "|U0",
        "<M8[s]",
        "|u1" * 500,
        "(2,)|u1",
        ">u4",
    )
    types += ("[('a', '|u1')]", "[('a', '|O')]", "<U9999999999", "i" * 5000, "'|u1'", "<c16", "|S1", "")
    sizes = [draw.choice((*TEXTS, "True", "None", "(1,)", "1.0", "2", "3", "6", "7")) for _ in range(draw.randrange(7))]
    shape = draw.choice((f"({', '.join(sizes)},)", "(" * 90 + ")" * 90, "()", "[2, 3]", "(0, 5, 5)", "(" * 9000))
    order = draw.choice(("False", "True", "0", "[]"))
    header = f"{{'descr': {draw.choice(types)!r}, 'fortran_order': {order}, 'shape': {shape}, }}"
    text = header.encode() + b" " * draw.choice((0, 16, 70_000)) + b"\n"
    version = draw.choice((1, 1, 1, 2, 3))
    length = len(text).to_bytes(4, "little")[: 2 if version == 1 else 4]
    return "a.npy", b"\x93NUMPY" + bytes([version, 0]) + length + text + draw.randbytes(
        draw.choice((0, 1, 6, 126, 252))
    )


def npy_files(place: Path) -> Parser:
    path = place / "a.npy"
    arrays = PIXELS[None], PIXELS.astype(np.uint16), PIXELS[..., 0] > 5, np.asfortranarray(PIXELS.astype(np.int64))

    def parse(name: str, content: bytes) -> object:
        values, _ = example_of(npy.array_of(content, name), name, _AS_IS)
        return values.shape, load_arrays([put(path, content)], _AS_IS).values.shape

    return Parser(seeds=[("a.npy", array(values)) for values in arrays], parse=parse, generate=_hostile_npy)


def _mend_zip(name: str, content: bytes) -> bytes:
    """Right checksums and sizes of the members of a ZIP archive, where its central directory leads to them."""
    mended, entry = bytearray(content), content.find(b"PK\1\2")
    while entry >= 0 and entry + 46 <= len(mended):
        method, size, start = (
            *struct.unpack_from("<H8xI", mended, entry + 10),
            *struct.unpack_from("<I", mended, entry + 42),
        )
        if mended[start : start + 4] == b"PK\3\4" and start + 30 <= len(mended):
            body = start + 30 + sum(struct.unpack_from("<HH", mended, start + 26))
            unpacked = bytes(mended[body : body + size])
            if method == zipfile.ZIP_DEFLATED:
                with suppress(zlib.error):
                    unpacked = zlib.decompressobj(-15).decompress(unpacked, 1 << 22)
            for at in (start + 14, entry + 16):
                struct.pack_into("<I", mended, at, zlib.crc32(unpacked))
                struct.pack_into("<I", mended, at + 8, len(unpacked))
        entry = content.find(b"PK\1\2", entry + 1)
    return bytes(mended)


def array_files(place: Path) -> Parser:
    path, contents = place / "a.npz", []
    for values, labels in ((PIXELS[None].repeat(2, 0), np.arange(2)), (PIXELS[None] * np.uint16(3), None)):
        save_arrays(path, values, labels)
        contents.append(path.read_bytes())
    np.savez(path, values=PIXELS[..., 0])
    contents.append(path.read_bytes())

    def parse(name: str, content: bytes) -> object:
        found = load_arrays([put(path, content)], _AS_IS)
        return found.values.shape, found.values.tobytes()

    def generate(draw: Random) -> tuple[str, bytes]:
        """A header that says extreme things, packed; or zeros, packed many times over."""
        file = io.BytesIO()
        with zipfile.ZipFile(
            file, "w", draw.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2))
        ) as out:
            for name in draw.choice(
                (["images.npy"], ["images.npy", "labels.npy"], ["x.npy"] * 2, ["a/../b.npy", ".npy"])
            ):
                content = _hostile_npy(draw)[1] if draw.random() < 0.7 else array(np.zeros((5, 1000, 1000), np.uint8))
                out.writestr(name, content)
        return "a.npz", file.getvalue()

    originals = [parse("a.npz", content) for content in contents]
    return Parser(
        seeds=[("a.npz", content) for content in contents], parse=parse, mend=_mend_zip, generate=generate,
        right=lambda name, result: result in originals,
    )  # fmt: skip


# Videos


def videos(place: Path) -> Parser:
    frames = np.random.default_rng(0).integers(0, 256, (1, 6, 16, 16, 3), np.uint8)
    seeds = []
    for suffix in (".mp4", ".gif", ".mkv", ".avi", ".webm", ".mov"):
        path = place / f"a{suffix}"
        save_clips(path, frames) if suffix in MOVIES else _encode(path, frames[0])
        seeds.append((path.name, path.read_bytes()))

    def parse(name: str, content: bytes) -> object:
        return load(put(place / name, content), DataConfig(frames=2), "all").values.shape

    def generate(draw: Random) -> tuple[str, bytes]:
        """The content of one container under the name of another."""
        (name, _), (_, content) = draw.choice(seeds), draw.choice(seeds)
        return name, mutate(content, content, draw)

    return Parser(seeds=seeds, parse=parse, generate=generate)


def _encode(path: Path, frames: np.ndarray) -> None:
    codec = {".webm": "libvpx", ".avi": "mjpeg", ".mov": "png"}[path.suffix]
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=5)
        stream.height, stream.width = frames.shape[1:3]
        stream.pix_fmt = {"png": "rgb24", "mjpeg": "yuvj420p"}.get(codec, "yuv420p")
        for frame in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, "rgb24")))
        container.mux(stream.encode())


PARSERS: dict[str, Callable[[Path], Parser]] = {
    "tar": tar_files, "shard-index": shard_index, "shard-names": shard_names, "images": images, "npy": npy_files,
    "arrays": array_files, "video": videos,
}  # fmt: skip
