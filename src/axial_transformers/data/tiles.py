"""Tiles: equal parts of an example along its axes, joined again."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def tile_grid(lengths: tuple[int, ...], tile: tuple[int, ...]) -> tuple[int, ...]:
    """Return the number of tiles along each axis; the last ones may reach beyond its end."""
    return tuple(-(-length // side) for length, side in zip(lengths, tile, strict=True))


def join_tiles(tiles: NDArray[np.integer], lengths: tuple[int, ...]) -> NDArray[np.integer]:
    """Return the example [*lengths, C] that tiles [n, *tile, C] cover, in reading order."""
    sides = tiles.shape[1:-1]
    example = np.empty((*lengths, tiles.shape[-1]), tiles.dtype)
    for tile, place in zip(tiles, np.ndindex(tile_grid(lengths, sides)), strict=True):
        corner = np.multiply(place, sides)
        box = example[tuple(map(slice, corner, corner + sides))]
        box[...] = tile[tuple(map(slice, box.shape))]
    return example


def tile_of(name: str) -> tuple[str, tuple[int, int] | None]:
    """Return the name without #row,column, and these; None: it is no tile."""
    match = re.fullmatch(r"(.*)#(\d+),(\d+)", name, re.DOTALL)
    return (match[1], (int(match[2]), int(match[3]))) if match else (name, None)


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
    return join_tiles(grid.reshape(-1, *squares.shape[1:]), (rows * height, columns * width))
