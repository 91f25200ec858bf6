"""Predict each value from earlier neighbours, by integer arithmetic: every processor gets the same prediction.

prediction = (sum_i coefficient_i neighbour_i + coefficient_n) >> COEFFICIENT_BITS, kept within 0..V-1

Neighbours differ by at most one index along at most two axes, or are earlier channels. They come earlier in every
layout. The coefficients are fitted to the training part (`LinearPrediction.fit`), and stored with the weights.
"""

from itertools import product

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn

from axial_transformers.engine import COEFFICIENT_BITS

CHANNELS_BEFORE = 2
MAX_COEFFICIENT = 1 << 28
"""Sums over fewer than 2^10 neighbours, of values below 2^16, stay below 2^54."""
RIDGE = 1e-9
ROUNDS = 6

Offset = tuple[int, ...]
"""Steps along the axes of the data, then channels."""


def offsets_of(axes: int, channels: int) -> list[Offset]:
    """Return the offsets of the neighbours of a position: the first step along an axis is -1."""
    steps = [step for step in product((-1, 0, 1), repeat=axes) if sum(map(abs, step)) <= 2]
    earlier = [step for step in steps if next(filter(None, step), 0) < 0]
    here = (0,) * axes
    most = min(CHANNELS_BEFORE, channels - 1)
    return [(*step, -before) for before in range(most + 1) for step in (*earlier, *([here] if before else []))]


class LinearPrediction(nn.Module):
    """Integer coefficients [patterns, C, neighbours + 1]; a pattern says along which axes a position is the first.

    An index behind the end of an axis becomes the last one. A neighbour before the start of an axis, or of a channel
    below 0, is missing: its coefficient is 0.
    """

    coefficients: Tensor

    def __init__(self, shape: tuple[int, ...], channels: int, num_values: int):
        super().__init__()
        self.shape = shape
        self.channels = channels
        self.num_values = num_values
        self.offsets = offsets_of(len(shape), channels)
        first = torch.zeros(2 ** len(shape), channels, len(self.offsets) + 1, dtype=torch.int64)
        first[..., -1] = self.first_constant
        self.register_buffer("coefficients", first)

    @property
    def first_constant(self) -> int:
        """Return the constant of a new prediction, which is the middle value."""
        return (self.num_values // 2) << COEFFICIENT_BITS

    def is_new(self) -> bool:
        """Return True if nothing has been fitted."""
        neighbours = self.coefficients[..., :-1]
        constants = self.coefficients[..., -1]
        return not neighbours.any() and bool((constants == self.first_constant).all())

    def forward(self, x: Integer[Tensor, "b *a c"]) -> Integer[Tensor, "b *a c"]:
        """Return the predictions of values 0..V-1."""
        of_positions = self.of_positions()
        total = of_positions[..., -1].expand(x.shape).clone()
        for i, offset in enumerate(self.offsets):
            total.addcmul_(of_positions[..., i], self.neighbours(x, offset))
        return (total >> COEFFICIENT_BITS).clamp_(0, self.num_values - 1)

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
    def fit(self, x: Integer[Tensor, "n *a c"]) -> None:
        """Set the coefficients to those with small errors on values 0..V-1; see `_least_deviations`."""
        seen = torch.stack([self.neighbours(x, offset) for offset in self.offsets] + [torch.ones_like(x)], dim=-1)
        patterns = self.patterns()
        for pattern in patterns.unique().tolist():
            here = patterns == pattern
            for channel in range(self.channels):
                chosen = torch.tensor([*self.present(pattern, channel), True], device="cpu")
                inputs = seen[:, here, channel].flatten(0, 1)[:, chosen].double()
                found = _least_deviations(inputs, x[:, here, channel].flatten().double())
                whole = (found * (1 << COEFFICIENT_BITS)).round().clamp(-MAX_COEFFICIENT, MAX_COEFFICIENT).long()
                whole[-1] = (found[-1] * (1 << COEFFICIENT_BITS)).round().long() + (1 << (COEFFICIENT_BITS - 1))
                self.coefficients[pattern, channel] = 0
                self.coefficients[pattern, channel, chosen] = whole


def _least_deviations(inputs: Float[Tensor, "n i"], targets: Float[Tensor, " n"]) -> Float[Tensor, " i"]:
    """Return the weights whose errors have about the least log(1 + size), by least squares of weighted examples.

    Errors of images have heavy tails: large ones must not decide.
    """
    weights = torch.ones_like(targets)
    for _ in range(ROUNDS):
        weighted = inputs * weights[:, None]
        products = weighted.mT @ inputs
        wanted = weighted.mT @ targets
        products.diagonal().add_(RIDGE * products.diagonal().mean() + RIDGE)
        found = torch.linalg.solve(products, wanted)
        weights = 1 / (1 + (targets - inputs @ found).abs()) ** 2
    return found
