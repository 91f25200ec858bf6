"""Layouts of channels and frames: bijections between data and model coordinates (section 3.2.2).

layout        data [B, *A, C]     model [B, *A', C', P]
channels      [B, *A, C]          [B, *A, C, 1]: one channel after the other
rows          [B, A1, .., C]      [B, C*A1, .., 1, 1]: channel-major along the first axis
columns       [B, .., Ad, C]      [B, .., Ad*C, 1, 1]: interleaved along the last axis
axis          [B, *A, C]          [B, *A, C, 1, 1]: one more, innermost, axis
frames        [B, T, *A, C]       [B, *A, T*C, 1]: frames are channels (the paper's video)
raster        [B, *A, C]          [B, A1*..*Ad*C, 1, 1]: one sequence, channels adjacent
pixels        [B, *A, C]          [B, *A, 1, C]: one position a pixel, which holds all its channels

A position of the model holds P values, which follow each other; P is 1 but for `pixels`.
"""

from abc import abstractmethod
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a configuration is read without torch
    from torch import Tensor


@dataclass(frozen=True)
class Layout:
    """Channels stay channels; dimensions behind them are kept."""

    data_shape: tuple[int, ...]
    data_channels: int

    @property
    def shape(self) -> tuple[int, ...]:
        return self.data_shape

    @property
    def channels(self) -> int:
        return self.data_channels

    @property
    def depth(self) -> int:
        """Return how many values P a position holds."""
        return 1

    @property
    def row(self) -> int:
        """Return how many values a row of positions holds: L P."""
        return self.shape[-1] * self.depth

    def to_model(self, x: "Tensor") -> "Tensor":
        """[B, *A, C, ..] -> [B, *A', C', P, ..]."""
        return x.unsqueeze(self._channel + 1)

    def to_data(self, x: "Tensor") -> "Tensor":
        """[B, *A', C', P, ..] -> [B, *A, C, ..]."""
        return x.squeeze(self._channel + 1)

    def expand_cond(self, cond: "Tensor") -> "Tensor":
        """Repeat conditioning for channels that became positions: [B, *A, D] -> [B, *A', D]."""
        repeated = cond.unsqueeze(-2).expand(*cond.shape[:-1], self.data_channels, -1)
        return self.to_model(repeated)[..., 0, 0, :]

    @property
    def order(self) -> "Tensor":
        """Return the positions in generation order and data coordinates."""
        import torch

        axes = [torch.arange(size, device="cpu") for size in (*self.data_shape, self.data_channels)]
        positions = torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1)
        return self.to_model(positions.unsqueeze(0)).squeeze(0).movedim(-3, 0).reshape(-1, len(axes))

    @property
    def _channel(self) -> int:
        return len(self.data_shape) + 1


class Merged(Layout):
    """Channels become positions."""

    @property
    def channels(self) -> int:
        return 1

    def to_model(self, x: "Tensor") -> "Tensor":
        end = len(self.shape) + 1
        return self.merge(x).unsqueeze(end).unsqueeze(end)

    def to_data(self, x: "Tensor") -> "Tensor":
        end = len(self.shape) + 1
        return self.split(x.squeeze(end).squeeze(end))

    @abstractmethod
    def merge(self, x: "Tensor") -> "Tensor":
        """[B, *A, C, ..] -> [B, *A', ..]."""

    @abstractmethod
    def split(self, x: "Tensor") -> "Tensor":
        """[B, *A', ..] -> [B, *A, C, ..]."""


class Rows(Merged):
    """Channel-major along the first axis."""

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.data_channels * self.data_shape[0], *self.data_shape[1:])

    def merge(self, x: "Tensor") -> "Tensor":
        return x.movedim(self._channel, 1).flatten(1, 2)

    def split(self, x: "Tensor") -> "Tensor":
        return x.unflatten(1, (self.data_channels, -1)).movedim(1, self._channel)


class Columns(Merged):
    """Interleaved along the last axis."""

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self.data_shape[:-1], self.data_shape[-1] * self.data_channels)

    def merge(self, x: "Tensor") -> "Tensor":
        return x.flatten(self._channel - 1, self._channel)

    def split(self, x: "Tensor") -> "Tensor":
        return x.unflatten(self._channel - 1, (-1, self.data_channels))


class Axis(Merged):
    """Channels are the innermost axis."""

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self.data_shape, self.data_channels)

    def merge(self, x: "Tensor") -> "Tensor":
        return x

    def split(self, x: "Tensor") -> "Tensor":
        return x


@dataclass(frozen=True)  # or __post_init__ would not run
class Frames(Layout):
    """Frames are channels, outermost."""

    def __post_init__(self) -> None:
        if len(self.data_shape) < 2:
            raise ValueError(f"model.layout=frames needs frames and at least one more axis, not {self.data_shape}")

    @property
    def shape(self) -> tuple[int, ...]:
        return self.data_shape[1:]

    @property
    def channels(self) -> int:
        return self.data_shape[0] * self.data_channels

    def to_model(self, x: "Tensor") -> "Tensor":
        return x.movedim(1, self._channel - 1).flatten(self._channel - 1, self._channel).unsqueeze(self._channel)

    def to_data(self, x: "Tensor") -> "Tensor":
        channels_last = x.squeeze(self._channel).unflatten(self._channel - 1, (-1, self.data_channels))
        return channels_last.movedim(self._channel - 1, 1)

    def expand_cond(self, cond: "Tensor") -> "Tensor":
        raise ValueError("layout 'frames' takes no cond: its frames are channels, and a cond is one for all channels")


class Raster(Merged):
    """One sequence, channels innermost."""

    @property
    def shape(self) -> tuple[int, ...]:
        return (prod(self.data_shape) * self.data_channels,)

    def merge(self, x: "Tensor") -> "Tensor":
        return x.flatten(1, self._channel)

    def split(self, x: "Tensor") -> "Tensor":
        return x.unflatten(1, (*self.data_shape, self.data_channels))


class Pixels(Layout):
    """One position a pixel: its channels follow each other."""

    @property
    def channels(self) -> int:
        return 1

    @property
    def depth(self) -> int:
        return self.data_channels

    def to_model(self, x: "Tensor") -> "Tensor":
        return x.unsqueeze(self._channel)

    def to_data(self, x: "Tensor") -> "Tensor":
        return x.squeeze(self._channel)


LAYOUTS: dict[str, type[Layout]] = {
    "channels": Layout,
    "rows": Rows,
    "columns": Columns,
    "axis": Axis,
    "frames": Frames,
    "raster": Raster,
    "pixels": Pixels,
}
