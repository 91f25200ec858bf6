"""Decoding by the model's own parts, site by site: the oracle of the other backends."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from axial_transformers.decoding.backend import Backend, Steps
from axial_transformers.decoding.choices import Choose, KnownFirst, choose_at
from axial_transformers.decoding.values_so_far import RowPredictions
from axial_transformers.models import AxialTransformer


def eager(model: AxialTransformer, choose: Choose | KnownFirst) -> Backend:
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
    """Inner decoder and head along a row: a step maps context plus previous embedding [B, D] to the head's logits."""

    def __init__(self, model: AxialTransformer):
        self.inner_decoder, self.head = model.inner_decoder, model.head

    def start(self, batch: int) -> Any:
        return self.inner_decoder.start(batch)

    def step(self, u: Tensor, i: int, state: Any) -> Tensor:
        return self.head(self.inner_decoder.step(u, i, state))


def row_by_steps(
    model: AxialTransformer, choose: Choose | KnownFirst, logits: Steps
) -> Callable[[Tensor, Tensor, RowPredictions | None], Tensor]:
    """`Backend.row`, site by site, from a part that computes logits."""

    def row(context: Tensor, sites: Tensor, predictions: RowPredictions | None) -> Tensor:
        coordinates = [tuple(site) for site in sites.tolist()]

        def choose_in_row(logits: Tensor, i: int, predicted: Tensor | int) -> Tensor:
            return choose_at(choose, logits, coordinates[i], predicted)

        return walk_row(model, context, choose_in_row, logits, predictions)

    return row


def walk_row(
    model: AxialTransformer,
    context: Tensor,
    choose: Callable[[Tensor, int, Tensor | int], Tensor],
    logits: Steps,
    predictions: RowPredictions | None,
) -> Tensor:
    """The values or differences [B, L] of a row of context [B, L, D], site by site.

    Args:
        choose: takes logits [B, V], a position, and the predictions there.
    """
    state, previous, chosen = logits.start(len(context)), torch.zeros_like(context[:, 0]), list[Tensor]()
    for i in range(context.shape[1]):
        found = logits.step(previous + context[:, i], i, state)
        if predictions is None:
            chosen.append(choose(found, i, 0))
        else:
            predicted = predictions.at(i)
            chosen.append(choose(predictions.predictor.logits(found, predicted), i, predicted))
            predictions.keep(i, chosen[-1])
        previous = model.embed_value(chosen[-1])
    return torch.stack(chosen, dim=1)
