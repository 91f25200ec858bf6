"""Decoding by the model's own parts, site by site: the oracle of the other backends."""

from collections.abc import Callable

import torch
from torch import Tensor

from axial_transformers.decoding.backend import Backend
from axial_transformers.decoding.choices import Choose
from axial_transformers.models import AxialTransformer


def eager(model: AxialTransformer, choose: Choose) -> Backend:
    """The model's own parts, site by site: for any device, dtype and choice; the oracle of the other backends."""

    def context(y: Tensor, c: int, conditioning: Tensor | float) -> Tensor:
        return model.context(y, torch.full((len(y),), c, device=y.device), conditioning)

    def row(context: Tensor, sites: Tensor) -> Tensor:
        places = [tuple(site) for site in sites.tolist()]
        return walk_row(model, context, lambda logits, i: choose(logits, places[i]))

    return Backend(context=context, outer_decoders=list(model.outer_decoders), row=row)


def walk_row(model: AxialTransformer, context: Tensor, choose: Callable[[Tensor, int], Tensor]) -> Tensor:
    """The values [B, L] of a row of context [B, L, D], site by site; `choose` takes logits [B, V] and a place."""
    state, previous, values = model.inner_decoder.start(len(context)), torch.zeros_like(context[:, 0]), []
    for i in range(context.shape[1]):
        logits = model.head(model.inner_decoder.step(previous + context[:, i], i, state))
        values.append(choose(logits, i))
        previous = model.embed_value(values[-1])
    return torch.stack(values, dim=1)
