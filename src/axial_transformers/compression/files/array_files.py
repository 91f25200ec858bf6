"""Arrays of images in .npz and .npy files: to images of the model's size, and back to the same array."""

from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from axial_transformers.compression.errors import DamagedError
from axial_transformers.compression.files import tiles
from axial_transformers.compression.files.contents import Contents, OtherSizes, other_size_error
from axial_transformers.data import join_uint16, split_uint16
from axial_transformers.data.npy import array_header, array_names, read_array
from axial_transformers.models import AxialTransformerConfig

_DTYPES = ("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64")


def read(path: Path, config: AxialTransformerConfig, other_sizes: OtherSizes) -> Contents:
    """Reads the one array [N, *A] or [N, *A, C] of a file that can be images of the model; others are left out.

    16-bit values become two channels, high byte and low byte, for a model with an even number of channels.

    Raises:
        ValueError: no such array, several, or one of another size (unless tiled).
    """
    names = array_names(path)
    fitting = [name for name in names if _fits(*array_header(path, name), config)]
    if len(fitting) != 1:
        wanted = " or ".join(str(["N", *config.shape, *c]) for c in ([], [config.channels]))
        raise ValueError(f"{path} holds {len(fitting)} arrays like {wanted} among {', '.join(names)}: save one alone")
    values = read_array(path, fitting[0])
    description = {"array": fitting[0], "dtype": str(values.dtype), "shape": list(values.shape)}
    _checked(description, config)
    examples = values.reshape(*values.shape[: 1 + len(config.shape)], -1)
    examples = split_uint16(examples) if _split(str(values.dtype), config) else _bytes(path, examples)
    axes = examples.shape[1:-1]
    if axes != config.shape and other_sizes == "refuse":
        raise other_size_error(path, axes, config.shape)
    left_out = [name for name in names if name != fitting[0]]
    return Contents(tiles.cut(examples, config.shape), description, left_out=left_out, examples=len(examples))


def write(
    target: Path, description: Any, config: AxialTransformerConfig, images: Sequence[NDArray[np.uint8] | None]
) -> list[str]:
    """Writes the array without the examples of which an image is missing (None), and returns the indices of these.

    Raises:
        DamagedError: the description does not fit the images.
    """
    name, dtype, shape = _checked(description, config)
    axes = shape[1 : 1 + len(config.shape)]
    per_example = prod(tiles.grid(axes, config.shape))
    if shape[0] * per_example != len(images):
        raise DamagedError(f"the archive holds {len(images)} images, but describes {shape[0]} of {per_example} tiles")
    groups = [images[i : i + per_example] for i in range(0, len(images), per_example)]
    whole = [[part for part in group if part is not None] for group in groups]
    kept = [group for group in whole if len(group) == per_example]
    if not kept:
        raise DamagedError("not one image of the archive can be read")
    values: NDArray[Any] = tiles.join(np.stack([part for group in kept for part in group]), axes)
    values = join_uint16(values) if _split(dtype, config) else values.astype(dtype)
    values = values.reshape(len(kept), *shape[1:])
    if target.suffix == ".npy":
        np.save(target, values, allow_pickle=False)
    else:
        # np.savez takes the names "file" and "allow_pickle" for its own parameters
        with ZipFile(target, "w", ZIP_DEFLATED) as archive, archive.open(f"{name}.npy", "w", force_zip64=True) as file:
            npy_format.write_array(file, values, allow_pickle=False)
    return [str(i) for i, group in enumerate(whole) if len(group) < per_example]


def _checked(description: Any, config: AxialTransformerConfig) -> tuple[str, str, tuple[int, ...]]:
    """Name, dtype and shape of the array, after they are checked."""
    name, dtype, shape = (description.get(key) for key in ("array", "dtype", "shape"))
    sizes = isinstance(shape, list) and all(type(size) is int and size > 0 for size in shape)
    if not (sizes and type(name) is str and dtype in _DTYPES and _fits(tuple(shape), np.dtype(dtype), config)):
        raise DamagedError(f"the archive's description of its array is damaged: {description!r:.100}")
    return name, dtype, tuple(shape)


def _fits(shape: tuple[int, ...], dtype: np.dtype[Any], config: AxialTransformerConfig) -> bool:
    """True for an array that can be images of the model, of any size."""
    channels = config.channels // 2 if _split(str(dtype), config) else config.channels
    axes = len(config.shape)
    with_channels = len(shape) == axes + 2 and shape[-1] == channels
    return str(dtype) in _DTYPES and 0 not in shape and (with_channels or (len(shape) == axes + 1 and channels == 1))


def _split(dtype: str, config: AxialTransformerConfig) -> bool:
    return dtype == "uint16" and config.channels % 2 == 0 and config.num_values == 256


def _bytes(path: Path, values: NDArray[Any]) -> NDArray[np.uint8]:
    low, high = int(values.min()), int(values.max())
    if low < 0 or high > 255:
        raise ValueError(
            f"{path} holds values {low}..{high}: archives hold 8 bits a value (or 16-bit pairs of channels)"
        )
    return values.astype(np.uint8)
