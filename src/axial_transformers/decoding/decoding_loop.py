"""The one loop that decodes, at the cost of a single forward pass.

Finished rows never change: unmasked layers mix sites of one row, masked ones see earlier rows. So keys and values are
cached (section 3.2, "semi-parallel sampling").
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from jaxtyping import Integer
from torch import Tensor

from axial_transformers.decoding.backend import Backend, BackendFactory, Slab
from axial_transformers.decoding.backend_choice import choose_backend
from axial_transformers.decoding.choices import Choose, CodesRows, KnownFirst, choose_at
from axial_transformers.decoding.values_so_far import ValuesSoFar
from axial_transformers.layers.blocks import without_dropout
from axial_transformers.models import UNCONDITIONAL, AxialTransformer, Conditioning
from axial_transformers.progress import Progress

ROW = 3
"""[B, L, D]."""


@torch.no_grad()
def decode(
    model: AxialTransformer,
    choose: Choose | KnownFirst | CodesRows,
    x: Integer[Tensor, "b *a c"],
    conditioning: Conditioning = UNCONDITIONAL,
    backend: BackendFactory = choose_backend,
    progress: Progress = iter,
) -> Integer[Tensor, "b *a c"]:
    """Return x with every value of `model.order` chosen by `choose`, site by site.

    If the model has a prediction, `choose` sees logits of differences, and returns differences.

    Args:
        x: [B, *A, C]; only its known channels matter.
        backend: the loop's parts; default: the fastest that is ready.
        progress: wraps the loop over rows.

    Returns:
        int64 [B, *A, C], on the model's device.
    """
    y = model.layout.to_model(model.differences(model.check(x))).clone()
    parts = backend(model, choose, len(y))
    embedded = parts.embed_conditioning(len(y), conditioning)
    rows = model.order.unflatten(0, (-1, model.layout.shape[-1]))
    row_numbers = iter(progress(range(len(rows))))
    walk = _Walk(parts, rows, row_numbers, ValuesSoFar(model, model.check(x)))
    with without_dropout(model):
        for c in model.slices:
            y[..., c] = walk.slab(0, parts.context(y, c, embedded))
    next(row_numbers, None)  # ends a progress bar
    return walk.so_far.values


class _Walk(NamedTuple):
    """Recursion over axes. (A recursive closure would keep the noise until garbage collection.)"""

    parts: Backend
    rows: Integer[Tensor, "rows l axes"]
    row_numbers: Iterator[int]
    so_far: ValuesSoFar

    def slab(self, level: int, context: Slab) -> Tensor:
        parts = self.parts
        if context.ndim == ROW:
            return self._row(context, next(self.row_numbers))
        outer = parts.outer_decoders[level]
        state, upper, slabs = outer.start(len(context)), 0.0, list[Tensor]()
        for i in range(context.shape[1]):
            here = context[:, i] + outer.near(slabs)
            slabs.append(self.slab(level + 1, here + upper))
            upper = outer.step(parts.embed_value(slabs[-1]) + here, i, state)
        return torch.stack(slabs, dim=1)

    def _row(self, context: Slab, row: int) -> Tensor:
        predictions = self.so_far.predictions(row)
        chosen = self.parts.row(context, self.rows[row], predictions)
        self.so_far.keep(row, chosen, predictions)
        return chosen


@torch.no_grad()
def decode_naively(
    model: AxialTransformer,
    choose: Choose | KnownFirst,
    x: Integer[Tensor, "b *a c"],
    conditioning: Conditioning = UNCONDITIONAL,
) -> Integer[Tensor, "b *a c"]:
    """Decode with one forward pass per site: the oracle of `decode`."""
    x, values = model.check(x).clone(), model.config.num_values
    with without_dropout(model):
        for site in model.order.tolist():
            here = (slice(None), *site)
            predicted = model.predictions(x)[here]
            of_differences = (torch.arange(values, device=x.device) + predicted[:, None]) % values
            logits = model(x, *conditioning)[here].gather(-1, of_differences)
            x[here] = (choose_at(choose, logits, tuple(site), predicted) + predicted) % values
    return x
