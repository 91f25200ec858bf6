"""HDF5, NetCDF 4, MATLAB 7.3 and Zarr: one array of a file, with the names of its axes and the scale of its values."""

from collections.abc import Collection, Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axial_transformers.data.errors import ParsingError, say
from axial_transformers.data.scan import Scan, package, usual_axes

_AT_ONCE = 1 << 28
"""Bytes of an array that is read at once; a larger one is read where it is sliced."""
_LETTERS = {
    **dict.fromkeys(("x", "lon", "longitude"), "W"),
    **dict.fromkeys(("y", "lat", "latitude"), "H"),
    **dict.fromkeys(("z", "lev", "level", "depth"), "D"),
    **dict.fromkeys(("t", "time"), "T"),
    **dict.fromkeys(("c", "band", "channel"), "C"),
    "length": "L",
}
_NAMES = {"W": "x", "H": "y", "D": "z", "T": "time", "C": "channel", "L": "length"}
"""What axes are called in files that `write_hdf5` makes."""
SUFFIX = ".h5"
"""A scan of these formats, or of another one that NIfTI does not stand for, returns from archives as HDF5."""


class _Stated:
    """An array of a file in the order and type that its attributes state, read where it is sliced.

    Args:
        reverse: the axes are stored in the other order, as MATLAB does.
    """

    def __init__(self, array: Any, dtype: np.dtype[Any], reverse: bool) -> None:
        self._array = array
        self.dtype = dtype
        self._reverse = reverse
        self.shape: tuple[int, ...] = array.shape[::-1] if reverse else array.shape
        self.ndim = len(self.shape)

    def __getitem__(self, box: Any) -> NDArray[Any]:
        places = box if isinstance(box, tuple) else (box,)
        if self._reverse:
            return np.asarray(self._array[(..., *places[::-1])]).T.view(self.dtype)
        return np.asarray(self._array[places]).view(self.dtype)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self[()], dtype)


def read_hdf5(path: Path, name: str = "") -> Scan:
    """Return the dataset of this name, or the only one that is not the scale of an axis."""
    h5py = package("h5py", path)
    datasets: dict[str, Any] = {}
    if not h5py.is_hdf5(path):
        raise ParsingError(f"{path} is no HDF5, as NetCDF 4 and MATLAB 7.3 are, or is damaged: convert or replace it")
    file = h5py.File(path, "r")  # open as long as its dataset

    def keep(place: str, member: Any) -> None:
        is_text = member.attrs.get("MATLAB_class") == b"char"  # stored as numbers
        if isinstance(member, h5py.Dataset) and not is_text:
            datasets[place] = member

    file.visititems(keep)
    scales = {place for place, dataset in datasets.items() if dataset.is_scale}
    chosen = datasets[chosen_array(path, name, datasets, scales)]
    axes = [] if chosen.shape is None else [_axis_name(axis) for axis in chosen.dims]
    return _make_scan(chosen, axes)


def _axis_name(axis: Any) -> str:
    """Return the name of an axis of HDF5, which may be that of its scale."""
    return axis.label or (axis[0].name.rpartition("/")[2] if len(axis) else "")


def read_zarr(path: Path, name: str = "") -> Scan:
    """Return the array of this name, or the only one; of an image of OME, that of the full resolution."""
    zarr = package("zarr", path)
    root = zarr.open(path, mode="r")
    members = {"": root} | ({} if isinstance(root, zarr.Array) else dict(root.members(max_depth=None)))
    arrays = {place: member for place, member in members.items() if isinstance(member, zarr.Array)}
    axes = {place: _axes_in_zarr(array) for place, array in arrays.items()}
    left_out = {place for place, names in axes.items() if names == [place.rpartition("/")[2]]}
    for group in members.keys() - arrays.keys():
        resolutions, names = _ome_image(members[group])
        places = [f"{group}/{resolution}".strip("/") for resolution in resolutions]
        axes.update(dict.fromkeys(places, names))
        left_out.update(places[1:])
        if places and not group:
            name = name or places[0]
    chosen = chosen_array(path, name, arrays, left_out)
    return _make_scan(arrays[chosen], axes[chosen])


def _axes_in_zarr(array: Any) -> list[str]:
    """Return the names of axes of format 3, or those that xarray writes into format 2."""
    names = getattr(array.metadata, "dimension_names", None) or array.attrs.get("_ARRAY_DIMENSIONS") or ()
    return [name or "" for name in names]


def _ome_image(group: Any) -> tuple[list[str], list[str]]:
    """Return the names of the arrays of an image, the largest first, and those of its axes; of other groups none."""
    images = group.attrs.get("ome", group.attrs).get("multiscales")
    if not images:
        return [], []
    axes = images[0].get("axes", "tczyx")
    names = [axis["name"] if isinstance(axis, Mapping) else axis for axis in axes]
    return [resolution["path"] for resolution in images[0]["datasets"]], names


def chosen_array(path: Path, name: str, arrays: Mapping[str, Any], left_out: Collection[str] = ()) -> str:
    """Return the name of the array that is named, or of the only one that is not left out."""
    if name.strip("/") in arrays and name:
        return name.strip("/")
    names = [place for place, array in arrays.items() if place not in left_out and array.shape != ()] or [*arrays]
    if name or len(names) != 1:
        some = ", ".join(sorted(names)[:20]) or "none"
        raise ParsingError(f"{path} holds {len(names)} arrays ({some}): name one, as in {path.name}::name")
    return names[0]


def _make_scan(array: Any, names: Sequence[str]) -> Scan:
    """Return an array, with what its attributes say about its values.

    They are those of NetCDF: stored numbers are kept, and what they mean in another unit is beside them.
    """
    attributes = array.attrs
    values: Any = _Stated(array, _stated_type(array.dtype, attributes), "MATLAB_class" in attributes)
    if array.nbytes <= _AT_ONCE:
        values = values[()]
    _say_missing(values, attributes)
    scale, offset = (float(np.ravel(attributes.get(attribute, usual))[0]) for attribute, usual in _SCALING)
    return Scan(values, _name_axes(names, values.shape), scale, offset, SUFFIX)


def write_hdf5(path: Path, values: NDArray[Any], like: Scan, axes: str) -> None:
    """Write values, what they mean and, if they have letters, the names of their axes as one dataset of HDF5."""
    with package("h5py", path).File(path, "w") as file:
        dataset = file.create_dataset("values", data=values, compression="gzip")
        for (name, usual), number in zip(_SCALING, (like.scale, like.offset)):
            if number != usual:
                dataset.attrs[name] = number
        for axis, letter in zip(dataset.dims, axes):
            axis.label = _NAMES.get(letter, "")


_SCALING = (("scale_factor", 1.0), ("add_offset", 0.0))


def _stated_type(stored: np.dtype[Any], attributes: Mapping[str, Any]) -> np.dtype[Any]:
    """Return the type of stored integers; NetCDF 3 had none without a sign, so an attribute says it."""
    stated = np.asarray(attributes.get("_Unsigned", "")).astype(str).item()
    kind = {"true": "u", "false": "i"}.get(stated.lower())
    return np.dtype(f"{stored.byteorder}{kind}{stored.itemsize}") if kind and stored.kind in "iu" else stored


def _say_missing(values: Any, attributes: Mapping[str, Any]) -> None:
    """Say that numbers stand for missing values, if there are such; of what is read later, that there may be."""
    known = values if isinstance(values, np.ndarray) and values.dtype.kind in "iuf" else None
    for name in ("_FillValue", "missing_value"):
        numbers = np.ravel(attributes.get(name, ()))
        if numbers.dtype.kind not in "iuf":  # xarray writes NaN into Zarr as text
            continue
        if known is not None:
            numbers = _as_stated(numbers, known.dtype)
            numbers = numbers[np.isin(numbers, known)]
        if numbers.size:
            say(f"{name} says that {numbers[0]} stands for what is missing: it is read like other numbers")
    if known is None:
        return
    valid = attributes.get("valid_range", (attributes.get("valid_min", -inf), attributes.get("valid_max", inf)))
    low, high = (_as_stated(np.asarray(number), known.dtype) for number in valid)
    if np.any(known < low) or np.any(known > high):
        say(f"its valid numbers are from {low} to {high}: others are read like these")


def _as_stated(numbers: NDArray[Any], stated: np.dtype[Any]) -> NDArray[Any]:
    """Return numbers of an attribute in the type that is stated for the values, if only the sign sets them apart."""
    other_sign = {numbers.dtype.kind, stated.kind} == {"i", "u"} and numbers.itemsize == stated.itemsize
    return numbers.astype(stated) if other_sign else numbers


def _name_axes(names: Sequence[str], shape: Sequence[int]) -> str:
    """Return the letters of axes by their names; of those without known names by their number and lengths."""
    known = [_LETTERS.get(name.lower(), "") for name in names]
    if not any(known):
        last_is_few = len(shape) in (3, 4) and shape[-1] <= 4
        return "?" * 5 if len(shape) == 5 else usual_axes(len(shape), last_is_few)
    letters = ["" if letter in known[:place] else letter for place, letter in enumerate(known)]
    for place, usual in enumerate(usual_axes(len(shape)).rjust(len(shape), "L")):
        free = [letter for letter in (usual, *"LDHWT") if letter not in letters]
        letters[place] = letters[place] or (free or ["?"])[0]
    return "".join(letters)
