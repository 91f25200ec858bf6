"""The values that are chosen already, and the predictions (`models.linear_prediction`) that follow from them."""

from typing import NamedTuple, Self

import torch
from jaxtyping import Integer
from torch import Tensor

from axial_transformers.engine import COEFFICIENT_BITS
from axial_transformers.models import AxialTransformer
from axial_transformers.models.values import CategoricalValues


class RowPredictions(NamedTuple):
    """The linear predictions along a row; each depends on values before it, some of the row itself."""

    values: Integer[Tensor, "b p"]
    """All values so far in data coordinates, flat; written as the row goes on."""
    positions: Integer[Tensor, " l"]
    neighbours: Integer[Tensor, "l n"]
    """Flat positions; some position where the coefficient is 0."""
    coefficients: Integer[Tensor, "l m"]
    """Of the neighbours, then the constant."""
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

    def to(self, device: torch.device | str) -> Self:
        """Return the same on a device."""
        return self._replace(
            values=self.values.to(device),
            positions=self.positions.to(device),
            neighbours=self.neighbours.to(device),
            coefficients=self.coefficients.to(device),
        )

    def take(self, written: "RowPredictions") -> None:
        """Copy the values that were written on another device."""
        if written.values is not self.values:
            self.values.copy_(written.values)


class ValuesSoFar:
    """All values of a decoding, row by row."""

    def __init__(self, model: AxialTransformer, x: Integer[Tensor, "b *a c"]):
        self._values, self._shape = x.flatten(1).clone(), x.shape
        shape, length = x.shape[1:], model.layout.shape[-1]
        strides = torch.tensor([torch.Size(shape[axis + 1 :]).numel() for axis in range(len(shape))])
        self._rows = (model.order * strides).sum(-1).unflatten(0, (-1, length)).to(x.device)
        self._prediction = None if isinstance(model.values, CategoricalValues) else model.values.prediction
        if self._prediction is not None:
            self._neighbours = self._prediction.positions().to(x.device)
            self._coefficients = self._prediction.of_positions().flatten(0, -2)

    @property
    def values(self) -> Integer[Tensor, "b *a c"]:
        return self._values.view(self._shape)

    def predictions(self, row: int) -> RowPredictions | None:
        """Return the predictions of a row, counted in generation order; None if values are not centred."""
        if self._prediction is None:
            return None
        here = self._rows[row]
        of_row = self._neighbours[here], self._coefficients[here]
        return RowPredictions(self._values, here, *of_row, self._prediction.num_values)

    def keep(self, row: int, values: Integer[Tensor, "b l"]) -> None:
        """Store the values of a row; those with predictions are there already (`RowPredictions.keep`)."""
        if self._prediction is None:
            self._values[:, self._rows[row]] = values.to(self._values.device)  # an archive's decoder works on the CPU
