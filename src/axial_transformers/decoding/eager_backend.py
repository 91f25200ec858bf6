"""Decoding by the model's own parts, site by site: the oracle of the other backends."""

from collections.abc import Callable

import torch
from torch import Tensor

from axial_transformers.decoding.backend import Backend
from axial_transformers.decoding.choices import Choose, KnownFirst, choose_at
from axial_transformers.decoding.values_so_far import RowPredictions
from axial_transformers.models import AxialTransformer


def eager(model: AxialTransformer, choose: Choose | KnownFirst) -> Backend:
    """The model's own parts, site by site: for any device, dtype and choice."""

    def context(y: Tensor, c: int, conditioning: Tensor | float) -> Tensor:
        found = model.context(y, torch.full((len(y),), c, device=y.device), conditioning)
        return found.expand(*y.shape[:-1], -1)

    def row(context: Tensor, sites: Tensor, predictions: RowPredictions | None) -> Tensor:
        coordinates = [tuple(site) for site in sites.tolist()]

        def choose_in_row(logits: Tensor, i: int, predicted: Tensor | int) -> Tensor:
            return choose_at(choose, logits, coordinates[i], predicted)

        return walk_row(model, context, choose_in_row, predictions)

    return Backend(
        embed_conditioning=model.embed_conditioning,
        context=context,
        embed_value=model.embed_value,
        outer_decoders=list(model.outer_decoders),
        row=row,
    )


def walk_row(
    model: AxialTransformer,
    context: Tensor,
    choose: Callable[[Tensor, int, Tensor | int], Tensor],
    predictions: RowPredictions | None,
) -> Tensor:
    """The values or differences [B, L] of a row of context [B, L, D], site by site.

    Args:
        choose: takes logits [B, V], a position, and the predictions there.
    """
    inner = model.inner_decoder
    state, previous, chosen = inner.start(len(context)), torch.zeros_like(context[:, 0]), list[Tensor]()
    for i in range(context.shape[1]):
        found = model.head(inner.step(previous + context[:, i], i, state))
        if predictions is None:
            chosen.append(choose(found, i, 0))
        else:
            predicted = predictions.at(i)
            chosen.append(choose(predictions.predictor.logits(found, predicted), i, predicted))
            predictions.keep(i, chosen[-1])
        previous = model.embed_value(chosen[-1])
    return torch.stack(chosen, dim=1)
