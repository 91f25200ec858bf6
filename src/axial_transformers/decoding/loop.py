"""The one loop that decodes: fills an integer tensor in generation order, at the operations of a single forward pass.

Finished rows never change: layers that are not masked mix inside a row, masked ones look up only. So keys and values of
finished rows, and of finished sites of the current row, are kept, and every layer sees every site once (section 3.2,
"semi-parallel sampling", without its recomputation).
"""

import torch
from jaxtyping import Integer
from torch import Tensor

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
    compile: bool | None = None,
    progress: Progress = iter,
) -> Integer[Tensor, "b *a c"]:
    """x [B, *A, C], all but its known channels decided anew by `choose`, site after site in `model.order`: int64.

    `compile` says whether the parts of the loop run compiled, None: where that pays; see `choose_backend`. `progress`
    goes round the loop over rows.
    """
    y = model.layout.to_model(model.check(x)).clone()
    batch, shape = len(y), model.layout.shape
    embedded = model.embed_conditioning(batch, conditioning)
    rows = model.order.unflatten(0, (-1, shape[-1]))
    turns = iter(progress(range(len(rows))))

    def slab(level: int, context: Tensor) -> Tensor:
        """Values [B, *A[level:]] of the slab whose context [B, *A[level:], D] is complete down to this level."""
        if level == len(backend.outer_decoders):
            return backend.row(context, rows[next(turns)])
        outer = backend.outer_decoders[level]
        state, upper, slabs = outer.start(batch), torch.zeros_like(context[:, 0]), []
        for i in range(shape[level]):
            values = slab(level + 1, context[:, i] + upper)
            slabs.append(values)
            upper = outer.step(model.embed_value(values) + context[:, i], i, state)
        return torch.stack(slabs, dim=1)

    backend = choose_backend(model, choose, batch, compile)
    with without_dropout(model):
        for c in model.slices:
            y[..., c] = slab(0, backend.context(y, c, embedded).expand(batch, *shape, -1))
    next(turns, None)  # which ends a bar
    return model.layout.to_data(y)


@torch.no_grad()
def decode_naively(
    model: AxialTransformer,
    choose: Choose,
    x: Integer[Tensor, "b *a c"],
    conditioning: Conditioning = UNCONDITIONAL,
) -> Integer[Tensor, "b *a c"]:
    """What `decode` does, by one forward pass of everything for each site: the oracle."""
    x = model.check(x).clone()
    with without_dropout(model):
        for site in model.order.tolist():
            here = (slice(None), *site)
            x[here] = choose(model(x, *conditioning)[here], tuple(site))
    return x
