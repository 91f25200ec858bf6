"""The one loop that decodes: fills an integer tensor in generation order, at the operations of a single forward pass.

Finished rows never change: layers that are not masked mix inside a row, masked ones look up only. So keys and values of
finished rows, and of finished sites of the current row, are kept, and every layer sees every site once (section 3.2,
"semi-parallel sampling", without its recomputation).
"""

import torch
from jaxtyping import Float, Integer
from torch import Tensor

from axial_transformers.decoding.choices import Choose
from axial_transformers.decoding.forms import best_form
from axial_transformers.layers.blocks import without_dropout
from axial_transformers.models.axial_transformer import AxialTransformer
from axial_transformers.progress import Progress


@torch.no_grad()
def decode(
    model: AxialTransformer,
    choose: Choose,
    x: Integer[Tensor, "b *a c"],
    label: Integer[Tensor, " b"] | None = None,
    cond: Float[Tensor, "b *a d"] | None = None,
    compile: bool | None = None,
    progress: Progress = iter,
) -> Integer[Tensor, "b *a c"]:
    """x [B, *A, C], all but its known channels decided anew by `choose`, site after site in `model.order`: int64.

    `compile` says whether the parts of the loop run compiled, None: where that pays; see `forms.best_form`. `progress`
    goes round the loop over rows.
    """
    y = model.layout.into(model.check(x)).clone()
    batch, shape = len(y), model.layout.shape
    given = model.given(batch, label, cond)
    rows = model.order.unflatten(0, (-1, shape[-1]))
    turns = iter(progress(range(len(rows))))

    def slab(level: int, context: Tensor) -> Tensor:
        """Values [B, *A[level:]] of the slab whose context [B, *A[level:], D] is complete down to this level."""
        if level == len(form.outer_decoders):
            return form.row(context, rows[next(turns)])
        outer = form.outer_decoders[level]
        state, upper, slabs = outer.start(batch), torch.zeros_like(context[:, 0]), []
        for i in range(shape[level]):
            values = slab(level + 1, context[:, i] + upper)
            slabs.append(values)
            upper = outer.step(model.embed_value(values) + context[:, i], i, state)
        return torch.stack(slabs, dim=1)

    form = best_form(model, choose, batch, compile)
    with without_dropout(model):
        for c in model.slices:
            y[..., c] = slab(0, form.context(y, c, given).expand(batch, *shape, -1))
    next(turns, None)  # which ends a bar
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
