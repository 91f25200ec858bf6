"""Examples of any size as tiles of the model's size, and back."""

from math import prod

import numpy as np
from numpy.typing import NDArray


def grid(axes: tuple[int, ...], tile: tuple[int, ...]) -> tuple[int, ...]:
    """How many tiles cover each axis."""
    return tuple(-(-size // length) for size, length in zip(axes, tile, strict=True))


def cut(examples: NDArray[np.uint8], tile: tuple[int, ...]) -> NDArray[np.uint8]:
    """Examples [N, *A, C] -> tiles [N * prod(grid), *tile, C], in reading order, edges repeated outwards."""
    count, *axes, channels = examples.shape
    tiles = grid(tuple(axes), tile)
    missing = [(0, k * length - size) for k, length, size in zip(tiles, tile, axes)]
    padded = np.pad(examples, [(0, 0), *missing, (0, 0)], mode="edge")
    interleaved = padded.reshape(count, *(n for pair in zip(tiles, tile) for n in pair), channels)
    return interleaved.transpose(_tiles_first(len(tile))).reshape(-1, *tile, channels)


def join(tiles: NDArray[np.uint8], axes: tuple[int, ...]) -> NDArray[np.uint8]:
    """Undoes `cut`: the tiles of examples [N, *A, C] with the given axes *A -> these examples."""
    tile, channels = tiles.shape[1:-1], tiles.shape[-1]
    per_axis = grid(axes, tile)
    split = tiles.reshape(len(tiles) // prod(per_axis), *per_axis, *tile, channels)
    padded = split.transpose(np.argsort(_tiles_first(len(tile)))).reshape(
        len(split), *(k * length for k, length in zip(per_axis, tile)), channels
    )
    return padded[:, *(slice(size) for size in axes)]


def _tiles_first(axes: int) -> tuple[int, ...]:
    """The transposition of [N, tiles, tile, tiles, tile, .., C] to [N, tiles, .., tile, .., C]."""
    return (0, *range(1, 2 * axes, 2), *range(2, 2 * axes + 1, 2), 2 * axes + 1)
