"""The interface of a decoding backend, and `eager`, the oracle of the others."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from axial_transformers.decoding.choices import Choose, KnownFirst, choose_at
from axial_transformers.decoding.values_so_far import RowPredictions
from axial_transformers.models import AxialTransformer, Conditioning

Slab = Any
"""Numbers [B, *S, D] that the loop indexes and adds: a tensor or a NumPy array."""


class Steps(Protocol):
    """A causal part of a model, evaluated slab by slab, such as `OuterDecoder`."""

    def start(self, batch: int) -> Any:
        """Return the state before the first slab."""
        ...

    def step(self, u: Slab, i: int, state: Any) -> Slab:
        """Return the output [B, *S, ..] for slab `i` of the input [B, *S, D]; update `state`."""
        ...


@dataclass(frozen=True, kw_only=True)
class Backend:
    """The parts of a model that the loop calls, in one implementation."""

    embed_conditioning: Callable[[int, Conditioning], Any]
    """Batch and conditioning -> what `context` takes; raises ValueError for what the model does not take."""
    context: Callable[[Tensor, int, Any], Slab]
    """Data in model coordinates, channel, embedded conditioning -> context [B, *A', D]."""
    embed_value: Callable[[Tensor], Slab]
    """Values [B, *S] -> h [B, *S, D]."""
    outer_decoders: Sequence[Steps]
    """A step maps slab i of h + context to the upper context of slab i + 1, both [B, *S, D]."""
    row: Callable[[Slab, Tensor, RowPredictions | None], Tensor]
    """Context [B, L, D], sites [L, d + 1] and predictions -> values or differences [B, L], kept in the predictions."""


BackendFactory = Callable[[AxialTransformer, Any, int], Backend]
"""Takes a model, a choice of values (`CodesRows` for `exact_backend`) and a number of examples."""


def eager(model: AxialTransformer, choose: Choose | KnownFirst) -> Backend:
    """Return the model's own parts, for any device, dtype and choice."""

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
    """Return the values or differences [B, L] of a row of context [B, L, D], site by site.

    `choose` takes logits [B, V], a position, and the predictions there.
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
