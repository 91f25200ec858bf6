"""A causal convolution: what the values close by, in earlier slabs, add to the context. The paper has none.

A value depends most on its neighbours, and attention has to learn where they are.
"""

from collections.abc import Sequence
from itertools import product

import torch
import torch.nn.functional as F
from jaxtyping import Float, Integer
from torch import Tensor, nn

from axial_transformers.layers.initialisation import Dense
from axial_transformers.models.config import AxialTransformerConfig


class CausalConvolution(nn.Module):
    """A linear function of the values in the `reach` slabs before, at most `reach` pixels away on each side.

    A pixel is all the channels that alternate along the last axis; each of them has weights of its own.
    """

    def __init__(self, config: AxialTransformerConfig, level: int):
        super().__init__()
        self.reach, self.inside = config.convolution, len(config.bijection.shape) - level - 1
        self.channels = _channels_of_a_pixel(config)
        self.features = nn.Parameter(_first_features(config))
        self.linear = Dense(inputs(config, level), self.channels * config.dim, bias=False)

    def forward(self, values: Integer[Tensor, " b *a"]) -> Float[Tensor, "b *a d"]:
        """Return what every slab takes; zeros for the first."""
        return self.of_channels(self.linear(self.windows_before(values)))

    def next(self, slabs: Sequence[Integer[Tensor, " b *s"]]) -> Float[Tensor, "b *s d"]:
        """Return what the next slab takes."""
        return self.of_channels(self.linear(self.last_windows(slabs))).squeeze(1)

    def windows_before(self, values: Integer[Tensor, " b *a"]) -> Float[Tensor, "b *pixels n"]:
        axis = values.ndim - 1 - self.inside
        return self._windows(values.narrow(axis, 0, values.shape[axis] - 1), values.shape[axis])

    def last_windows(self, slabs: Sequence[Integer[Tensor, " b *s"]]) -> Float[Tensor, "b 1 *pixels n"]:
        return self._windows(torch.stack([*slabs[-self.reach :]], dim=1), 1)

    def of_channels(self, found: Float[Tensor, "b *pixels n"]) -> Float[Tensor, "b *a d"]:
        return found.unflatten(-1, (self.channels, -1)).flatten(-3, -2)

    def _windows(self, values: Tensor, count: int) -> Tensor:
        """Return the features in `count` windows, zeros outside; the last is after all values."""
        first = values.ndim - 1 - self.inside
        missing = count + self.reach - 1 - values.shape[first]
        found = F.embedding(values.to(self.features.device), self.features)
        padded = found.unflatten(-2, (-1, self.channels)).flatten(-2)
        padded = F.pad(padded, (0, 0) + (self.reach, self.reach) * self.inside + (missing, 0))
        widths = (self.reach,) + (2 * self.reach + 1,) * self.inside
        copies = []
        for corner in product(*map(range, widths)):
            copy = padded
            for axis, (start, width) in enumerate(zip(corner, widths), start=first):
                copy = copy.narrow(axis, start, padded.shape[axis] - width + 1)
            copies.append(copy)
        return torch.cat(copies, dim=-1)


def inputs(config: AxialTransformerConfig, level: int) -> int:
    """Return how many numbers a window has."""
    reach, inside = config.convolution, len(config.bijection.shape) - level - 1
    features = 1 if config.prediction == "none" else 2
    return reach * (2 * reach + 1) ** inside * _channels_of_a_pixel(config) * features


def _channels_of_a_pixel(config: AxialTransformerConfig) -> int:
    shape = config.bijection.shape
    return shape[-1] // config.shape[-1] if len(shape) == len(config.shape) else 1


def _first_features(config: AxialTransformerConfig) -> Float[Tensor, "v f"]:
    """Return values, scaled to 0..2; of differences, sign times size and size, on a logarithmic scale."""
    values = torch.arange(config.num_values, dtype=torch.float32)
    if config.prediction == "none":
        return 2 * values[:, None] / (config.num_values - 1)
    signed = torch.where(values < config.num_values / 2, values, values - config.num_values)
    size = torch.log1p(signed.abs()) / 3
    return torch.stack([size * signed.sign(), size], dim=-1)
