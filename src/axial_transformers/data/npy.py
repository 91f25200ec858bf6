"""Arrays in .npy and .npz files, read by numpy without pickles; and tables, which are arrays [rows, columns]."""

import errno
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from axial_transformers.data import tables
from axial_transformers.data.parsing import parsing

SUFFIXES = (".npy", ".npz", *tables.SUFFIXES)


def array_names(path: Path) -> list[str]:
    """Return the names of a file's arrays; `arr_0` for .npy and tables."""
    if path.suffix.lower() != ".npz":
        return ["arr_0"]
    with parsing(path), zipfile.ZipFile(path) as archive:
        return [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]


def array_header(path: Path, name: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Return shape and type of one array."""
    if path.suffix.lower() in tables.SUFFIXES:
        values = read_array(path, name)
        return values.shape, values.dtype
    with _opened(path, name) as stream:
        version = npy_format.read_magic(stream)
        read = npy_format.read_array_header_1_0 if version == (1, 0) else npy_format.read_array_header_2_0
        shape, _, dtype = read(stream)
    return shape, dtype


def read_array(path: Path, name: str) -> NDArray[Any]:
    """Return one array; those of .npy files are mapped."""
    if path.suffix.lower() in tables.SUFFIXES:
        return tables.read_table(path).values
    if path.suffix.lower() == ".npy":
        with parsing(path):
            return np.asarray(mapped(lambda mode: np.load(path, mmap_mode=mode, allow_pickle=False)))
    with _opened(path, name) as stream:
        array: NDArray[Any] = npy_format.read_array(stream, allow_pickle=False)
    return array


def mapped(map_in: Callable[[Literal["c", "r"]], NDArray[Any]]) -> NDArray[Any]:
    """Return the array of a file, mapped copy-on-write or, if it is larger than memory, for reading only."""
    try:
        return map_in("c")
    except OSError as error:
        if error.errno != errno.ENOMEM:
            raise
        return map_in("r")


@contextmanager
def _opened(path: Path, name: str) -> Iterator[IO[bytes]]:
    with parsing(path):
        if path.suffix.lower() == ".npy":
            with path.open("rb") as file:
                yield file
        else:
            with zipfile.ZipFile(path) as archive, archive.open(name + ".npy") as member:
                yield member
