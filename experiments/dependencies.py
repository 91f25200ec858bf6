"""Dependencies of logits on values."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor

from axial_transformers.layers.blocks import without_dropout
from axial_transformers.models import AxialTransformer


@torch.no_grad()
def influence(
    model: AxialTransformer,
    x: Integer[Tensor, "1 *a c"],
    label: Integer[Tensor, " 1"] | None = None,
    batch_size: int = 64,
) -> Float[Tensor, "p p"]:
    """Return the largest change of a logit of position p, at [p, q], when position q changes by V/2.

    In float64, independent logits change by 1e-12 at most.
    """
    order = model.order
    values = model.config.num_values
    lowest = model.config.lowest
    columns = []
    with without_dropout(model):

        def at_positions(logits: Tensor) -> Tensor:
            return logits[(slice(None), *order.T)]

        before = at_positions(model(x, label))
        for positions in order.split(batch_size):
            changed = x.repeat(len(positions), *(1,) * (x.ndim - 1))
            here = (torch.arange(len(positions), device="cpu"), *positions.T)
            changed[here] = (changed[here] - lowest + max(1, values // 2)) % values + lowest
            after = at_positions(model(changed, None if label is None else label.expand(len(positions))))
            columns.append((after - before).abs().amax(dim=-1).T)
    return torch.cat(columns, dim=1)


class Dependencies(NamedTuple):
    """Pairs that break the autoregressive order, or do not use it."""

    leaks: int
    """A position depends on itself or on a later one."""
    holes: int
    """A position does not depend on an earlier one."""
    past: Bool[Tensor, "p p"]


def check(matrix: Float[Tensor, "p p"], independent: float = 1e-12, dependent: float = 1e-9) -> Dependencies:
    """Count leaks and holes in a matrix of `influence`."""
    past = torch.ones_like(matrix, dtype=torch.bool).tril(-1)
    leaks = (matrix[~past] > independent).sum()
    holes = (matrix[past] <= dependent).sum()
    return Dependencies(leaks=int(leaks), holes=int(holes), past=past)
