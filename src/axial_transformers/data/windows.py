"""Clips cut out of whole videos at offsets that are drawn anew for each batch."""

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import cast

import numpy as np
from numpy.typing import NDArray

from axial_transformers.data.examples import Examples


class Windows:
    """Clips uint8 [N, T, H, W, C], one of each video; `cut` chooses their offsets, indexing takes the first frames.

    Args:
        frames: [F, H, W, C], those of all videos.
        places: for each of the N videos the positions of its frames, in order.
        length: frames T of a clip.
        stride: every stride-th frame is taken.
    """

    dtype = np.dtype(np.uint8)
    ndim = 5

    def __init__(self, frames: NDArray[np.uint8], places: Sequence[NDArray[np.int64]], length: int, stride: int):
        self.frames, self.length, self.stride = frames, length, stride
        self.starts = np.cumsum([0, *map(len, places)])
        self.places = np.concatenate(places)

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def shape(self) -> tuple[int, ...]:
        """[N, T, H, W, C]."""
        return len(self), self.length, *self.frames.shape[1:]

    def offsets(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Number of offsets [B] that a clip of the video of each index [B] can have."""
        return np.diff(self.starts)[indices] - (self.length - 1) * self.stride

    def cut(self, indices: NDArray[np.int64], uniforms: NDArray[np.float64]) -> NDArray[np.uint8]:
        """Clips [B, T, H, W, C] of the videos of `indices` [B]; `uniforms` [B] in [0, 1) choose their offsets."""
        first = self.starts[indices] + (uniforms * self.offsets(indices)).astype(np.int64)
        return self.frames[self.places[first[:, None] + self.stride * np.arange(self.length)]]

    def __getitem__(self, indices: slice | Sequence[int] | NDArray[np.int64]) -> NDArray[np.uint8]:
        chosen = np.arange(len(self))[indices]
        return self.cut(chosen, np.zeros(len(chosen)))


@dataclass(frozen=True, eq=False)
class WindowedExamples(Examples):
    """Videos to train on, of which each batch takes clips at random offsets; selecting some takes first frames."""

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 in hexadecimal over the names, classes and all frames of the videos, length and stride of a clip."""
        windows = cast(Windows, self.values)
        labels = None if self.labels is None else self.labels.tolist()
        head = [list(self.names), labels, windows.shape, windows.stride, self.uint16, windows.starts.tolist()]
        digest = hashlib.sha256(json.dumps(head).encode() + b"\0")
        for start in range(0, len(windows.places), 1024):
            digest.update(windows.frames[windows.places[start : start + 1024]].data)
        return digest.hexdigest()


def windowed(frames: Examples, length: int, stride: int) -> WindowedExamples:
    """Videos of single frames [F, 1, H, W, C], whose names are those of their video, #frame and a tile's place."""
    places: dict[str, list[int]] = {}
    for i, name in enumerate(frames.names):
        places.setdefault(re.sub(r"#\d{4,}(#\d+,\d+)?$", r"\1", name), []).append(i)
    windows = Windows(frames.values[:, 0], [np.array(each) for each in places.values()], length, stride)
    first = [each[0] for each in places.values()]
    return WindowedExamples(
        values=cast(NDArray[np.uint8], windows),  # an array where it is used
        names=list(places),
        labels=None if frames.labels is None else frames.labels[first],
        class_names=frames.class_names,
        uint16=frames.uint16,
        skipped=frames.skipped,
    )
