"""The parts of a model that the decoding loop calls, as an interface; and the model's own parts, `eager`.

A backend computes the same parts in another way: by the exact network (`exact_backend`), or as CUDA graphs
(`graph_backend`). `choose_backend` takes one. Tests compare each with `eager`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from axial_transformers.decoding.choices import Choose, choose_at
from axial_transformers.exact.row_predictions import RowPredictions
from axial_transformers.models import AxialTransformer, Conditioning
from axial_transformers.models.values import Distribution
from axial_transformers.ops.torch_private import has_hooks

Slab = Any
"""Numbers [B, *S, D] that the loop indexes and adds: a tensor, or a NumPy array of `exact_backend`."""


class Steps(Protocol):
    """A causal part of a model, evaluated slab by slab, such as `OuterDecoder`."""

    def start(self, batch: int) -> Any:
        """Return the state before the first slab: empty caches of keys and values."""

    def step(self, u: Slab, i: int, state: Any) -> Slab:
        """Return slab `i` of the output [B, *S, D] for slab `i` of the input, u [B, *S, D]; add it to `state`.

        The next step may overwrite the result.
        """


@dataclass(frozen=True, kw_only=True)
class Backend:
    """The parts of a model that the loop calls, in one implementation."""

    embed_conditioning: Callable[[int, Conditioning], Any]
    """Number of examples, label and cond -> what `context` takes; ValueError if the model takes others."""
    context: Callable[[Tensor, int, Any], Slab]
    """Data in model coordinates, channel, embedded conditioning -> context [B, *A', D] of all slabs."""
    embed_value: Callable[[Tensor], Slab]
    """Codes [B, *S, P] -> h [B, *S, D]."""
    outer_decoders: Sequence[Steps]
    """Outermost axis first. A step takes slab i of h + context, and returns the upper context of slab i + 1."""
    row: Callable[[Slab, Tensor, RowPredictions | None], Tensor]
    """Context [B, L, D], positions [L P, d + 1], predictions -> the codes of a row [B, L, P].

    It writes the values into the predictions.
    """
    device: str | None = None
    """Where codes and predictions are; None: where the model is."""


BackendFactory = Callable[[AxialTransformer, Any, int], Backend]
"""A model, a choice of values that the backend takes, and a number of examples -> a backend."""


def eager(model: AxialTransformer, choose: Choose, batch: int = 0) -> Backend:
    """Return the model's own parts: for any device, dtype, choice and batch, and the reference for other backends."""
    for name, part in model.named_modules():
        if has_hooks(part) and hasattr(part, "step"):
            raise ValueError(f"{name} has hooks, and decoding does not call it as a whole: hook the layers inside it")

    def context(y: Tensor, c: int, conditioning: Tensor | float) -> Tensor:
        context = model.context(y, torch.full((len(y),), c, device=y.device), conditioning)
        return context.expand(*y.shape[:-2], -1)

    def row(context: Tensor, positions: Tensor, predictions: RowPredictions | None) -> Tensor:
        coordinates = [tuple(position) for position in positions.tolist()]

        def choose_in_row(distribution: Distribution, i: tuple[int]) -> Tensor:
            return choose_at(choose, distribution, coordinates[i[0]])

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
    choose: Callable[[Distribution, tuple[int]], Tensor],
    predictions: RowPredictions | None,
) -> Tensor:
    """Return the codes of a row [B, L, P], one value after the other.

    Args:
        context: [B, L, D], upper context included.
        choose: distributions of B values, and the number of the value in the row -> values [B].
        predictions: written as the row goes on, since the next ones depend on it.
    """
    depth = model.layout.depth
    no_codes = torch.zeros(len(context), dtype=torch.int64, device=context.device)
    middle = model.values.centres(no_codes)
    state = model.inner_decoder.start(len(context))
    previous = torch.zeros_like(context[:, 0])
    row: list[Tensor] = []
    for i in range(context.shape[1]):
        last = model.inner_decoder.step(previous + context[:, i], i, state)
        codes = no_codes.new_zeros(len(context), 0)
        for n in range(i * depth, (i + 1) * depth):
            centres = predictions.at(n) if predictions else middle
            values = choose(model.values.distribution(model.read_out(last, codes), centres), (n,))
            chosen = predictions.keep(n, values, centres) if predictions else values
            codes = torch.cat([codes, chosen[:, None]], dim=1)
        row.append(codes)
        previous = model.embed_value(codes)
    return torch.stack(row, dim=1)
