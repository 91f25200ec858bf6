"""Blocks: examples cut out of larger arrays, such as scans, of any number of axes."""

from collections.abc import Mapping, Sequence
from itertools import product
from math import prod
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from axial_transformers.data.config import DataConfig
from axial_transformers.data.examples import Examples, Indices
from axial_transformers.data.parsing import parsing
from axial_transformers.data.value_range import ValueRange, integers, range_of
from axial_transformers.data.windows import Windows, windowed

_AT_A_TIME = 1 << 24
"""Values of an array that are looked at together."""


class Sliced(Protocol):
    """An array, or one in a file that is read where it is sliced."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    def __getitem__(self, box: Any, /) -> Any: ...


class _OneChannel:
    """An array [*A] as [*A, 1], read where it is sliced."""

    def __init__(self, array: Sliced) -> None:
        self._array, self.shape = array, (*array.shape, 1)

    def __getitem__(self, box: Any, /) -> Any:
        return self._array[box][..., None]


def channels_last(array: Sliced, axes: str) -> Sliced:
    """Return an array whose axes have these letters as [*A, C]; without C it has one channel."""
    return np.moveaxis(np.asarray(array), axes.index("C"), -1) if "C" in axes else _OneChannel(array)


class Blocks(Windows):
    """Blocks [M, *block, C] of arrays, in order; what is left over at the end of an axis belongs to no block.

    Args:
        volumes: arrays [*A, C] by name, of any lengths that hold a block.
        block: the lengths of a block's axes.
        found: the range of all values.
        part: the numbers of the blocks among those of all arrays.
    """

    def __init__(
        self, volumes: Mapping[str, Sliced], block: tuple[int, ...], found: ValueRange, part: slice = slice(None)
    ) -> None:
        self.volumes, self.block, self.range, self.dtype = volumes, block, found, found.type
        self._arrays = list(volumes.values())
        self._grids = [tuple(map(int, np.floor_divide(array.shape[:-1], block))) for array in self._arrays]
        self._axes = [next((axis for axis, count in enumerate(grid) if count > 1), 0) for grid in self._grids]
        self._ends = np.cumsum([0, *map(prod, self._grids)])
        self.part = range(int(self._ends[-1]))[part]
        self.shape = (len(self.part), *block, self._arrays[0].shape[-1])

    def __getitem__(self, indices: Indices) -> NDArray[np.integer]:
        found = map(self._located, np.arange(len(self))[indices])
        return self._read([(volume, np.multiply(block, self.block)) for volume, block in found])

    def cut(self, indices: NDArray[np.int64], uniforms: NDArray[np.float64]) -> NDArray[np.integer]:
        corners = list[tuple[int, NDArray[np.int64]]]()
        for index, uniform in zip(indices, uniforms, strict=True):
            volume, _ = self._located(index)
            first, last = self._corners_of_part(volume)
            counts = last - first + 1
            chosen = np.unravel_index(int(uniform * prod(counts.tolist())), tuple(counts))
            corners.append((volume, first + np.array(chosen)))
        return self._read(corners)

    def bounds(self) -> list[int]:
        """Return the numbers of the blocks at which slabs begin, and the end.

        A slab is what lies at one index of an array's first axis with several blocks. Parts made of whole slabs share
        no position, wherever `cut` cuts their blocks.
        """
        firsts = zip(self._ends[:-1], self._ends[1:], map(self._blocks_of_slab, range(len(self._arrays))), strict=True)
        return [*(start for first, end, each in firsts for start in range(int(first), int(end), each)), len(self.part)]

    def between(self, start: int, stop: int) -> "Blocks":
        return Blocks(self.volumes, self.block, self.range, slice(start, stop))

    def examples(self, options: DataConfig) -> Examples:
        """Return the blocks as examples, named ARRAY#i,j,..; for random offsets with `cut`."""
        names, where = list(self.volumes), next(iter(self.volumes))
        found = map(self._located, range(len(self)))
        examples = Examples(
            values=self.as_array(),
            names=[f"{names[volume]}#{','.join(map(str, block))}" for volume, block in found],
            **self.range.counted(where, options.num_values),
        )
        return windowed(examples, self, examples.names, slice(None)) if options.offsets == "random" else examples

    def _located(self, index: int) -> tuple[int, tuple[int, ...]]:
        number = self.part[int(index)]
        volume = int(np.searchsorted(self._ends, number, side="right")) - 1
        return volume, tuple(map(int, np.unravel_index(number - self._ends[volume], self._grids[volume])))

    def _blocks_of_slab(self, volume: int) -> int:
        return prod(self._grids[volume][self._axes[volume] + 1 :])

    def _corners_of_part(self, volume: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the first and the last corner of blocks within this part of an array."""
        axis, each, before = self._axes[volume], self._blocks_of_slab(volume), int(self._ends[volume])
        first = np.zeros(len(self.block), np.int64)
        last = np.subtract(self._arrays[volume].shape[:-1], self.block)
        first[axis] = max(self.part.start - before, 0) // each * self.block[axis]
        if self.part.stop < self._ends[volume + 1]:
            last[axis] = ((self.part.stop - before - 1) // each) * self.block[axis]
        return first, last

    def _read(self, corners: Sequence[tuple[int, NDArray[np.int64]]]) -> NDArray[np.integer]:
        blocks = np.empty((len(corners), *self.shape[1:]), self.dtype)
        for block, (volume, corner) in zip(blocks, corners, strict=True):
            block[...] = integers(self._arrays[volume][tuple(map(slice, corner, corner + self.block))], self.range)
        return blocks


def cut(volumes: Mapping[str, Sliced], options: DataConfig) -> Blocks:
    """Cut named arrays [*A, C] into blocks of the options' size; without a size, each array is one.

    Several sizes are those of the last axes: what lies on the axes before them are arrays of their own.

    Raises:
        ValueError: values that are not modelled, or arrays of other axes or smaller than a block.
    """
    forms = {(_block(name, array.shape[:-1], options), array.shape[-1]) for name, array in volumes.items()}
    if len(forms) > 1:
        few = ", ".join(f"{name} {list(array.shape)}" for name, array in list(volumes.items())[:3])
        raise ValueError(f"{few} differ: cut those of equal axes into blocks, as by data.size=(16, 16, 16)")
    ((block, _),) = forms
    arrays = {
        name + "".join(f"#{i}" for i in index): array[index] if index else array
        for name, array in volumes.items()
        for index in product(*map(range, array.shape[: -len(block) - 1]))
    }
    ranges = [range_of_array(name, array, options.grid, rounding=True) for name, array in volumes.items()]
    return Blocks(arrays, block, ValueRange.around(ranges))


def _block(name: str, axes: tuple[int, ...], options: DataConfig) -> tuple[int, ...]:
    size = options.size
    block = axes if size is None else (*axes[:-2], size, size) if isinstance(size, int) else size
    if len(block) > len(axes) or np.any(np.array(axes[len(axes) - len(block) :]) < block):
        shown = "x".join(map(str, axes))
        raise ValueError(f"{name} has {shown} positions, less than one block of data.size={block}: give smaller ones")
    return block


def range_of_array(name: str, array: Sliced, known: tuple[float, float] | None, rounding: bool = False) -> ValueRange:
    """Return the range of an array's values, which is read in parts; errors as of `range_of`."""
    rows = max(1, _AT_A_TIME // prod(array.shape[1:]))

    def part(row: int) -> NDArray[Any]:
        with parsing(Path(name)):
            return np.asarray(array[row : row + rows])

    return range_of(name, map(part, range(0, array.shape[0], rows)), known, rounding)
