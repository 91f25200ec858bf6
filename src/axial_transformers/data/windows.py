"""Examples cut at random positions in each batch: clips of videos, tiles of images."""

import hashlib
import json
import re
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from axial_transformers.data.examples import Examples, Indices, OnDemand


class Windows(OnDemand):
    """Examples cut out of something larger; `cut` chooses the positions, indexing takes fixed ones."""

    @abstractmethod
    def cut(self, indices: NDArray[np.int64], uniforms: NDArray[np.float64]) -> NDArray[np.integer]:
        """Return examples [B, *A, C] at positions that `uniforms` [B] in [0, 1) choose."""


class ClipWindows(Windows):
    """Clips [N, T, H, W, C], one of each video.

    Args:
        frames: [F, H, W, C], of all videos.
        numbers: the indices of each video's frames.
    """

    def __init__(self, frames: NDArray[np.integer], numbers: Sequence[NDArray[np.int64]], length: int, stride: int):
        self.frames, self.length, self.stride = frames, length, stride
        self.starts = np.cumsum([0, *map(len, numbers)])
        self.numbers = np.concatenate(numbers)
        self.shape, self.dtype = (len(numbers), length, *frames.shape[1:]), frames.dtype

    def offsets(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.diff(self.starts)[indices] - (self.length - 1) * self.stride

    def cut(self, indices: NDArray[np.int64], uniforms: NDArray[np.float64]) -> NDArray[np.integer]:
        first = self.starts[indices] + (uniforms * self.offsets(indices)).astype(np.int64)
        return self.frames[self.numbers[first[:, None] + self.stride * np.arange(self.length)]]

    def __getitem__(self, indices: Indices) -> NDArray[np.integer]:
        chosen = np.arange(len(self))[indices]
        return self.cut(chosen, np.zeros(len(chosen)))


class TileWindows(Windows):
    """Tiles [N, S, S, C] of whole images.

    Args:
        tiles: [N, S, S, C], in order.
        grids: rows and columns of each image, [P, 2].
    """

    def __init__(self, tiles: NDArray[np.integer], grids: NDArray[np.int64]):
        self.tiles, self.grids, self.shape, self.dtype = tiles, grids, tiles.shape, tiles.dtype
        counts = grids.prod(axis=1)
        self.first = np.repeat(np.cumsum(counts) - counts, counts)
        self.grid = np.repeat(grids, counts, axis=0)

    def cut(self, indices: NDArray[np.int64], uniforms: NDArray[np.float64]) -> NDArray[np.integer]:
        size, grid = self.shape[1], self.grid[indices]
        positions = (grid - 1) * size + 1
        chosen = (uniforms * positions.prod(axis=1)).astype(np.int64)
        rows = (chosen // positions[:, 1])[:, None, None] + np.arange(size)[:, None]
        columns = (chosen % positions[:, 1])[:, None, None] + np.arange(size)
        tile = self.first[indices][:, None, None] + rows // size * grid[:, 1][:, None, None] + columns // size
        return self.tiles[tile, rows % size, columns % size]

    def __getitem__(self, indices: Indices) -> NDArray[np.integer]:
        return self.tiles[indices]


@dataclass(frozen=True, eq=False)
class WindowedExamples(Examples):
    """Training examples that each batch cuts at random positions."""

    whole: Examples = field(kw_only=True)

    @cached_property
    def fingerprint(self) -> str:
        windows = self.values
        stride = windows.stride if isinstance(windows, ClipWindows) else None
        return hashlib.sha256(json.dumps([self.whole.fingerprint, windows.shape, stride]).encode()).hexdigest()


def windowed_clips(frames: Examples, length: int, stride: int) -> WindowedExamples:
    """Return videos from single frames [F, 1, H, W, C], named VIDEO#frame."""
    frames_of: dict[str, list[int]] = {}
    for i, name in enumerate(frames.names):
        frames_of.setdefault(re.sub(r"#\d{4,}(#\d+,\d+)?$", r"\1", name), []).append(i)
    windows = ClipWindows(frames.values[:, 0], [np.array(each) for each in frames_of.values()], length, stride)
    return windowed(frames, windows, list(frames_of), [each[0] for each in frames_of.values()])


def windowed_tiles(tiles: Examples) -> WindowedExamples:
    """Return images from tiles [N, S, S, C], named IMAGE#row,column."""
    grids: dict[str, tuple[int, int]] = {}
    for name in tiles.names:
        picture, _, corner = name.rpartition("#")
        row, column = map(int, corner.split(","))
        grids[picture] = row + 1, column + 1
    return windowed(tiles, TileWindows(tiles.values, np.array([*grids.values()])), tiles.names, slice(None))


def windowed(examples: Examples, windows: Windows, names: Sequence[str], of: slice | list[int]) -> WindowedExamples:
    """Return examples that `windows` cuts, with their names, and the labels `of` some of them."""
    return WindowedExamples(
        values=windows.as_array(),
        names=names,
        labels=None if examples.labels is None else examples.labels[of],
        class_names=examples.class_names,
        num_values=examples.num_values,
        lowest=examples.lowest,
        grid=examples.grid,
        skipped=examples.skipped,
        whole=examples,
    )
