"""Examples of any size as tiles of the model's size, and back."""

from math import prod

import numpy as np
from numpy.typing import NDArray


def grid(axes: tuple[int, ...], tile: tuple[int, ...]) -> tuple[int, ...]:
    """Number of tiles that cover each axis."""
    return tuple(-(-size // length) for size, length in zip(axes, tile, strict=True))


def cut(examples: NDArray[np.uint8], tile: tuple[int, ...]) -> NDArray[np.uint8]:
    """Cuts examples [N, *A, C] into tiles [N * prod(grid), *tile, C] in reading order; repeats edges to fill them."""
    count, *axes, channels = examples.shape
    tiles = grid(tuple(axes), tile)
    missing = [(0, k * length - size) for k, length, size in zip(tiles, tile, axes)]
    padded = np.pad(examples, [(0, 0), *missing, (0, 0)], mode="edge")
    interleaved = padded.reshape(count, *(n for pair in zip(tiles, tile) for n in pair), channels)
    return interleaved.transpose(_tiles_first(len(tile))).reshape(-1, *tile, channels)


def join(tiles: NDArray[np.uint8], axes: tuple[int, ...]) -> NDArray[np.uint8]:
    """Joins tiles, as `cut` made them of examples with axes *A, to these examples [N, *A, C]."""
    tile, channels = tiles.shape[1:-1], tiles.shape[-1]
    per_axis = grid(axes, tile)
    split = tiles.reshape(len(tiles) // prod(per_axis), *per_axis, *tile, channels)
    padded = split.transpose(np.argsort(_tiles_first(len(tile)))).reshape(
        len(split), *(k * length for k, length in zip(per_axis, tile)), channels
    )
    return padded[:, *(slice(size) for size in axes)]


def _tiles_first(axes: int) -> tuple[int, ...]:
    """Permutation of axes [N, tiles, tile, tiles, tile, .., C] to [N, tiles, .., tile, .., C]."""
    return (0, *range(1, 2 * axes, 2), *range(2, 2 * axes + 1, 2), 2 * axes + 1)
