"""Arrays in .npz and .npy files, read and written; downsampled ImageNet."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from axial_transformers.data import tables
from axial_transformers.data.config import DataConfig
from axial_transformers.data.examples import Examples, labelled
from axial_transformers.data.images import at_size
from axial_transformers.data.lazy_array import Values, joined
from axial_transformers.data.names import Names, joined_names
from axial_transformers.data.npy import array_header, array_names, read_array
from axial_transformers.data.value_range import BYTES, ValueRange, find_range, integers
from axial_transformers.storage.files import written_whole

_KEYS = ("images", "values", "videos", "arr_0")
MAPPED_FROM = 1 << 28
"""Bytes of an .npy file whose examples are mapped. Smaller ones are read: then they may be replaced."""


def load_arrays(files: Sequence[Path], options: DataConfig, root: Path | None) -> Examples:
    """Return all examples of array files.

    They are named by their positions in a file. Of files in the folder `root`, FILE# comes before these.
    """
    of_files: list[Examples] = []
    named: list[tuple[str, Sequence[str]]] = []
    for file in files:
        examples = _read(file, options)
        _check_image(file, examples.values, options)
        first = of_files[0] if of_files else examples
        has_other_labels = (examples.labels is None) != (first.labels is None)
        if examples.values.shape[1:] != first.values.shape[1:] or has_other_labels:
            raise ValueError(f"{file} differs from {files[0]} in its shape, or in having labels: give one of the files")
        of_files.append(examples.with_columns(first.columns, file))
        prefix = f"{file.relative_to(root).as_posix()}#" if root else ""
        named.append((prefix, examples.names))
    values_range = ValueRange.around([examples.range for examples in of_files])
    names = joined_names(named)
    labels = _join_labels(of_files, files[0])
    columns = first.columns
    arrays = [np.asarray(examples.values) for examples in of_files]
    del of_files, examples, first  # `joined` frees what it has copied
    values = joined(arrays, values_range.type) if len(arrays) > 1 else arrays[0]
    return Examples(
        values=values.astype(values_range.type, copy=False),
        names=names,
        range=values_range.modelled(files[0], options.num_values),
        columns=columns,
        **labelled(labels, len(names), files[0]),
    )


def _join_labels(of_files: Sequence[Examples], where: Path) -> NDArray[Any] | None:
    """Return the labels of files as they are stored, numbers or names."""
    if of_files[0].labels is None:
        return None
    have_numbers = {examples.has_numbered_classes for examples in of_files}
    if len(have_numbers) > 1:
        raise ValueError(f"some of {where} and the files beside it have names as labels, others numbers: convert them")
    names = [np.array(examples.class_names)[examples.labels] for examples in of_files]
    return np.concatenate(names).astype(np.int64 if have_numbers.pop() else str)


def save_arrays(
    path: str | Path,
    values: NDArray[Any],
    labels: NDArray[np.integer] | None = None,
    axes: str | None = None,
) -> None:
    """Write integers or floats [N, *A, C] as an .npz file that `load` reads back: images, videos or values, and labels.

    An .npy file holds the values alone. One channel has no axis where `load`, given these `axes`, does not need it.

    Raises:
        ValueError: the path does not end in .npz, or in .npy without labels; or there are more or fewer labels.
    """
    path = Path(path)
    if labels is not None and len(labels) != len(values):
        raise ValueError(f"there are {len(labels)} labels for {len(values)} examples")
    if path.suffix != ".npz" and (path.suffix != ".npy" or labels is not None):
        raise ValueError(f"{path} does not end in .npz")
    key = {4: "images", 5: "videos"}.get(values.ndim, "values")
    stored = _as_stored(np.asarray(values), axes)
    arrays: dict[str, Any] = {key: stored} if labels is None else {key: stored, "labels": labels}
    with written_whole(path) as aside:
        if path.suffix == ".npy":
            np.save(aside, stored)
        else:
            np.savez_compressed(aside, **arrays)


def _as_stored(values: NDArray[Any], axes: str | None) -> NDArray[Any]:
    """Return values [N, *A, C] in the shape from which `_integers` makes them."""
    letters = axes or ""
    bare = values[..., 0]
    if "C" in letters and len(letters) == values.ndim:
        return np.moveaxis(values, -1, letters.index("C"))
    named = "C" not in letters and len(letters) == bare.ndim
    known = bare.ndim < 5 and not _two_readings(bare.shape) and "C" not in name_axes("", bare.shape, DataConfig())
    return bare if values.shape[-1] == 1 and (named or known) else values


def example_shape(path: Path, options: DataConfig) -> tuple[int, ...]:
    """Return the axes of a file's examples, by its header; () for an ImageNet batch."""
    names = array_names(path)
    if options.key is None and is_batch(path, names):
        return ()
    shape, _ = array_header(path, chosen_array(path, names, options), options.label_column, options.decimal)
    axes = name_axes(path, shape, options)
    return tuple(length for letter, length in zip(axes, shape) if letter not in "NC")


def volume_in(path: Path, options: DataConfig) -> NDArray[Any]:
    """Return the array of a file [*A, C], to be cut into blocks."""
    name = chosen_array(path, array_names(path), options)
    values = read_array(path, name, options.label_column, options.decimal)
    return _channels_last(values, name_axes(path, values.shape, options))


def example_from(array: NDArray[Any], where: str, options: DataConfig) -> tuple[NDArray[np.integer], ValueRange]:
    """Return one example [*A, C] from an array [*A] or [*A, C], and the range of its values."""
    values, values_range = _integers(where, array[None], options)
    _check_image(where, values, replace(options, cut="exact"))
    return values[0], values_range


def _read(path: Path, options: DataConfig) -> Examples:
    """Return all examples of a file, named by their positions."""
    if path.suffix.lower() in tables.SUFFIXES:
        table = tables.read_table(path, options.label_column, options.decimal)
        values, values_range = _integers(path, table.values, options)
        return Examples(
            values=values,
            names=Names(table.numbers),
            range=values_range,
            columns=table.titles,
            **labelled(table.classes, len(values), path),
        )
    names = array_names(path)
    batch = options.key is None and is_batch(path, names)
    if batch:
        data = read_array(path, KEY)
        side = math.isqrt(data.shape[1] // 3)
        values = data.reshape(-1, 3, side, side).transpose(0, 2, 3, 1)
        values_range = BYTES
    else:
        array = read_array(path, chosen_array(path, names, options))
        if array.nbytes < MAPPED_FROM:
            array = array.copy(order="K")
        values, values_range = _integers(path, array, options)
    values = _resized(path, values, options)
    labels = read_array(path, "labels") if "labels" in names else None
    return Examples(
        values=values,
        names=Names(range(len(values))),
        range=values_range,
        **labelled(labels, len(values), path, first=int(batch)),  # those of a batch begin at 1
    )


def _resized(path: Path, videos: NDArray[np.integer], options: DataConfig) -> NDArray[np.integer]:
    """Return videos [N, T, H, W, C] at the options' size, and other arrays as they are."""
    size = options.size
    if options.cut not in ("crop", "stretch") or videos.ndim != 5 or videos.shape[2:4] == (size, size):
        return videos
    channels = videos.shape[-1]
    if channels not in (1, 3) or videos.dtype != np.uint8:
        raise ValueError(
            f"{path} has {channels} channels of {videos.dtype}: only gray and RGB videos of 8 bits are resized"
        )
    frames: list[NDArray[np.integer]] = []
    for frame in videos.reshape(-1, *videos.shape[2:]):
        image = Image.fromarray(frame if channels == 3 else frame[..., 0])
        frames.append(at_size(path, image, options, Image.Resampling.BOX))
    return np.reshape(frames, (*videos.shape[:2], size, size, channels))


def chosen_array(path: Path, names: list[str], options: DataConfig) -> str:
    """Return the name of the array that holds the examples; ValueError if several could."""
    if options.key in names:
        return options.key
    known = [key for key in _KEYS if key in names]
    others = [name for name in names if name != "labels"]
    if options.key is None and (known or len(others) == 1):
        return (known or others)[0]
    wanted = options.key or " or ".join(_KEYS)
    raise ValueError(
        f"{path}: there is no array {wanted}; it holds {', '.join(names) or 'no arrays'}: choose one with data.key"
    )


def _integers(path: Path | str, values: NDArray[Any], options: DataConfig) -> tuple[NDArray[np.integer], ValueRange]:
    """Return values [N, *A, C], and their range; 0..255 for images in uint8."""
    values = _channels_last(values, name_axes(path, values.shape, options))
    images = values.dtype == np.uint8 and values.ndim > 3 and options.num_values is None
    values_range = find_range(path, [values], options.grid, rounding=True)
    return integers(values, values_range), BYTES if images else values_range


def _check_image(path: Path | str, values: Values, options: DataConfig) -> None:
    *axes, channels = values.shape[1:]
    if options.size is not None and options.cut != "tiles" and axes[-2:] != [options.size, options.size]:
        raise ValueError(
            f"{path} holds {axes} positions, not data.size={options.size}: arrays in files are cut with data.cut=tiles,"
            " only folders and videos are resized"
        )
    if channels != {"rgb": 3, "rgba": 4, "gray": 1}.get(options.mode, channels):
        raise ValueError(
            f"{path} has {channels} channels, not those of data.mode={options.mode}: only folders are converted"
        )


KEY = "data"


def is_batch(path: Path, names: list[str]) -> bool:
    """Return True for a published ImageNet batch: uint8 `data` [N, 3 S S]."""
    if KEY not in names:
        return False
    shape, dtype = array_header(path, KEY)
    return dtype == np.uint8 and len(shape) == 2 and 0 not in shape and shape[1] == 3 * math.isqrt(shape[1] // 3) ** 2


def name_axes(where: Path | str, shape: Sequence[int], options: DataConfig) -> str:
    """Return a letter for each axis of an array, by the options or else by its shape: N for examples, C for channels.

    Raises:
        ValueError: another number of axes, or several likely readings.
    """
    axes = _axes_by_shape(where, shape, options) if options.axes is None else options.axes
    if 0 in shape or ("N" in axes and not 2 <= len(axes.replace("C", "")) <= 5):
        raise ValueError(
            f"{where} has shape {list(shape)}: [N, H, W], [N, H, W, C] or [N, T, H, W, C] is needed, no length 0"
        )
    if len(axes) != len(shape):
        raise ValueError(f"{where} has shape {list(shape)}, not the axes of data.axes={axes}")
    return axes


def _axes_by_shape(where: Path | str, shape: Sequence[int], options: DataConfig) -> str:
    if isinstance(options.size, tuple):
        has_channels = len(shape) > len(options.size) and shape[-1] <= min(4, options.size[-1] - 1)
        return "?" * (len(shape) - has_channels) + "C" * has_channels
    if readings := _two_readings(shape):
        ways = " or ".join(f"data.axes={reading}" for reading in readings)
        raise ValueError(f"{where} has shape {list(shape)}: say what its axes are, as by {ways}")
    has_channels = len(shape) >= 5 or (len(shape) == 4 and shape[-1] <= 4)
    return "N" + "?" * (len(shape) - 1 - has_channels) + "C" * has_channels


def _channels_last(values: NDArray[Any], axes: str) -> NDArray[Any]:
    return np.moveaxis(values, axes.index("C"), -1) if "C" in axes else values[..., None]


def _two_readings(shape: Sequence[int]) -> tuple[str, ...]:
    few = (1, 3, 4)  # channels of pictures, with alpha
    if len(shape) == 3 and shape[2] <= 16 and 32 <= max(shape[:2]) <= 2 * min(shape[:2]):
        return "NHW", "HWC with data.size=(32, 32)"
    if len(shape) == 4:
        _, second, third, last = shape
        if second in few and min(third, last) > 4:
            return "NCHW", "NTHW"
        if 5 <= last <= 16 and min(second, third) > last:
            return "NHWC", "NTHW"
    if len(shape) == 5 and min(shape[3:]) > 4:
        if shape[2] in few:
            return "NTCHW", "NTHWC"
        if shape[1] in few:
            return "NCTHW", "NTHWC"
    return ()
