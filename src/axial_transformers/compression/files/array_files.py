"""Arrays of images in .npz and .npy files: to images of the model's size, and back."""

import shutil
import tempfile
from collections.abc import Iterable
from itertools import islice
from math import prod
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from axial_transformers.compression.container import DamagedError
from axial_transformers.compression.files import volumes
from axial_transformers.compression.files.source import (
    Contents,
    OtherSizes,
    Tiles,
    cut_tiles,
    join_tiles,
    tile_grid,
)
from axial_transformers.data.npy import array_header, array_names, read_array
from axial_transformers.data.value_range import ValueRange
from axial_transformers.models import AxialTransformerConfig

_DTYPES = ("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64")


def read(path: Path, config: AxialTransformerConfig, other_sizes: OtherSizes) -> Contents:
    """Read the one array [N, *A] or [N, *A, C] that can be images of the model, or an array alone of other axes."""
    names = array_names(path)
    fitting = [name for name in names if _fits(*array_header(path, name), config)]
    if not fitting and len(names) == 1 and array_header(path, names[0])[1].kind in "buif":
        return volumes.read(path, config, names[0])
    if len(fitting) != 1:
        wanted = " or ".join(str(["N", *config.shape, *c]) for c in ([], [config.channels]))
        headers = {name: array_header(path, name) for name in names}
        found = ", ".join(f"{name} {list(shape)} {dtype.name}" for name, (shape, dtype) in headers.items())
        raise ValueError(f"{path} holds {len(fitting)} arrays like {wanted} among {found}: save one alone")
    values = read_array(path, fitting[0])
    description = {"array": fitting[0], "dtype": values.dtype.name, "shape": list(values.shape)}
    _checked(description, config)
    axes = values.shape[1 : 1 + len(config.shape)]
    if axes != config.shape and other_sizes != "tile":
        sizes = f"{path} is of size {'x'.join(map(str, axes))}, the model of {'x'.join(map(str, config.shape))}"
        raise ValueError(f"{sizes}: tile it, by other_sizes=tile")
    known = ValueRange(config.lowest, config.highest)
    ValueRange.of(values).require_within(known, path)

    def of(i: int) -> NDArray[np.integer]:
        return cut_tiles(values[i].reshape(1, *axes, -1).astype(known.type), config.shape)

    left_out = [name for name in names if name != fitting[0]]
    images = Tiles([axes] * len(values), of, (*config.shape, config.channels))
    return Contents(images, description, left_out=left_out, examples=len(values))


def images_of(description: Any, config: AxialTransformerConfig) -> int:
    """Return the number of images of each example."""
    _, _, shape = _checked(description, config)
    return prod(tile_grid(shape[1 : 1 + len(config.shape)], config.shape))


def write(
    target: Path, description: Any, config: AxialTransformerConfig, images: Iterable[NDArray[np.integer] | None],
    count: int,
) -> list[str]:  # fmt: skip
    """Write the array without the examples that lack an image; return their indices."""
    name, dtype, shape = _checked(description, config)
    axes, per_example = shape[1 : 1 + len(config.shape)], images_of(description, config)
    if shape[0] * per_example != count:
        raise DamagedError(f"the archive holds {count} images, but describes {shape[0]} of {per_example} tiles")
    left, lost = iter(images), list[str]()
    with tempfile.TemporaryFile(dir=target.parent) as file:
        _write_header(file, dtype, shape)
        for i in range(shape[0]):
            parts = [part for part in islice(left, per_example) if part is not None]
            if len(parts) < per_example:
                lost.append(str(i))
                continue
            file.write(join_tiles(np.stack(parts), axes).astype(dtype).tobytes())
        file.seek(0)
        _write_header(file, dtype, (shape[0] - len(lost), *shape[1:]))  # as long as before: numpy leaves room
        file.seek(0)
        if target.suffix == ".npy":
            with target.open("wb") as whole:
                shutil.copyfileobj(file, whole)
        else:
            # np.savez takes the names "file" and "allow_pickle" for its own parameters
            with (
                ZipFile(target, "w", ZIP_DEFLATED) as archive,
                archive.open(f"{name}.npy", "w", force_zip64=True) as member,
            ):
                shutil.copyfileobj(file, member)
    return lost


def _write_header(file: Any, dtype: str, shape: tuple[int, ...]) -> None:
    descr = npy_format.dtype_to_descr(np.dtype(dtype))
    npy_format.write_array_header_1_0(file, {"descr": descr, "fortran_order": False, "shape": shape})


def _checked(description: Any, config: AxialTransformerConfig) -> tuple[str, str, tuple[int, ...]]:
    name, dtype, shape = (description.get(key) for key in ("array", "dtype", "shape"))
    sizes = isinstance(shape, list) and all(type(size) is int and size > 0 for size in shape)
    if not (sizes and type(name) is str and dtype in _DTYPES and _fits(tuple(shape), np.dtype(dtype), config)):
        raise DamagedError(f"the archive's description of its array is damaged: {description!r:.100}")
    return name, dtype, tuple(shape)


def _fits(shape: tuple[int, ...], dtype: np.dtype[Any], config: AxialTransformerConfig) -> bool:
    channels, axes = config.channels, len(config.shape)
    with_channels = len(shape) == axes + 2 and shape[-1] == channels
    return dtype.name in _DTYPES and 0 not in shape and (with_channels or (len(shape) == axes + 1 and channels == 1))
