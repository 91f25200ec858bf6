"""Blocks: examples cut out of larger arrays, in order or at random: of volumes, tiles of images, clips of videos."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import prod
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from axial_transformers.data.config import DataConfig
from axial_transformers.data.errors import parsing
from axial_transformers.data.examples import OnDemand, joined
from axial_transformers.data.tiles import cut_tiles
from axial_transformers.data.value_range import ValueRange, integers, range_of

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
    """

    def __init__(
        self,
        arrays: Sequence[Sliced],
        block: tuple[int, ...],
        found: ValueRange,
        at_random: bool,
    ) -> None:
        self.arrays, self.block, self.range, self.at_random = arrays, block, found, at_random
        self._grids = [np.floor_divide(array.shape[:-1], block).tolist() for array in arrays]
        self._axes = [next((axis for axis, count in enumerate(grid) if count > 1), 0) for grid in self._grids]
        self._ends = np.cumsum([0, *map(prod, self._grids)])
        super().__init__(range(int(self._ends[-1])), (*block, arrays[0].shape[-1]), found.type)

    def read(self, numbers: NDArray[np.int64]) -> NDArray[np.integer]:
        return self._cut([(array, place * self.block) for array, place in map(self.located, numbers)])

    def cut(self, indices: NDArray[np.int64], uniforms: NDArray[np.float64]) -> NDArray[np.integer]:
        """Return the blocks of arrays in which these are, at places within the part that `uniforms` choose."""
        corners = list[tuple[int, NDArray[np.int64]]]()
        for index, uniform in zip(indices, uniforms, strict=True):
            array, _ = self.located(self.part[int(index)])
            first, last = self._corners_of_part(array)
            counts = last - first + 1
            chosen = np.unravel_index(int(uniform * prod(counts.tolist())), tuple(counts))
            corners.append((array, first + np.array(chosen)))
        return self._cut(corners)

    def bounds(self) -> list[int]:
        """Return the numbers of the blocks at which slabs begin, and the end.

        A slab is what lies at one index of an array's first axis with several blocks. Parts made of whole slabs share
        no position, wherever `cut` cuts their blocks.
        """
        firsts = zip(self._ends[:-1], self._ends[1:], map(self._blocks_of_slab, range(len(self.arrays))), strict=True)
        return [*(start for first, end, each in firsts for start in range(int(first), int(end), each)), len(self.part)]

    def contents(self) -> Iterator[bytes | memoryview]:
        """Yield all that `cut` may return."""
        if not self.at_random:
            yield from super().contents()
            return
        yield b"1"  # published fingerprints have it
        for number in dict.fromkeys(self.located(number)[0] for number in self.part):
            first, last = self._corners_of_part(number)
            (start, *others), (stop, *ends) = first, last + self.block
            for rows in _rows(self.arrays[number], start, stop):
                part = self.arrays[number][(rows, *map(slice, others, ends))]
                yield np.ascontiguousarray(integers(part, self.range)).data

    def located(self, number: int) -> tuple[int, NDArray[np.int64]]:
        """Return the number of a block's array, and its place among the blocks of that."""
        array = int(np.searchsorted(self._ends, number, side="right")) - 1
        return array, np.array(np.unravel_index(number - self._ends[array], self._grids[array]))

    def _blocks_of_slab(self, array: int) -> int:
        return prod(self._grids[array][self._axes[array] + 1 :])

    def _corners_of_part(self, array: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the first and the last corner of blocks within this part of an array."""
        axis, each, before = self._axes[array], self._blocks_of_slab(array), int(self._ends[array])
        first = np.zeros(len(self.block), np.int64)
        last = np.subtract(self.arrays[array].shape[:-1], self.block)
        first[axis] = max(self.part.start - before, 0) // each * self.block[axis]
        if self.part.stop < self._ends[array + 1]:
            last[axis] = ((self.part.stop - before - 1) // each) * self.block[axis]
        return first, last

    def _cut(self, corners: Sequence[tuple[int, NDArray[np.int64]]]) -> NDArray[np.integer]:
        blocks = np.empty((len(corners), *self.shape[1:]), self.dtype)
        for block, (array, corner) in zip(blocks, corners, strict=True):
            box = tuple(map(slice, corner, corner + self.block))
            block[...] = integers(self.arrays[array][box], self.range)
        return blocks


def blocks_in(values: NDArray[np.integer], options: DataConfig) -> tuple[NDArray[np.integer], list[str]]:
    """Return the clips of a video or the tiles of an image [*A, C], or all of it, as [n, *block, C].

    Returns:
        The blocks, and n suffixes of names: #number of a clip, #row,column of a tile.
    """
    if not options.divides:
        return values[None], [""]
    block = block_of(values.shape[:-1], options)
    grid = np.floor_divide(values.shape[:-1], block)
    clips = [f"#{i:04d}" for i in range(grid[0])] if options.frames is not None else [""]
    tiles = [f"#{i},{j}" for i, j in np.ndindex(*grid[-2:])] if options.cut == "tiles" else [""]
    covered = values[tuple(map(slice, grid * block))]
    return cut_tiles(covered[None], block), [clip + tile for clip in clips for tile in tiles]


def joined_alike(
    parts: list[NDArray[np.integer]], names: Sequence[str], found: ValueRange, where: object
) -> NDArray[np.integer]:
    """Return parts [n, *A, C] as one array of a range; take each off the list, to free its memory.

    Raises:
        ValueError: parts of different shapes, of which `names` has those of all examples.
    """
    start = 0
    for count, *shape in [part.shape for part in parts]:
        if tuple(shape) != parts[0].shape[1:]:
            sizes = f"{names[0]} is {list(parts[0].shape[1:])}, and {names[start]} is {shape}"
            advice = "remove one, or give data.frames, or data.size with data.cut (crop or tiles)"
            raise ValueError(f"{where}: {sizes}: {advice}")
        start += count
    parts[:] = [integers(part, found) for part in parts]
    return joined(parts)


def cut_on_demand(
    arrays: Mapping[str, Sliced], options: DataConfig, found: ValueRange, where: object
) -> tuple[Blocks, list[str], list[int]]:
    """Cut named arrays [*A, C] into blocks; without a size, each is one.

    Several sizes are those of the last axes: what lies on the axes before them are arrays of their own, ARRAY#i.

    Args:
        found: the range of all values.
        where: what errors call the source.

    Returns:
        The blocks, their names ARRAY#i,j,.., and the numbers of their arrays.

    Raises:
        ValueError: arrays of different axes, or smaller than a block.
    """
    forms = {(block_of(array.shape[:-1], options), array.shape[-1]) for array in arrays.values()}
    if len(forms) > 1:
        few = ", ".join(f"{name} {list(array.shape)}" for name, array in list(arrays.items())[:3])
        raise ValueError(f"{where}: {few} differ: cut those of equal axes into blocks, as by data.size=(16, 16, 16)")
    ((block, _),) = forms
    parts, owners, names = list[Sliced](), list[int](), list[str]()
    for number, (name, array) in enumerate(arrays.items()):
        axes = array.shape[:-1]
        if len(block) > len(axes) or any(np.less(axes[len(axes) - len(block) :], block)):
            few = f"{where}: {name} is of {'x'.join(map(str, axes))} positions, less than one block of {list(block)}"
            raise ValueError(f"{few}: remove it, or lower data.size")
        for index in product(*map(range, axes[: -len(block)])):
            parts.append(array[index] if index else array)
            places = [*np.ndindex(*np.floor_divide(axes[-len(block) :], block))]
            owners += [number] * len(places)
            names += ["#".join([name, *map(str, index), ",".join(map(str, place))]) for place in places]
    return Blocks(parts, block, found, options.offsets == "random"), names, owners


def block_of(axes: tuple[int, ...], options: DataConfig) -> tuple[int, ...]:
    """Return the axes of the blocks into which the options cut arrays of these axes."""
    size = options.size
    block = axes if size is None else (*axes[:-2], size, size) if isinstance(size, int) else size
    return block if options.frames is None else (options.frames, *block[1:])


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
