"""Arrays in .npy and .npz files, read by numpy without pickles; and tables, which are arrays [rows, columns]."""

import errno
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from axial_transformers.data import tables
from axial_transformers.data.errors import parsing

SUFFIXES = (".npy", ".npz", *tables.SUFFIXES)


def array_names(path: Path) -> list[str]:
    """Return the names of a file's arrays; `arr_0` for .npy and tables."""
    if path.suffix.lower() != ".npz":
        return ["arr_0"]
    with parsing(path), zipfile.ZipFile(path) as archive:
        return [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]


def array_header(
    path: Path, name: str, label_column: str | None = None, decimal: str | None = None
) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Return shape and type of one array."""
    if path.suffix.lower() != ".npz":
        values = read_array(path, name, label_column, decimal)
        return values.shape, values.dtype
    with parsing(path), zipfile.ZipFile(path) as archive, archive.open(f"{name}.npy") as stream:
        first = npy_format.read_magic(stream) == (1, 0)
        shape, _, dtype = (npy_format.read_array_header_1_0 if first else npy_format.read_array_header_2_0)(stream)
    return shape, dtype


def read_array(path: Path, name: str, label_column: str | None = None, decimal: str | None = None) -> NDArray[Any]:
    """Return one array; those of .npy files are mapped. The last arguments are those of `read_table`."""
    suffix = path.suffix.lower()
    if suffix in tables.SUFFIXES:
        return tables.read_table(path, label_column, decimal).values
    with parsing(path):
        if suffix == ".npy":
            return np.asarray(mapped(lambda mode: np.load(path, mmap_mode=mode, allow_pickle=False)))
        with np.load(path, allow_pickle=False) as arrays:
            array: NDArray[Any] = arrays[name]
        if not isinstance(array, np.ndarray):
            raise ValueError("it is no array")
    return array


def mapped(map_in: Callable[[Literal["c", "r"]], NDArray[Any]]) -> NDArray[Any]:
    """Return the array of a file, mapped copy-on-write or, if it is larger than memory, for reading only."""
    try:
        return map_in("c")
    except OSError as error:
        if error.errno != errno.ENOMEM:
            raise
        return map_in("r")
