"""The predictions (`models.values.linear_prediction`) of values along a row, which follow from values chosen before."""

from collections.abc import Iterator
from itertools import repeat
from typing import NamedTuple

import torch
from jaxtyping import Integer
from torch import Tensor

from axial_transformers.engine import COEFFICIENT_BITS
from axial_transformers.models import AxialTransformer
from axial_transformers.models.values.activity import level_of
from axial_transformers.models.values.neighbours import NeighbourSum


class RowPredictions(NamedTuple):
    """The linear predictions along a row of L values; each depends on values before it, some of the row itself.

    All but the last are the fields of `engine.Centring`.
    """

    values: Integer[Tensor, "b p"]
    """All values so far in data coordinates, flat; written as the row goes on."""
    positions: Integer[Tensor, " l"]
    neighbours: Integer[Tensor, "l n"]
    """Flat positions; some position where the coefficient is 0."""
    coefficients: Integer[Tensor, "l m"]
    """Those of the neighbours, then the constant."""
    sizes: Integer[Tensor, "b q"]
    """Those of all differences so far, flat; written too. q = 0: values have no activity."""
    size_neighbours: Integer[Tensor, "l k"]
    size_coefficients: Integer[Tensor, "l j"]
    num_values: int

    def at(self, i: int) -> Integer[Tensor, " b"]:
        """Return what the values of position i are centred on; see `Values.centres`."""
        sums = _weighted(self.values, self.neighbours[i], self.coefficients[i])
        predicted = (sums >> COEFFICIENT_BITS).clamp(0, self.num_values - 1)
        if not self.sizes.numel():
            return predicted
        sums = _weighted(self.sizes, self.size_neighbours[i], self.size_coefficients[i])
        return predicted + self.num_values * level_of(sums, self.num_values)

    def keep(self, i: int, values: Integer[Tensor, " b"], centres: Integer[Tensor, " b"]) -> Integer[Tensor, " b"]:
        """Store the values of position i; return their codes."""
        place = self.positions[i : i + 1]  # a single index would be read from a GPU
        self.values[:, place] = values[:, None]
        if self.sizes.numel():
            self.sizes[:, place] = (values - centres % self.num_values).abs()[:, None]
        return values + self.num_values * centres


def _weighted(
    numbers: Integer[Tensor, "b p"], neighbours: Integer[Tensor, " n"], coefficients: Integer[Tensor, " m"]
) -> Integer[Tensor, " b"]:
    """Return the sums of neighbours times coefficients, and the constant."""
    *factors, constant = coefficients.unbind()
    return (numbers[:, neighbours] * torch.stack(factors)).sum(-1) + constant


def row_predictions(model: AxialTransformer, x: Integer[Tensor, "b *a c"]) -> Iterator[RowPredictions | None]:
    """Yield the predictions of each row in generation order, on the device of x; None if values are not centred.

    All rows have the same tensor of values, which begins as a copy of x.
    """
    prediction = model.values.prediction
    if not prediction:
        yield from repeat(None)
        return
    numbers = torch.arange(x.shape[1:].numel(), device="cpu").view(x.shape[1:])[tuple(model.order.T)].to(x.device)
    values = x.flatten(1).clone()
    sizes = x.new_zeros(len(x), 0)
    tables = [numbers, *_of_positions(prediction, numbers)]
    activity = model.values.activity
    if activity:
        sizes = torch.zeros_like(values)
        if model.config.known_channels:
            sizes = (x - prediction(x)).abs().flatten(1)
        tables += _of_positions(activity, numbers)
    else:
        tables += [x.new_zeros(len(numbers), 0)] * 2
    rows = zip(*(table.split(model.layout.row) for table in tables))
    for row, neighbours, coefficients, size_neighbours, size_coefficients in rows:
        of_values = values, row, neighbours, coefficients
        yield RowPredictions(*of_values, sizes, size_neighbours, size_coefficients, prediction.num_values)


def _of_positions(sums: NeighbourSum, numbers: Integer[Tensor, " p"]) -> list[Tensor]:
    """Return the neighbours [P, n] and the coefficients [P, n + 1] of positions, in the order of their numbers."""
    tables = sums.positions(), sums.of_positions().flatten(0, -2)
    return [table.to(numbers.device)[numbers] for table in tables]
