"""Dependencies of logits on values, for all pairs of sites: an autoregressive model has all that it may have."""

from math import prod
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor

from axial_transformers.layers.blocks import without_dropout
from axial_transformers.layers.initialisation import randomise
from axial_transformers.models import AxialTransformer, AxialTransformerConfig
from axial_transformers.models.baselines.by_name import build

MOST_SITES = 300
"""Largest number of sites of a configuration that is checked: the time grows with its square."""
MOST_PARAMETERS = 5_000_000


@torch.no_grad()
def influence(
    model: AxialTransformer,
    x: Integer[Tensor, "1 *a c"],
    label: Integer[Tensor, " 1"] | None = None,
    batch_size: int = 64,
) -> Float[Tensor, "sites sites"]:
    """Matrix of the largest change of any logit of site p, [p, q], when the value of site q changes by V/2.

    Sites are in generation order. In float64 and with weights of scale 1, logits that do not depend on a value change
    by at most 1e-12, others by more than 1e-9.

    Args:
        x: one example.
        batch_size: number of changed examples that the model computes at once.
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
    """Numbers of pairs of sites that break the autoregressive order, or that do not use it."""

    leaks: int
    """Pairs in which a site depends on itself or on a later one."""
    holes: int
    """Pairs in which a site does not depend on an earlier one."""
    past: Bool[Tensor, "sites sites"]
    """True at [p, q] where site q is before site p."""


def check_configuration(config: AxialTransformerConfig) -> Dependencies | None:
    """Counts leaks and holes of a model with random weights of scale 1 in float64; None where that would take long."""
    layout = config.bijection
    if prod(layout.shape) * (layout.channels - config.known_channels) > MOST_SITES:
        return None
    with torch.device("meta"):
        size = sum(weight.numel() for weight in build(config).parameters())
    if size > MOST_PARAMETERS:
        return None
    generator = torch.Generator().manual_seed(0)
    model = build(config).double()
    randomise(model, generator)
    x = torch.randint(config.num_values, (1, *config.shape, config.channels), generator=generator)
    return check(influence(model, x))


def check(matrix: Float[Tensor, "sites sites"], independent: float = 1e-12, dependent: float = 1e-9) -> Dependencies:
    """Counts leaks and holes in a matrix of `influence`.

    Args:
        independent: largest change of logits that do not depend on the value.
        dependent: change that those which depend on it exceed.
    """
    past = torch.ones_like(matrix, dtype=torch.bool).tril(-1)
    leaks, holes = (matrix[~past] > independent).sum(), (matrix[past] <= dependent).sum()
    return Dependencies(leaks=int(leaks), holes=int(holes), past=past)
