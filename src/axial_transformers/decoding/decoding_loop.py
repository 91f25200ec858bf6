"""The one loop that decodes: fills an integer tensor in generation order, at the cost of a single forward pass.

Finished rows never change: unmasked layers mix sites of one row, masked ones attend to earlier rows. So the keys and
values of finished rows, and of finished sites of the current row, are cached, and every layer is evaluated once at
every site (section 3.2, "semi-parallel sampling", without its recomputation).
"""

import torch
from jaxtyping import Integer
from torch import Tensor

from axial_transformers.decoding.backend import BackendFactory
from axial_transformers.decoding.backend_choice import choose_backend
from axial_transformers.decoding.choices import Choose
from axial_transformers.layers.blocks import without_dropout
from axial_transformers.models import UNCONDITIONAL, AxialTransformer, Conditioning
from axial_transformers.progress import Progress


@torch.no_grad()
def decode(
    model: AxialTransformer,
    choose: Choose,
    x: Integer[Tensor, "b *a c"],
    conditioning: Conditioning = UNCONDITIONAL,
    backend: BackendFactory = choose_backend,
    progress: Progress = iter,
) -> Integer[Tensor, "b *a c"]:
    """x with every value of `model.order` replaced by that of `choose`, site by site in this order.

    Args:
        x: [B, *A, C]; only its known channels matter.
        backend: the implementation of the loop's parts; `choose_backend` takes the fastest that is ready.
        progress: wraps the loop over rows.

    Returns:
        int64 [B, *A, C], on the device of x.
    """
    y = model.layout.to_model(model.check(x)).clone()
    batch, shape = len(y), model.layout.shape
    embedded = model.embed_conditioning(batch, conditioning)
    rows = model.order.unflatten(0, (-1, shape[-1]))
    row_numbers = iter(progress(range(len(rows))))
    parts = backend(model, choose, batch)

    def slab(level: int, context: Tensor) -> Tensor:
        """Values [B, *A[level:]] of the slab whose context [B, *A[level:], D] includes all outer axes."""
        if level == len(parts.outer_decoders):
            return parts.row(context, rows[next(row_numbers)])
        outer = parts.outer_decoders[level]
        state, upper, slabs = outer.start(batch), torch.zeros_like(context[:, 0]), []
        for i in range(shape[level]):
            values = slab(level + 1, context[:, i] + upper)
            slabs.append(values)
            upper = outer.step(model.embed_value(values) + context[:, i], i, state)
        return torch.stack(slabs, dim=1)

    with without_dropout(model):
        for c in model.slices:
            y[..., c] = slab(0, parts.context(y, c, embedded).expand(batch, *shape, -1))
    next(row_numbers, None)  # ends a progress bar
    return model.layout.to_data(y)


@torch.no_grad()
def decode_naively(
    model: AxialTransformer,
    choose: Choose,
    x: Integer[Tensor, "b *a c"],
    conditioning: Conditioning = UNCONDITIONAL,
) -> Integer[Tensor, "b *a c"]:
    """The oracle of `decode`: one whole forward pass for each site."""
    x = model.check(x).clone()
    with without_dropout(model):
        for site in model.order.tolist():
            here = (slice(None), *site)
            x[here] = choose(model(x, *conditioning)[here], tuple(site))
    return x
