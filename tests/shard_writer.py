"""Writes shards, good and bad ones."""

import io
import tarfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from PIL import Image

Members = Iterable[tuple[str, bytes]]


def write(path: Path, members: Members) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as tar:
        for name, content in members:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


def picture(pixels: np.ndarray, suffix: str = ".png") -> bytes:
    file = io.BytesIO()
    options = {"lossless": True} if suffix == ".webp" else {}
    Image.fromarray(pixels).save(file, Image.registered_extensions()[suffix], **options)
    return file.getvalue()


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
