"""Predict each value from earlier neighbours, by integer arithmetic: every processor gets the same prediction."""

import torch
from jaxtyping import Float, Integer
from torch import Tensor

from axial_transformers.engine import COEFFICIENT_BITS
from axial_transformers.models.values.neighbours import NeighbourSum, earlier_offsets

RIDGE = 1e-9
ROUNDS = 6


class LinearPrediction(NeighbourSum):
    """prediction = (sum_i coefficient_i neighbour_i + coefficient_n) >> COEFFICIENT_BITS, kept within 0..V-1.

    Neighbours differ by at most one index along at most two axes, or are earlier channels.
    """

    def __init__(self, shape: tuple[int, ...], channels: int, num_values: int):
        middle = (num_values // 2) << COEFFICIENT_BITS
        super().__init__(shape, channels, earlier_offsets(len(shape), channels, 1), middle)
        self.num_values = num_values

    def forward(self, x: Integer[Tensor, "b *a c"]) -> Integer[Tensor, "b *a c"]:
        """Return the predictions of values 0..V-1."""
        return (super().forward(x) >> COEFFICIENT_BITS).clamp_(0, self.num_values - 1)

    def fit(self, x: Integer[Tensor, "n *a c"]) -> None:
        """Set the coefficients to those with small errors on values 0..V-1; see `_least_deviations`."""
        self.fit_sums(x, x, _rounding_predictor)


def _rounding_predictor(inputs: Float[Tensor, "n i"], targets: Float[Tensor, " n"]) -> Float[Tensor, " i"]:
    """Return `_least_deviations`, with 1/2 in the constant: what is rounded down is then the nearest integer."""
    weights = _least_deviations(inputs, targets)
    weights[-1] += 0.5
    return weights


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
        solution = torch.linalg.solve(products, wanted)
        weights = 1 / (1 + (targets - inputs @ solution).abs()) ** 2
    return solution
