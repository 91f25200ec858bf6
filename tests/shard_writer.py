"""Writes shards, and pictures and arrays as bytes."""

import io
import struct
import tarfile
import zlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from PIL import Image

Members = Iterable[tuple[str, bytes]]


def write(path: Path, members: Members) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(tar_of(members, tarfile.PAX_FORMAT))
    return path


def tar_of(members: Members, form: int = tarfile.USTAR_FORMAT) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=form) as tar:
        for name, content in members:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return file.getvalue()


def picture(pixels: np.ndarray, suffix: str = ".png") -> bytes:
    file = io.BytesIO()
    options = {"lossless": True} if suffix == ".webp" else {}
    Image.fromarray(pixels).save(file, Image.registered_extensions()[suffix], **options)
    return file.getvalue()


def deep_png(colour: int, channels: int, bits: int = 16) -> bytes:
    """5x3 pixels of 16 or fewer bits a channel, of a colour type that PNG has; Pillow writes few of them."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    noise = np.random.default_rng(0).integers(0, 256, (3, -(-5 * channels * bits // 8)), np.uint8)
    rows = b"".join(b"\0" + row.tobytes() for row in noise)
    head = struct.pack(">IIBBBBB", 5, 3, bits, colour, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def array(values: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, values)
    return file.getvalue()


def pictures(values: np.ndarray, first: int = 0, classes: int = 3) -> Members:
    """A record for each of uint8 [N, H, W, 3]: its picture, its class, and a member that is ignored."""
    for i, pixels in enumerate(values, start=first):
        yield f"{i:04d}.png", picture(pixels)
        yield f"{i:04d}.cls", str(i % classes).encode()
        yield f"{i:04d}.json", b"{}"
