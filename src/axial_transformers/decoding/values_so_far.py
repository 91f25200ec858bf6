"""The values that are chosen already, and the predictions (`models.prediction`) that follow from them."""

from typing import NamedTuple, Self

import torch
from jaxtyping import Integer
from torch import Tensor

from axial_transformers.models import AxialTransformer
from axial_transformers.models.prediction import Predictor


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

    def take(self, written: Self) -> None:
        self.values.copy_(written.values)
        self.planes.copy_(written.planes)

    def _neighbours(self, i: int) -> list[Tensor]:
        rows = (self.planes, self.planes, self.planes, self.values)
        indices = self.indices[i].tolist()
        return [self.known[:, i, k] if at < 0 else rows[k][:, at] for k, at in enumerate(indices)]


class ValuesSoFar:
    """All values of a decoding, row by row."""

    def __init__(self, model: AxialTransformer, x: Integer[Tensor, "b *a c"]):
        self._values, self._shape, self._predictor = x.flatten(1).clone(), x.shape, model.predictor
        shape, length = x.shape[1:], model.layout.shape[-1]
        strides = torch.tensor([torch.Size(shape[axis + 1 :]).numel() for axis in range(len(shape))])
        self._rows = (model.order * strides).sum(-1).unflatten(0, (-1, length))
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

    def predictions(self, row: int) -> RowPredictions | None:
        """Return the predictions of a row, counted in generation order; None if the model has none."""
        predictor = self._predictor
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

    def keep(self, row: int, differences: Integer[Tensor, "b l"], predictions: RowPredictions | None) -> None:
        """Store the values of a row: `differences` if there are no predictions, else what `predictions` wrote."""
        device = self._values.device
        positions = self._rows[row].to(device)
        if predictions is None:
            self._values[:, positions] = differences.to(device)  # an archive's decoder chooses on the CPU
            return
        self._values[:, positions] = predictions.values
        self._planes[:, positions] = predictions.planes
