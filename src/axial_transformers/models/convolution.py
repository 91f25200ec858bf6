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
from axial_transformers.models.values import Values


class CausalConvolution(nn.Module):
    """A linear function of the values in the `reach` slabs before, at most `reach` pixels away on each side.

    A pixel is all the channels that alternate along the last axis; each of them has weights of its own.
    """

    def __init__(self, config: AxialTransformerConfig, level: int, values: Values):
        super().__init__()
        self.reach = config.convolution
        self.inside = len(config.bijection.shape) - level - 1
        self.channels = _channels_of_a_pixel(config)
        self.of_codes, numbers = values.neighbour_numbers()
        pixels = self.reach * (2 * self.reach + 1) ** self.inside
        self.linear = Dense(pixels * self.channels * numbers, self.channels * config.dim, bias=False)

    def forward(self, values: Integer[Tensor, "b *a 1"]) -> Float[Tensor, "b *a d"]:
        """Return what every slab takes; zeros for the first."""
        return self.of_channels(self.linear(self.windows_before(self.numbers(values))))

    def next(self, slabs: Sequence[Integer[Tensor, "b *s 1"]]) -> Float[Tensor, "b *s d"]:
        """Return what the next slab takes."""
        last = self.numbers(torch.stack([*slabs[-self.reach :]], dim=1))
        return self.of_channels(self.linear(self.windows(last, 1))).squeeze(1)

    def numbers(self, codes: Integer[Tensor, "b *a 1"]) -> Float[Tensor, "b *a f"]:
        """Return what a window takes of each position."""
        return self.of_codes(codes.to(next(self.parameters()).device))

    def windows_before(self, numbers: Float[Tensor, "b *a f"]) -> Float[Tensor, "b *pixels n"]:
        axis = numbers.ndim - 2 - self.inside
        return self.windows(numbers.narrow(axis, 0, numbers.shape[axis] - 1), numbers.shape[axis])

    def of_channels(self, found: Float[Tensor, "b *pixels n"]) -> Float[Tensor, "b *a d"]:
        return found.unflatten(-1, (self.channels, -1)).flatten(-3, -2)

    def windows(self, numbers: Float[Tensor, "b *a f"], count: int) -> Float[Tensor, "b *pixels n"]:
        """Return the numbers in `count` windows, zeros outside; the last is after all positions."""
        first = numbers.ndim - 2 - self.inside
        missing = count + self.reach - 1 - numbers.shape[first]
        padded = numbers.unflatten(-2, (-1, self.channels)).flatten(-2)
        padded = F.pad(padded, (0, 0) + (self.reach, self.reach) * self.inside + (missing, 0))
        widths = (self.reach,) + (2 * self.reach + 1,) * self.inside
        copies = []
        for corner in product(*map(range, widths)):
            copy = padded
            for axis, (start, width) in enumerate(zip(corner, widths), start=first):
                copy = copy.narrow(axis, start, padded.shape[axis] - width + 1)
            copies.append(copy)
        return torch.cat(copies, dim=-1)


def _channels_of_a_pixel(config: AxialTransformerConfig) -> int:
    shape = config.bijection.shape
    return shape[-1] // config.shape[-1] if len(shape) == len(config.shape) else 1
