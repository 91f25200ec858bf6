"""Reading .npy and .npz files that may be hostile: nothing is unpickled, and claimed sizes are checked."""

import errno
import io
import math
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

_HEADER_LIMIT = 1 << 16
UNPACKED_LIMIT = 1 << 28  # bytes that an array may always unpack to
RATIO_LIMIT = 100  # highest compression of a larger one: deflate reaches 1032 on zeros

SUFFIXES = (".npy", ".npz")


def array_names(path: Path) -> list[str]:
    """Return the names of a file's arrays; `arr_0` for .npy."""
    if path.suffix.lower() == ".npy":
        return ["arr_0"]
    with _reading(path), zipfile.ZipFile(path) as archive:
        return [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]


def array_header(path: Path, name: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Return shape and type of one array, checked against the file's size."""
    with _opened(path, name) as (stream, size, where):
        return _header(stream.read(_HEADER_LIMIT), size, where)


def read_array(path: Path, name: str) -> NDArray[Any]:
    """Return one array; those of .npy files are mapped."""
    with _opened(path, name) as (stream, size, where):
        _header(stream.read(_HEADER_LIMIT), size, where)
        if path.suffix.lower() == ".npy":
            return np.asarray(mapped(lambda mode: np.load(path, mmap_mode=mode, allow_pickle=False)))
        stream.seek(0)
        array: NDArray[Any] = npy_format.read_array(stream, allow_pickle=False)
        stream.read(1)  # the end of the stream is where its checksum is compared
        return array


def mapped(map_in: Callable[[Literal["c", "r"]], NDArray[Any]]) -> NDArray[Any]:
    """Return the array of a file, mapped copy-on-write or, if it is larger than memory, for reading only."""
    try:
        return map_in("c")
    except OSError as error:
        if error.errno != errno.ENOMEM:
            raise
        return map_in("r")


class _BadArrayError(ValueError):
    """The message is complete."""


@contextmanager
def _reading(path: Path | str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # parsers of damaged files raise errors of every kind
        if isinstance(error, _BadArrayError) or (isinstance(error, OSError) and error.filename):
            raise
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise ValueError(f"{path} cannot be read as arrays ({reason}): save it again with numpy, as uint8") from error


@contextmanager
def _opened(path: Path, name: str) -> Iterator[tuple[IO[bytes], int, str]]:
    with _reading(path):
        if path.suffix.lower() == ".npy":
            with path.open("rb") as file:
                yield file, path.stat().st_size, str(path)
        else:
            with zipfile.ZipFile(path) as archive:
                member = _member(archive, path, name)
                with archive.open(member) as stream:
                    yield stream, member.file_size, f"{path}: array {name!r}"


def _member(archive: zipfile.ZipFile, path: Path, name: str) -> zipfile.ZipInfo:
    member = archive.getinfo(name + ".npy")
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise _BadArrayError(f"{path}: array {name!r} is packed in a way numpy never does: save it again with np.savez")
    packed = min(member.compress_size, path.stat().st_size)
    if member.file_size > max(UNPACKED_LIMIT, RATIO_LIMIT * packed):
        raise _BadArrayError(
            f"{path}: array {name!r} would grow from {packed:,} to {member.file_size:,} bytes:"
            " refused as a decompression bomb; if it is honest, save it uncompressed with np.savez"
        )
    return member


def _header(start: bytes, size: int, where: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
    stream = io.BytesIO(start)
    version = npy_format.read_magic(stream)
    if version == (1, 0):
        shape, _, dtype = npy_format.read_array_header_1_0(stream)
    elif version == (2, 0):
        shape, _, dtype = npy_format.read_array_header_2_0(stream)
    else:
        raise _BadArrayError(f"{where} has format version {version}, not 1.0 or 2.0: save it again as plain uint8")
    if dtype.hasobject:
        raise _BadArrayError(f"{where} holds Python objects, which are never unpickled: save it as a uint8 array")
    claimed = math.prod(shape) * dtype.itemsize
    held = size - stream.tell()
    if claimed != held or any(length < 0 for length in shape):
        raise _BadArrayError(
            f"{where} claims shape {list(shape)} of {dtype}, {claimed:,} bytes, but holds {held:,}:"
            " damaged or cut off; copy or save it again"
        )
    return shape, dtype
