"""The values that are chosen already, and the predictions (`models.prediction`) that follow from them."""

from typing import NamedTuple, Self

import torch
from jaxtyping import Integer
from torch import Tensor

from axial_transformers.kernels import COEFFICIENT_BITS
from axial_transformers.models import AxialTransformer
from axial_transformers.models.prediction import Predictor
from axial_transformers.models.values import CategoricalValues


class RowPredictions(NamedTuple):
    """Predictions along a row; each depends on values before it, some of the row itself."""

    predictor: Predictor
    indices: Integer[Tensor, "l 4"]
    """Indices in the row of w, n, nw and the channel before, on the CPU; -1: before the row, or nowhere."""
    known: Integer[Tensor, "b l 4"]
    """Planes of the first three and the value of the last, where they are before the row."""
    values: Integer[Tensor, "b l"]
    """Written as the row goes on."""
    planes: Integer[Tensor, "b l"]
    """Written as the row goes on."""

    def at(self, i: int) -> Integer[Tensor, " b"]:
        return self.predictor.predicted(*self._neighbours(i))

    def keep(self, i: int, differences: Integer[Tensor, " b"]) -> None:
        self.values[:, i] = (differences + self.at(i)) % self.predictor.values
        self.planes[:, i] = self.predictor.plane(self.values[:, i], self._neighbours(i)[-1])

    def to(self, device: torch.device | str) -> Self:
        known, values, planes = (tensor.to(device) for tensor in (self.known, self.values, self.planes))
        return self._replace(known=known, values=values, planes=planes)

    def take(self, written: "RowPredictions | RowCentres") -> None:
        assert isinstance(written, RowPredictions)
        self.values.copy_(written.values)
        self.planes.copy_(written.planes)

    def _neighbours(self, i: int) -> list[Tensor]:
        rows = (self.planes, self.planes, self.planes, self.values)
        indices = self.indices[i].tolist()
        return [self.known[:, i, k] if at < 0 else rows[k][:, at] for k, at in enumerate(indices)]


class RowCentres(NamedTuple):
    """The linear predictions along a row (`models.linear_prediction`), from all values so far."""

    values: Integer[Tensor, "b p"]
    """All values in data coordinates, flat; written as the row goes on."""
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

    def keep(self, i: int, values: Integer[Tensor, " b"], centres: Integer[Tensor, " b"]) -> Integer[Tensor, " b"]:
        """Store the values of position i; return their codes."""
        self.values[:, self.positions[i]] = values
        return values + self.num_values * centres

    def to(self, device: torch.device | str) -> Self:
        """Return the same on a device."""
        return self._replace(
            values=self.values.to(device),
            positions=self.positions.to(device),
            neighbours=self.neighbours.to(device),
            coefficients=self.coefficients.to(device),
        )

    def take(self, written: "RowPredictions | RowCentres") -> None:
        """Copy the values that were written on another device."""
        if written.values is not self.values:
            self.values.copy_(written.values)


class ValuesSoFar:
    """All values of a decoding, row by row."""

    def __init__(self, model: AxialTransformer, x: Integer[Tensor, "b *a c"]):
        self._values, self._shape, self._predictor = x.flatten(1).clone(), x.shape, model.predictor
        shape, length = x.shape[1:], model.layout.shape[-1]
        strides = torch.tensor([torch.Size(shape[axis + 1 :]).numel() for axis in range(len(shape))])
        self._rows = (model.order * strides).sum(-1).unflatten(0, (-1, length))
        self._prediction = None if isinstance(model.values, CategoricalValues) else model.values.prediction
        if self._prediction is not None:
            self._neighbours = self._prediction.positions().to(x.device)
            self._coefficients = self._prediction.of_positions().flatten(0, -2)
        if self._predictor is None:
            return
        self._neighbours = self._predictor.neighbours(shape)
        self._planes = self._predictor.planes(x).flatten(1)
        self._row_of, self._index_of = (torch.full((shape.numel(),), -1) for _ in range(2))
        self._row_of[self._rows] = torch.arange(len(self._rows))[:, None].expand_as(self._rows)
        self._index_of[self._rows] = torch.arange(length).expand_as(self._rows)

    @property
    def values(self) -> Integer[Tensor, "b *a c"]:
        return self._values.view(self._shape)

    def predictions(self, row: int) -> RowPredictions | RowCentres | None:
        """Return the predictions of a row, counted in generation order; None if the model has none."""
        predictor = self._predictor
        if self._prediction is not None:
            here = self._rows[row].to(self._values.device)
            of_row = self._neighbours[here], self._coefficients[here]
            return RowCentres(self._values, here, *of_row, self._prediction.num_values)
        if predictor is None:
            return None
        neighbours = self._neighbours[self._rows[row]]
        is_here = (neighbours >= 0) & (self._row_of[neighbours] == row)
        indices = torch.where(is_here, self._index_of[neighbours], -1)
        device = self._values.device
        numbers = neighbours.clamp(min=0).to(device)
        known = torch.cat([self._planes[:, numbers[:, :3]], self._values[:, numbers[:, 3:]]], dim=-1)
        known = torch.where(neighbours.to(device) < 0, predictor.values // 2, known)
        blank = known.new_zeros(known.shape[:2])
        return RowPredictions(predictor, indices, known, blank, blank.clone())

    def keep(
        self, row: int, differences: Integer[Tensor, "b l"], predictions: RowPredictions | RowCentres | None
    ) -> None:
        """Store the values of a row: `differences` if there are no predictions, else what `predictions` wrote."""
        if isinstance(predictions, RowCentres):
            return  # they are written already
        device = self._values.device
        positions = self._rows[row].to(device)
        if predictions is None:
            self._values[:, positions] = differences.to(device)  # an archive's decoder chooses on the CPU
            return
        self._values[:, positions] = predictions.values
        self._planes[:, positions] = predictions.planes
