"""Blocks: examples cut out of larger arrays, in order or at random: of volumes, tiles of images, clips of videos."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import prod
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from axial_transformers.data.config import DataConfig
from axial_transformers.data.examples import Examples, Indices, OnDemand, joined
from axial_transformers.data.folders import Gathered
from axial_transformers.data.parsing import parsing
from axial_transformers.data.value_range import BYTES, ValueRange, integers, range_of

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


class Blocks(OnDemand):
    """Blocks [M, *block, C] of arrays, in order; what is left over at the end of an axis belongs to no block.

    Args:
        arrays: [*A, C], of any lengths that hold a block.
        block: the lengths of a block's axes.
        found: the range of all values.
        at_random: training cuts each block at a random place (`cut`).
        stride: along the first axis, a block takes every stride-th index.
        part: the numbers of the blocks among those of all arrays.
    """

    def __init__(
        self,
        arrays: Sequence[Sliced],
        block: tuple[int, ...],
        found: ValueRange,
        at_random: bool,
        stride: int = 1,
        part: range | None = None,
    ) -> None:
        self.arrays, self.block, self.range, self.dtype = arrays, block, found, found.type
        self.at_random, self.stride = at_random, stride
        self._step = np.multiply(block, (stride, *[1] * (len(block) - 1)))
        self._reach = np.subtract(self._step, (stride - 1, *[0] * (len(block) - 1)))
        self._grids = [(np.subtract(array.shape[:-1], self._reach) // self._step + 1).tolist() for array in arrays]
        self._axes = [next((axis for axis, count in enumerate(grid) if count > 1), 0) for grid in self._grids]
        self._ends = np.cumsum([0, *map(prod, self._grids)])
        self.part = range(int(self._ends[-1])) if part is None else part
        self.shape = (len(self.part), *block, arrays[0].shape[-1])

    def __getitem__(self, indices: Indices) -> NDArray[np.integer]:
        found = map(self.located, np.arange(len(self))[indices])
        return self._read([(array, place * self._step) for array, place in found])

    def cut(self, indices: NDArray[np.int64], uniforms: NDArray[np.float64]) -> NDArray[np.integer]:
        """Return the blocks of arrays in which these are, at places within the part that `uniforms` choose."""
        corners = list[tuple[int, NDArray[np.int64]]]()
        for index, uniform in zip(indices, uniforms, strict=True):
            array, _ = self.located(index)
            first, last = self._corners_of_part(array)
            counts = last - first + 1
            chosen = np.unravel_index(int(uniform * prod(counts.tolist())), tuple(counts))
            corners.append((array, first + np.array(chosen)))
        return self._read(corners)

    def bounds(self) -> list[int]:
        """Return the numbers of the blocks at which slabs begin, and the end.

        A slab is what lies at one index of an array's first axis with several blocks. Parts made of whole slabs share
        no position, wherever `cut` cuts their blocks.
        """
        firsts = zip(self._ends[:-1], self._ends[1:], map(self._blocks_of_slab, range(len(self.arrays))), strict=True)
        return [*(start for first, end, each in firsts for start in range(int(first), int(end), each)), len(self.part)]

    def consecutive(self, chosen: slice) -> NDArray[np.integer]:
        part = self.part[chosen]
        return Blocks(self.arrays, self.block, self.range, self.at_random, self.stride, part).as_array()

    def contents(self) -> Iterator[bytes | memoryview]:
        """Yield all that `cut` may return and, with a stride, how."""
        if not self.at_random:
            yield from super().contents()
            return
        yield str(self.stride).encode()
        for number in dict.fromkeys(self.located(index)[0] for index in range(len(self))):
            first, last = self._corners_of_part(number)
            (start, *others), (stop, *ends) = first, last + self._reach
            for rows in _rows(self.arrays[number], start, stop):
                part = self.arrays[number][(rows, *map(slice, others, ends))]
                yield np.ascontiguousarray(integers(part, self.range)).data

    def located(self, index: int) -> tuple[int, NDArray[np.int64]]:
        """Return the number of a block's array, and its place among the blocks of that."""
        number = self.part[int(index)]
        array = int(np.searchsorted(self._ends, number, side="right")) - 1
        return array, np.array(np.unravel_index(number - self._ends[array], self._grids[array]))

    def _blocks_of_slab(self, array: int) -> int:
        return prod(self._grids[array][self._axes[array] + 1 :])

    def _corners_of_part(self, array: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the first and the last corner of blocks within this part of an array."""
        axis, each, before = self._axes[array], self._blocks_of_slab(array), int(self._ends[array])
        first = np.zeros(len(self.block), np.int64)
        last = np.subtract(self.arrays[array].shape[:-1], self._reach)
        first[axis] = max(self.part.start - before, 0) // each * self._step[axis]
        if self.part.stop < self._ends[array + 1]:
            last[axis] = ((self.part.stop - before - 1) // each) * self._step[axis]
        return first, last

    def _read(self, corners: Sequence[tuple[int, NDArray[np.int64]]]) -> NDArray[np.integer]:
        blocks, strides = np.empty((len(corners), *self.shape[1:]), self.dtype), (self.stride, *[1] * len(self.block))
        for block, (array, corner) in zip(blocks, corners, strict=True):
            box = tuple(map(slice, corner, corner + self._reach, strides))
            block[...] = integers(self.arrays[array][box], self.range)
        return blocks


def cut_volumes(volumes: Mapping[str, Sliced], options: DataConfig) -> Examples:
    """Cut named arrays [*A, C] into blocks of the options' size, named ARRAY#i,j,..; without a size, each is one.

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
    blocks = Blocks([*arrays.values()], block, ValueRange.around(ranges), options.offsets == "random")
    names, found = [*arrays], map(blocks.located, range(len(blocks)))
    return Examples(
        values=blocks.as_array(),
        names=[f"{names[array]}#{','.join(map(str, place))}" for array, place in found],
        **blocks.range.counted(next(iter(volumes)), options.num_values),
    )


def _block(name: str, axes: tuple[int, ...], options: DataConfig) -> tuple[int, ...]:
    size = options.size
    block = axes if size is None else (*axes[:-2], size, size) if isinstance(size, int) else size
    if len(block) > len(axes) or np.any(np.array(axes[len(axes) - len(block) :]) < block):
        shown = "x".join(map(str, axes))
        raise ValueError(f"{name} has {shown} positions, less than one block of data.size={block}: give smaller ones")
    return block


def range_of_array(name: str, array: Sliced, known: tuple[float, float] | None, rounding: bool = False) -> ValueRange:
    """Return the range of an array's values, which is read in parts; errors as of `range_of`."""

    def part(rows: slice) -> NDArray[Any]:
        with parsing(Path(name)):
            return np.asarray(array[rows])

    return range_of(name, map(part, _rows(array, 0, array.shape[0])), known, rounding)


def _rows(array: Sliced, start: int, stop: int) -> Iterator[slice]:
    """Yield slices of the first axis that hold at most `_AT_A_TIME` values, or one index."""
    count = max(1, _AT_A_TIME // prod(array.shape[1:]))
    return (slice(row, min(row + count, stop)) for row in range(start, stop, count))


def examples_of(gathered: Gathered, options: DataConfig, where: object, deep: bool) -> Examples:
    """Return the images or clips of files; at random offsets, as many blocks of each as fit side by side.

    Args:
        gathered: images [n, H, W, C] or clips [n, T, H, W, C]; for random offsets each whole, n = 1.
        deep: values of 16 bits, in the range of those that there are.
    """
    found = ValueRange.around([ValueRange.of(part) for part in gathered.parts]) if deep else BYTES
    values, origins, names = None, list(range(len(gathered.names))), gathered.names
    if options.offsets == "random":
        axes = gathered.parts[0].shape[1:-1]
        of_image = (options.size, options.size) if options.fit == "tiles" else axes[-2:]
        block = (options.frames, *of_image) if len(axes) > 2 else of_image
        blocks = Blocks([part[0] for part in gathered.parts], block, found, True, options.stride)
        places = [blocks.located(index) for index in range(len(blocks))]
        origins = [array for array, _ in places]
        names = [f"{names[array]}#{','.join(map(str, place))}" for array, place in places]
        values = blocks.as_array()
    return Examples(
        values=joined(gathered.parts).astype(found.type, copy=False) if values is None else values,
        names=names,
        labels=None if gathered.labels is None else gathered.labels[origins],
        class_names=gathered.class_names,
        skipped=gathered.skipped,
        **found.counted(where, options.num_values if deep else None),
    )
