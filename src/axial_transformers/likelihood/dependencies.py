"""Which logits hear which values: the all-pairs check that an autoregressive model neither leaks nor misses any."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor

from axial_transformers.layers.blocks import without_dropout
from axial_transformers.models.axial_transformer import AxialTransformer


@torch.no_grad()
def influence(
    model: AxialTransformer,
    x: Integer[Tensor, "1 *a c"],
    label: Integer[Tensor, " 1"] | None = None,
    batch_size: int = 64,
) -> Float[Tensor, "sites sites"]:
    """entry [p, q]: the largest change among the logits of site p when the value of site q moves by V/2.

    Sites in generation order. Run it in float64 with weights of scale 1: then what is exactly independent changes by at
    most 1e-12 and what depends by more than 1e-9.
    """
    order, values = model.order, model.config.num_values
    columns = []
    with without_dropout(model):

        def at_sites(logits: Tensor) -> Tensor:
            return logits[(slice(None), *order.T)]

        before = at_sites(model(x, label))
        for sites in order.split(batch_size):
            changed = x.repeat(len(sites), *(1,) * (x.ndim - 1))
            here = (torch.arange(len(sites)), *sites.T)
            changed[here] = (changed[here] + max(1, values // 2)) % values
            after = at_sites(model(changed, None if label is None else label.expand(len(sites))))
            columns.append((after - before).abs().amax(dim=-1).T)
    return torch.cat(columns, dim=1)


class Dependencies(NamedTuple):
    """Pairs of sites that ought not to depend on each other but do, and that ought to but do not."""

    leaks: int
    holes: int
    past: Bool[Tensor, "sites sites"]


def check(matrix: Float[Tensor, "sites sites"], silent: float = 1e-12, heard: float = 1e-9) -> Dependencies:
    """Counts leaks (p hears q, q not before p) and holes (q before p is not heard) in a matrix of `influence`."""
    past = torch.ones_like(matrix, dtype=torch.bool).tril(-1)
    return Dependencies(leaks=int((matrix[~past] > silent).sum()), holes=int((matrix[past] <= heard).sum()), past=past)
