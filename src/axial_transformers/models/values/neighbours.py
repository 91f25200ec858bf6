"""Sums over earlier neighbours with integer coefficients: every processor gets the same numbers.

sum = sum_i coefficient_i neighbour_i + coefficient_n, in units of 2^-COEFFICIENT_BITS

Neighbours are steps along the axes of the data away, or earlier channels. They come earlier in every layout. The
coefficients are fitted to the training part, and stored with the weights.
"""

from collections.abc import Callable
from itertools import product

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn

from axial_transformers.engine import COEFFICIENT_BITS

CHANNELS_BEFORE = 2
MAX_COEFFICIENT = 1 << 28
"""Sums over fewer than 2^10 neighbours, of values below 2^16, stay below 2^54."""

Offset = tuple[int, ...]
"""Steps along the axes of the data, then channels."""


def earlier_offsets(axes: int, channels: int, step: int) -> list[Offset]:
    """Return the offsets of neighbours at most two steps away, at most `step` along an axis; the first step is back."""
    steps = [each for each in product(range(-step, step + 1), repeat=axes) if sum(map(abs, each)) <= 2]
    earlier = [each for each in steps if next(filter(None, each), 0) < 0]
    here = (0,) * axes
    most = min(CHANNELS_BEFORE, channels - 1)
    return [(*each, -before) for before in range(most + 1) for each in (*earlier, *([here] if before else []))]


class NeighbourSum(nn.Module):
    """Integer coefficients [patterns, C, neighbours + 1]; a pattern says along which axes a position is the first.

    An index beyond the ends of an axis becomes the first or the last one. A neighbour before the start of an axis along
    which the position is the first, or of a channel below 0, is missing: its coefficient is 0.
    """

    coefficients: Tensor

    def __init__(self, shape: tuple[int, ...], channels: int, offsets: list[Offset], first_constant: int):
        super().__init__()
        self.shape = shape
        self.channels = channels
        self.offsets = offsets
        self.first_constant = first_constant
        first = torch.zeros(2 ** len(shape), channels, len(offsets) + 1, dtype=torch.int64)
        first[..., -1] = first_constant
        self.register_buffer("coefficients", first)

    def is_new(self) -> bool:
        """Return True if nothing has been fitted."""
        neighbours = self.coefficients[..., :-1]
        constants = self.coefficients[..., -1]
        return not neighbours.any() and bool((constants == self.first_constant).all())

    def forward(self, x: Integer[Tensor, "b *a c"]) -> Integer[Tensor, "b *a c"]:
        """Return the sums at every position, by the values at its neighbours."""
        of_positions = self.of_positions()
        total = of_positions[..., -1].expand(x.shape).clone()
        for i, offset in enumerate(self.offsets):
            total.addcmul_(of_positions[..., i], self.neighbours(x, offset))
        return total

    def of_positions(self) -> Integer[Tensor, "*a c m"]:
        """Return the coefficients of every position."""
        return self.coefficients[self.patterns(self.coefficients.device)]

    def positions(self) -> Integer[Tensor, "p n"]:
        """Return the neighbours of every position as numbers of positions; some number where they are missing."""
        shape = torch.Size((1, *self.shape, self.channels))
        numbers = torch.arange(shape.numel(), device="cpu").view(shape)
        return torch.stack([self.neighbours(numbers, offset).flatten() for offset in self.offsets], dim=-1)

    def neighbours(self, x: Integer[Tensor, "b *a c"], offset: Offset) -> Integer[Tensor, "b *a c"]:
        """Return for every position the value at an offset; some value where it is missing."""
        for axis, step in enumerate(offset, start=1):
            if step:
                size = x.shape[axis]
                x = x.index_select(axis, (torch.arange(size, device=x.device) + step).clamp_(0, size - 1))
        return x

    def patterns(self, device: torch.device | str = "cpu") -> Integer[Tensor, "*a"]:
        """Return the pattern of every position: the sum of 2^j over the axes j along which it is the first."""
        pattern = torch.zeros(self.shape, dtype=torch.int64, device=device)
        for axis in range(len(self.shape)):
            pattern.narrow(axis, 0, 1).add_(2**axis)
        return pattern

    def present(self, pattern: int, channel: int) -> list[bool]:
        """Return which neighbours are not missing."""
        first = [axis for axis in range(len(self.shape)) if pattern >> axis & 1]
        return [channel + of[-1] >= 0 and all(of[axis] >= 0 for axis in first) for of in self.offsets]

    @torch.no_grad()
    def fit_sums(
        self,
        x: Integer[Tensor, "n *a c"],
        targets: Integer[Tensor, "n *a c"],
        solve: Callable[[Float[Tensor, "m i"], Float[Tensor, " m"]], Float[Tensor, " i"]],
    ) -> None:
        """Set the coefficients of each pattern and channel to what `solve` returns of neighbours, ones, and targets."""
        neighbours = [self.neighbours(x, offset) for offset in self.offsets]
        seen = torch.stack([*neighbours, torch.ones_like(x)], dim=-1)
        patterns = self.patterns()
        for pattern in patterns.unique().tolist():
            here = patterns == pattern
            for channel in range(self.channels):
                chosen = torch.tensor([*self.present(pattern, channel), True], device="cpu")
                inputs = seen[:, here, channel].flatten(0, 1)[:, chosen].double()
                weights = solve(inputs, targets[:, here, channel].flatten().double()) * (1 << COEFFICIENT_BITS)
                whole = weights.round().long()
                whole[:-1].clamp_(-MAX_COEFFICIENT, MAX_COEFFICIENT)
                self.coefficients[pattern, channel] = 0
                self.coefficients[pattern, channel, chosen] = whole
