"""The interface of a decoding backend."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from axial_transformers.decoding.choices import Choose, KnownFirst, choose_at
from axial_transformers.decoding.values_so_far import RowPredictions
from axial_transformers.models import AxialTransformer, Conditioning

Slab = Any
"""[B, *S, D], a tensor or a NumPy array."""


class Steps(Protocol):
    """An outer decoder, evaluated slab by slab."""

    def start(self, batch: int) -> Any:
        """Return the first state."""
        ...

    def step(self, u: Slab, i: int, state: Any) -> Slab:
        """Return slab `i` of the output [B, *S, ..]; update `state`."""
        ...

    def near(self, slabs: Sequence[Tensor]) -> Slab | float:
        """Return what slabs of values [B, *S] add to the context of the next."""
        ...


@dataclass(frozen=True, kw_only=True)
class Backend:
    """The parts of a model that the loop calls."""

    embed_conditioning: Callable[[int, Conditioning], Any]
    """Batch and conditioning -> what `context` takes."""
    context: Callable[[Tensor, int, Any], Slab]
    """Data in model coordinates, channel, conditioning -> context [B, *A', D]."""
    embed_value: Callable[[Tensor], Slab]
    """Values [B, *S] -> h [B, *S, D]."""
    outer_decoders: Sequence[Steps]
    """Slab i of h + context -> the upper context of slab i + 1."""
    row: Callable[[Slab, Tensor, RowPredictions | None], Tensor]
    """Context [B, L, D], sites [L, d + 1], predictions -> values or differences [B, L]."""


BackendFactory = Callable[[AxialTransformer, Any, int], Backend]


def eager(model: AxialTransformer, choose: Choose | KnownFirst) -> Backend:
    """Return the model's own parts, for any device, dtype and choice: the oracle."""

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
    """Return a row's values or differences [B, L], site by site."""
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
