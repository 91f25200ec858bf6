"""Tiles: examples cut into equal parts along their axes, and joined again."""

import re
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray


def tile_grid(lengths: tuple[int, ...], tile: tuple[int, ...]) -> tuple[int, ...]:
    """Return the number of tiles along each axis; the last ones may reach beyond its end."""
    return tuple(-(-length // side) for length, side in zip(lengths, tile, strict=True))


def cut_tiles(examples: NDArray[np.integer], tile: tuple[int, ...]) -> NDArray[np.integer]:
    """Cut examples [N, *A, C] into tiles [N * prod(grid), *tile, C], in reading order; repeat edges to fill them."""
    count, *lengths, channels = examples.shape
    grid = tile_grid(tuple(lengths), tile)
    missing = [(0, number * side - length) for number, side, length in zip(grid, tile, lengths)]
    padded = np.pad(examples, [(0, 0), *missing, (0, 0)], mode="edge")
    interleaved = padded.reshape(count, *(n for pair in zip(grid, tile) for n in pair), channels)
    return interleaved.transpose(_tiles_first(len(tile))).reshape(-1, *tile, channels)


def join_tiles(tiles: NDArray[np.integer], lengths: tuple[int, ...]) -> NDArray[np.integer]:
    """Invert `cut_tiles`, for examples with axes of these lengths."""
    tile, channels = tiles.shape[1:-1], tiles.shape[-1]
    grid = tile_grid(lengths, tile)
    split = tiles.reshape(len(tiles) // prod(grid), *grid, *tile, channels)
    padded = split.transpose(np.argsort(_tiles_first(len(tile)))).reshape(
        len(split), *(number * side for number, side in zip(grid, tile)), channels
    )
    return padded[:, *(slice(length) for length in lengths)]


def _tiles_first(axes: int) -> tuple[int, ...]:
    return (0, *range(1, 2 * axes, 2), *range(2, 2 * axes + 1, 2), 2 * axes + 1)


def tile_of(name: str) -> tuple[str, tuple[int, int] | None]:
    """Return the name without #row,column, and these; None: it is no tile."""
    found = re.fullmatch(r"(.*)#(\d+),(\d+)", name, re.DOTALL)
    return (found[1], (int(found[2]), int(found[3]))) if found else (name, None)


def corner_of(name: str, axes: int, block: Sequence[int]) -> tuple[int, ...]:
    """Return where a block begins in its array, by its name ARRAY#i#j,k.

    The name has an index for each axis before those of a block, then the place among the blocks.

    Args:
        axes: number of axes of the array.
        block: lengths of the block's axes.

    Raises:
        ValueError: it is no such name.
    """
    *indices, place = name.rsplit("#", axes - len(block) + 1)[1:]
    starts = [int(number) * side for number, side in zip(place.split(","), block, strict=True)]
    return (*map(int, indices), *starts)


def joined_tiles(squares: NDArray[Any], names: Sequence[str]) -> NDArray[Any]:
    """Return the image [H, W, C] of tiles [n, h, w, C] with these names; a missing one is 0."""
    corners = np.array([tile_of(name)[1] for name in names])
    (rows, columns), (height, width) = corners.max(axis=0) + 1, squares.shape[1:3]
    grid = np.zeros((rows, columns, *squares.shape[1:]), squares.dtype)
    grid[tuple(corners.T)] = squares
    return join_tiles(grid.reshape(-1, *squares.shape[1:]), (rows * height, columns * width))[0]
