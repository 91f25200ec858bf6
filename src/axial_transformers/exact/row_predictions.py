"""The predictions (`models.values.linear_prediction`) of values along a row, which follow from values chosen before."""

from collections.abc import Iterator
from itertools import repeat
from typing import NamedTuple

import torch
from jaxtyping import Integer
from torch import Tensor

from axial_transformers.engine import COEFFICIENT_BITS
from axial_transformers.models import AxialTransformer


class RowPredictions(NamedTuple):
    """The linear predictions along a row; each depends on values before it, some of the row itself.

    All but the last are the fields of `engine.Centring`.
    """

    values: Integer[Tensor, "b p"]
    """All values so far in data coordinates, flat; written as the row goes on."""
    positions: Integer[Tensor, " l"]
    neighbours: Integer[Tensor, "l n"]
    """Flat positions; some position where the coefficient is 0."""
    coefficients: Integer[Tensor, "l m"]
    """Those of the neighbours, then the constant."""
    num_values: int

    def at(self, i: int) -> Integer[Tensor, " b"]:
        """Return the predictions of position i."""
        *factors, constant = self.coefficients[i].unbind()
        total = (self.values[:, self.neighbours[i]] * torch.stack(factors)).sum(-1) + constant
        return (total >> COEFFICIENT_BITS).clamp(0, self.num_values - 1)

    def keep(self, i: int, values: Integer[Tensor, " b"], predicted: Integer[Tensor, " b"]) -> Integer[Tensor, " b"]:
        """Store the values of position i; return their codes."""
        self.values[:, self.positions[i : i + 1]] = values[:, None]  # a single index would be read from a GPU
        return values + self.num_values * predicted


def row_predictions(model: AxialTransformer, x: Integer[Tensor, "b *a c"]) -> Iterator[RowPredictions | None]:
    """Yield the predictions of each row in generation order, on the device of x; None if values are not centred.

    All rows have the same tensor of values, which begins as a copy of x.
    """
    prediction = model.values.prediction
    if not prediction:
        yield from repeat(None)
        return
    numbers = torch.arange(x.shape[1:].numel(), device="cpu").view(x.shape[1:])[tuple(model.order.T)]
    values = x.flatten(1).clone()
    neighbours = prediction.positions().to(x.device)
    coefficients = prediction.of_positions().flatten(0, -2).to(x.device)
    for row in numbers.to(x.device).split(model.layout.shape[-1]):
        yield RowPredictions(values, row, neighbours[row], coefficients[row], prediction.num_values)
