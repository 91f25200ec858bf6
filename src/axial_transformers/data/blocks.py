"""Blocks: equal parts of larger arrays, in order or at random: of volumes, tiles of images, clips of videos."""

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from itertools import product
from math import prod
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from axial_transformers.data.config import DataConfig
from axial_transformers.data.errors import parsing
from axial_transformers.data.lazy_array import LazyArray
from axial_transformers.data.names import Names
from axial_transformers.data.value_range import ValueRange, find_range, integers

_AT_A_TIME = 1 << 24
"""Values of an array that are looked at together."""


class Sliced(Protocol):
    """An array, or one in a file that is read where it is sliced."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    def __getitem__(self, box: Any, /) -> Any: ...


@dataclass(frozen=True, eq=False)
class View:
    """What lies at an index of an array's first axes, read where it is sliced; as [*A, C], of one channel if asked."""

    array: Sliced
    index: tuple[int, ...] = ()
    adds_channel: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self.array.shape[len(self.index) :], *[1] * self.adds_channel)

    def __getitem__(self, box: Any, /) -> Any:
        inner = box if isinstance(box, tuple) else (box,)
        values = np.asarray(self.array[(*self.index, *inner)])
        return values[..., None] if self.adds_channel else values


def channels_last(array: Sliced, axes: str) -> Sliced:
    """Return an array whose axes have these letters as [*A, C]; without C it has one channel."""
    if "C" not in axes:
        return View(array, adds_channel=True)
    if axes.endswith("C"):
        return array
    return np.moveaxis(np.asarray(array), axes.index("C"), -1)


class Blocks(LazyArray):
    """Blocks [M, *block, C] of arrays, in order.

    Args:
        arrays: [*A, C], of any lengths, and of as many axes as a block.
        block: the lengths of a block's axes.
        values: the range of all values.
        at_random: training cuts each block at a random place (`cut`).
        repeats_edges: what is left over at the end of an axis is filled up by its last values; it else belongs to no
            block.
    """

    in_memory = True

    def __init__(
        self,
        arrays: Sequence[Sliced],
        block: tuple[int, ...],
        values: ValueRange,
        *,
        at_random: bool = False,
        repeats_edges: bool = False,
    ) -> None:
        self.arrays = arrays
        self.block = block
        self.range = values
        self.at_random = at_random
        lengths = np.array([array.shape[:-1] for array in arrays])
        self._grids = -(-lengths // block) if repeats_edges else lengths // block
        self._axes = (self._grids > 1).argmax(axis=1)  # the first one with several blocks
        self.counts = self._grids.prod(axis=1)  # of blocks, by array
        self._starts = np.cumsum([0, *self.counts])
        super().__init__(range(self._starts[-1]), (*block, arrays[0].shape[-1]), values.type)

    def in_order(self) -> Self:
        """Return the blocks that are cut in order, in training too."""
        blocks = copy(self)
        blocks.at_random = False
        return blocks

    def read(self, numbers: NDArray[np.int64]) -> NDArray[np.integer]:
        return self._cut([(array, np.multiply(place, self.block)) for array, place in map(self.located, numbers)])

    def cut(self, indices: NDArray[np.int64], uniforms: NDArray[np.float64]) -> NDArray[np.integer]:
        """Return the blocks of arrays in which these are, at places within the part that `uniforms` choose."""
        corners: list[tuple[int, NDArray[np.int64]]] = []
        for index, uniform in zip(indices, uniforms):
            array, _ = self.located(self.numbers[index])
            first, last = self._part_corners(array)
            counts = last - first + 1
            chosen = np.unravel_index(int(uniform * prod(counts.tolist())), tuple(counts))
            corners.append((array, first + np.array(chosen)))
        return self._cut(corners)

    def bounds(self) -> list[int]:
        """Return the numbers of the blocks at which slabs begin, and the end.

        A slab is what lies at one index of an array's first axis with several blocks. Parts made of whole slabs share
        no position, wherever `cut` cuts their blocks.
        """
        starts: list[int] = []
        for array in range(len(self.arrays)):
            starts += range(self._starts[array], self._starts[array + 1], self._slab_blocks(array))
        return [*starts, len(self.numbers)]

    def contents(self) -> Iterator[bytes | memoryview]:
        """Yield all that `cut` may return."""
        if not self.at_random:
            yield from super().contents()
            return
        yield b"1"  # published fingerprints have it
        first_array, _ = self.located(self.numbers[0])
        last_array, _ = self.located(self.numbers[-1])
        for number in range(first_array, last_array + 1):
            array = self.arrays[number]
            first, last = self._part_corners(number)
            (start, *others), (stop, *ends) = first, last + self.block
            for rows in _rows(array, start, stop):
                values = array[(rows, *map(slice, others, ends))]
                yield np.ascontiguousarray(integers(values, self.range)).data

    def whole(self) -> Iterator[NDArray[np.integer]]:
        """Yield the values of all arrays, also beyond the last blocks."""
        for array in self.arrays:
            for rows in _rows(array, 0, array.shape[0]):
                yield integers(np.asarray(array[rows]), self.range)

    def located(self, number: int) -> tuple[int, tuple[np.integer, ...]]:
        """Return the number of a block's array, and its place among the blocks of that."""
        array = int(np.searchsorted(self._starts, number, side="right")) - 1
        return array, np.unravel_index(number - self._starts[array], self._grids[array])

    def _slab_blocks(self, array: int) -> int:
        return int(self._grids[array, self._axes[array] + 1 :].prod())

    def _part_corners(self, array: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the first and the last corner of blocks within this part of an array."""
        axis = self._axes[array]
        in_slab = self._slab_blocks(array)
        before = self._starts[array]
        first = np.zeros(len(self.block), np.int64)
        last = np.subtract(self.arrays[array].shape[:-1], self.block)
        first[axis] = max(self.numbers.start - before, 0) // in_slab * self.block[axis]
        if self.numbers.stop < self._starts[array + 1]:
            last[axis] = ((self.numbers.stop - before - 1) // in_slab) * self.block[axis]
        return first, last

    def _cut(self, corners: Sequence[tuple[int, NDArray[np.int64]]]) -> NDArray[np.integer]:
        blocks = np.empty((len(corners), *self.shape[1:]), self.dtype)
        for block, (array, corner) in zip(blocks, corners):
            box = tuple(map(slice, corner, corner + self.block))
            values = integers(np.asarray(self.arrays[array][box]), self.range)
            if values.shape != block.shape:
                missing = np.subtract(block.shape, values.shape)
                values = np.pad(values, [(0, count) for count in missing], mode="edge")
            block[...] = values
        return blocks


def cut(
    arrays: Sequence[Sliced], names: Sequence[str], options: DataConfig, values: ValueRange, where: object
) -> tuple[Blocks, Names, NDArray[np.int64]]:
    """Cut named arrays [*A, C] into blocks; without a size, each is one.

    Several sizes are those of the last axes: what lies on the axes before them are arrays of their own, ARRAY#i.

    Args:
        values: the range of all values.
        where: what errors call the source.

    Returns:
        The blocks; their names, ARRAY#i,j,.. of a block, ARRAY#row,column of a tile, ARRAY#0012 of a clip; and the
        number of the array of each.

    Raises:
        ValueError: arrays of different axes, or smaller than a block.
    """
    block = _common_block(arrays, names, options, where)
    parts: list[Sliced] = []
    owners: list[int] = []
    indices: list[tuple[int, ...]] = []
    for number, array in enumerate(arrays):
        for index in product(*map(range, array.shape[: -len(block) - 1])):
            parts.append(View(array, index) if index else array)
            owners.append(number)
            indices.append(index)
    blocks = Blocks(parts, block, values, at_random=options.offsets == "random")

    name = partial(_block_name, blocks, [names[owner] for owner in owners], indices, options)
    return blocks, Names(blocks.numbers, name), np.repeat(owners, blocks.counts)


def _block_name(
    blocks: Blocks, names: Sequence[str], indices: Sequence[tuple[int, ...]], options: DataConfig, number: int
) -> str:
    part, place = blocks.located(number)
    return "#".join([names[part], *map(str, indices[part])]) + _place_name(place, options)


def _place_name(place: tuple[np.integer, ...], options: DataConfig) -> str:
    clip = f"#{place[0]:04d}" if options.frames else ""
    tile = f"#{place[-2]},{place[-1]}" if options.cut == "tiles" and isinstance(options.size, int) else ""
    return clip + tile or f"#{','.join(map(str, place))}"


def _common_block(
    arrays: Sequence[Sliced], names: Sequence[str], options: DataConfig, where: object
) -> tuple[int, ...]:
    """Return the block into which all arrays are cut."""
    first = arrays[0].shape
    block = block_shape(first[:-1], options)
    for name, array in zip(names, arrays):
        *axes, channels = array.shape
        if len(axes) != len(first) - 1 or (block_shape(tuple(axes), options), channels) != (block, first[-1]):
            raise ValueError(f"{where}: {differing(names[0], first, name, array.shape)}")
        if len(block) > len(axes) or any(np.less(axes[len(axes) - len(block) :], block)):
            raise ValueError(
                f"{where}: {name} is of {axes} positions, less than one block of {list(block)}: remove it, or lower"
                " data.size"
            )
    return block


def differing(name: str, shape: Sequence[int], other: str, other_shape: Sequence[int]) -> str:
    """Return a line about two arrays of different shapes, and what to do."""
    return (
        f"{name} is {list(shape)}, and {other} is {list(other_shape)}: remove one, or give data.size with data.cut=crop"
        " or tiles, data.frames, or blocks by data.size"
    )


def block_shape(axes: tuple[int, ...], options: DataConfig) -> tuple[int, ...]:
    """Return the axes of the blocks into which the options cut arrays of these axes."""
    block = options.size if isinstance(options.size, tuple) else axes
    if isinstance(options.size, int):
        block = (*axes[:-2], options.size, options.size)
    return (options.frames, *block[1:]) if options.frames else block


def range_of_array(
    name: object, array: Sliced, known: tuple[float, float] | None, rounding: bool = False
) -> ValueRange:
    """Return the range of an array's values, which is read in parts; errors as of `find_range`."""

    def read(rows: slice) -> NDArray[Any]:
        with parsing(name):
            return np.asarray(array[rows])

    return find_range(name, map(read, _rows(array, 0, array.shape[0])), known, rounding)


def _rows(array: Sliced, start: int, stop: int) -> Iterator[slice]:
    """Yield slices of the first axis that hold at most `_AT_A_TIME` values, or one index."""
    count = max(1, _AT_A_TIME // prod(array.shape[1:]))
    return (slice(row, min(row + count, stop)) for row in range(start, stop, count))
