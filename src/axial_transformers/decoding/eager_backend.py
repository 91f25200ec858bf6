"""Decoding by the model's own parts, site by site: the oracle of the other backends."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from axial_transformers.decoding.backend import Backend, Steps
from axial_transformers.decoding.choices import Choose
from axial_transformers.models import AxialTransformer


def eager(model: AxialTransformer, choose: Choose) -> Backend:
    """The model's own parts, site by site: for any device, dtype and choice."""

    def context(y: Tensor, c: int, conditioning: Tensor | float) -> Tensor:
        found = model.context(y, torch.full((len(y),), c, device=y.device), conditioning)
        return found.expand(*y.shape[:-1], -1)

    return Backend(
        embed_conditioning=model.embed_conditioning,
        context=context,
        embed_value=model.embed_value,
        outer_decoders=list(model.outer_decoders),
        row=row_by_steps(model, choose, SiteLogits(model)),
    )


class SiteLogits:
    """Inner decoder and head along a row: a step maps context plus previous embedding [B, D] to logits [B, V]."""

    def __init__(self, model: AxialTransformer):
        self.inner_decoder, self.head = model.inner_decoder, model.head

    def start(self, batch: int) -> Any:
        return self.inner_decoder.start(batch)

    def step(self, u: Tensor, i: int, state: Any) -> Tensor:
        return self.head(self.inner_decoder.step(u, i, state))


def row_by_steps(model: AxialTransformer, choose: Choose, logits: Steps) -> Callable[[Tensor, Tensor], Tensor]:
    """`Backend.row`, site by site, from a part that computes logits."""

    def row(context: Tensor, sites: Tensor) -> Tensor:
        coordinates = [tuple(site) for site in sites.tolist()]
        return walk_row(model, context, lambda logits, i: choose(logits, coordinates[i]), logits)

    return row


def walk_row(
    model: AxialTransformer, context: Tensor, choose: Callable[[Tensor, int], Tensor], logits: Steps
) -> Tensor:
    """The values [B, L] of a row of context [B, L, D], site by site; `choose` takes logits [B, V] and a position."""
    state, previous, values = logits.start(len(context)), torch.zeros_like(context[:, 0]), []
    for i in range(context.shape[1]):
        values.append(choose(logits.step(previous + context[:, i], i, state), i))
        previous = model.embed_value(values[-1])
    return torch.stack(values, dim=1)
