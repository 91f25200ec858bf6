"""The one loop that decodes: fills an integer tensor in generation order, at the operations of a single forward pass.

Finished rows never change: layers that are not masked mix inside a row, masked ones look up only. So keys and values of
finished rows, and of finished sites of the current row, are kept, and every layer sees every site once (section 3.2,
"semi-parallel sampling", without its recomputation).
"""

from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Integer
from torch import Tensor

from axial_transformers.layers.blocks import without_dropout
from axial_transformers.models.axial_transformer import AxialTransformer


@runtime_checkable
class Choose(Protocol):
    """What decides the values: sampling draws them, completion keeps known ones, an archive's decoder reads them."""

    def __call__(self, logits: Float[Tensor, "b v"], site: tuple[int, ...]) -> Integer[Tensor, " b"]:
        """Logits [B, V] of the site (a1, .., ad, c), in data coordinates -> values int64 [B]."""
        ...


@torch.no_grad()
def decode(
    model: AxialTransformer,
    choose: Choose,
    x: Integer[Tensor, "b *a c"],
    label: Integer[Tensor, " b"] | None = None,
    cond: Float[Tensor, "b *a d"] | None = None,
) -> Integer[Tensor, "b *a c"]:
    """x [B, *A, C], all but its known channels decided anew by `choose`, site after site in `model.order`: int64."""
    y = model.layout.into(model.check(x)).clone()
    batch, shape, outer_decoders = len(y), model.layout.shape, list(model.outer_decoders)
    given = model.given(batch, label, cond)
    sites = (tuple(site) for site in model.order.tolist())

    def slab(level: int, context: Tensor) -> Tensor:
        """Values [B, *A[level:]] of the slab whose context [B, *A[level:], D] is complete down to this level."""
        if level == len(outer_decoders):
            return row(context)
        outer = outer_decoders[level]
        state, upper, slabs = outer.start(batch), torch.zeros_like(context[:, 0]), []
        for i in range(shape[level]):
            values = slab(level + 1, context[:, i] + upper)
            slabs.append(values)
            upper = outer.step(model.embed_value(values) + context[:, i], i, state)
        return torch.stack(slabs, dim=1)

    def row(context: Tensor) -> Tensor:
        """Values [B, Ad] of one row, site by site."""
        state, previous, values = model.inner_decoder.start(batch), torch.zeros_like(context[:, 0]), []
        for i in range(shape[-1]):
            logits = model.head(model.inner_decoder.step(previous + context[:, i], i, state))
            values.append(choose(logits, next(sites)))
            previous = model.embed_value(values[-1])
        return torch.stack(values, dim=1)

    with without_dropout(model):
        for c in model.slices:
            context = model.context(y, torch.full((batch,), c, device=y.device), given)
            y[..., c] = slab(0, context.expand(batch, *shape, -1))
    return model.layout.out(y)


@torch.no_grad()
def decode_naively(
    model: AxialTransformer,
    choose: Choose,
    x: Integer[Tensor, "b *a c"],
    label: Integer[Tensor, " b"] | None = None,
    cond: Float[Tensor, "b *a d"] | None = None,
) -> Integer[Tensor, "b *a c"]:
    """What `decode` does, by one forward pass of everything for each site: the oracle."""
    x = model.check(x).clone()
    with without_dropout(model):
        for site in model.order.tolist():
            here = (slice(None), *site)
            x[here] = choose(model(x, label, cond)[here], tuple(site))
    return x
