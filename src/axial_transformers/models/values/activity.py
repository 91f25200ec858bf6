"""The size of a difference from the prediction that earlier neighbours lead to expect, by integer arithmetic.

size  = sum_i weight_i |difference of neighbour i| + constant, weights >= 0
level = 8 (e - 3) + floor(s / 2^(e - 3)) - 8, s = floor(16 size), 2^e <= s < 2^(e + 1): eight levels an octave
scale = the middle of a level's sizes, from 1/2 on

Differences are large at edges and in textures, and small on smooth ground: a distribution whose widths are multiples of
the scale need not learn that. Neighbours are at most two steps away, or earlier channels. The weights are fitted to the
training part (`Activity.fit`).
"""

import torch
from jaxtyping import Float, Integer
from torch import Tensor

from axial_transformers.engine import COEFFICIENT_BITS
from axial_transformers.models.values.neighbours import NeighbourSum, earlier_offsets

FRACTION_BITS = 4
"""Sizes are counted in sixteenths."""
LEAST_EXPONENT = 3
"""The smallest size is 2^3 sixteenths."""
ROUNDS = 60
MOST_FITTED = 1 << 18
"""Positions of a pattern and channel that are fitted, about: evenly spread."""


class Activity(NeighbourSum):
    """Levels of the sizes of differences."""

    def __init__(self, shape: tuple[int, ...], channels: int, num_values: int):
        quarter = num_values << COEFFICIENT_BITS >> 2
        super().__init__(shape, channels, earlier_offsets(len(shape), channels, 2), quarter)
        self.num_values = num_values

    def forward(self, sizes: Integer[Tensor, "b *a c"]) -> Integer[Tensor, "b *a c"]:
        """Return the levels of positions, by the sizes of differences 0..V-1."""
        return level_of(super().forward(sizes), self.num_values)

    def fit(self, sizes: Integer[Tensor, "n *a c"]) -> None:
        """Set the weights to the most likely ones, if differences have Laplace distributions of these sizes."""
        self.fit_sums(sizes, sizes, _likeliest_weights)


def level_of(sums: Integer[Tensor, "*s"], num_values: int) -> Integer[Tensor, "*s"]:
    """Return the levels of sums."""
    sixteenths = (sums >> COEFFICIENT_BITS - FRACTION_BITS).clamp(1 << LEAST_EXPONENT, num_values << FRACTION_BITS)
    octave = torch.frexp(sixteenths.double()).exponent.long() - 1 - LEAST_EXPONENT
    return 8 * octave + (sixteenths >> octave) - 8


def scale_of(levels: Integer[Tensor, "*s"], dtype: torch.dtype) -> Float[Tensor, "*s"]:
    """Return the middles of levels, (17 + 2 m) 2^n / 32 of level 8 n + m: exact, but for the largest in float16."""
    scales = (17 + 2 * (levels % 8) << levels // 8).double() / 32
    return scales.clamp(max=torch.finfo(dtype).max).to(dtype)


def log_scale_of(levels: Integer[Tensor, "*s"], dtype: torch.dtype) -> Float[Tensor, "*s"]:
    """Return the logarithms of scales, computed in float64.

    None is nearer than 5e-11 of its size to where float32 rounds the other way: every processor gets the same.
    """
    return scale_of(levels, torch.float64).log().to(dtype)


def _likeliest_weights(inputs: Float[Tensor, "n i"], targets: Float[Tensor, " n"]) -> Float[Tensor, " i"]:
    """Return weights >= 0 that make sum(log size + |difference| / size) small, by multiplicative steps."""
    step = len(targets) // MOST_FITTED + 1
    inputs = inputs[::step]
    targets = targets[::step] + 0.25
    weights = torch.full((inputs.shape[1],), 1 / inputs.shape[1], dtype=inputs.dtype, device=inputs.device)
    for _ in range(ROUNDS):
        sizes = inputs @ weights
        wanted = inputs.mT @ (targets / sizes.square())
        present = inputs.mT @ (1 / sizes)
        weights *= (wanted / present.clamp(min=1e-9)) ** 0.7
        weights[-1].clamp_(min=0.25)
    return weights
