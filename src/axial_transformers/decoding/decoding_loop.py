"""The one loop that decodes: it fills an integer tensor in generation order, at the cost of a single forward pass.

A slab is what stays of the data when the outermost axes have one index each: of a video a frame, then a row of it. The
loop walks over the slabs of the first axis, and inside each over its own slabs, down to rows. It chooses the values of
a row one after the other. Then it tells the outer decoder of each level what was chosen. The answer is the upper
context of the next slab: all that later values learn about earlier slabs. The context to which it is added holds the
encodings of positions, the earlier channels and the conditioning.

An image of 2 rows and 3 columns has one outer decoder. The numbers are the order of calls:

                        column 0   column 1   column 2
                      +----------+----------+----------+
    1 outer.start     |          |          |          |
    row 0             |    2 ------> 3 ------> 4       |   inner decoder, head, `choose`: one position each
                      +----------+----------+----------+
                      |    :     |    :     |    :     |
    5 outer.step      |    v     |    v     |    v     |   all of row 0 at once -> the upper context of row 1
                      +----------+----------+----------+
    row 1             |    6 ------> 7 ------> 8       |   context + upper context; each sees its left neighbours
                      +----------+----------+----------+
    9 outer.step                                           its result has no reader

Calls 2 to 4 are one call of `Backend.row`, and so are 6 to 8. The loop repeats this for each channel. A video has two
outer decoders: the first makes a step after each frame, the second after each row of a frame.

Nothing is computed twice. Finished rows never change: unmasked layers mix positions of one row, and masked layers look
at earlier rows. So a step of the outer decoder adds the keys and values of one row to a cache, and row 1 attends to the
cache. Together, all steps have the FLOPs of one forward pass. The paper calls this semi-parallel sampling (section
3.2). It has no caches there, and computes the outer decoder again for every row.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from jaxtyping import Integer
from torch import Tensor

from axial_transformers.decoding.backend import Backend, BackendFactory, Slab, eager
from axial_transformers.decoding.choices import Choose, choose_at
from axial_transformers.exact.row_predictions import RowPredictions, row_predictions
from axial_transformers.layers.blocks import without_dropout
from axial_transformers.models import UNCONDITIONAL, AxialTransformer, Conditioning
from axial_transformers.progress import Progress

ROW = 3
"""Axes of the context of a row, [B, L, D]: where the recursion ends."""


@torch.no_grad()
def decode(
    model: AxialTransformer,
    choose: Choose,
    x: Integer[Tensor, "b *a c"],
    conditioning: Conditioning = UNCONDITIONAL,
    backend: BackendFactory = eager,
    progress: Progress = iter,
) -> Integer[Tensor, "b *a c"]:
    """Return x with every value of `model.order` chosen by `choose`, one position after the other.

    `choose` counts values from 0; x and the result hold values of the data, from the model's `lowest` on.

    Args:
        choose: what makes a value of logits, see `decoding.choices`.
        x: [B, *A, C] integers. Channels that the model takes as known stay; all other values are overwritten.
        backend: makes the parts that the loop calls, such as `choose_backend`; default: those of the model itself.
        progress: wraps the loop over rows.

    Returns:
        int64 [B, *A, C], on the model's device.
    """
    values = decode_by(backend(model, choose, len(x)), model, model.check(x), conditioning, progress)
    return model.to_data(values)


@torch.no_grad()
def decode_by(
    parts: Backend,
    model: AxialTransformer,
    x: Integer[Tensor, "b *a c"],
    conditioning: Conditioning,
    progress: Progress = iter,
) -> Integer[Tensor, "b *a c"]:
    """Return x with every value of `model.order` chosen by `parts.row`; see `decode`.

    x and the result count values from 0.
    """
    # y is what the network reads: codes, in model coordinates. The loop writes all of it but known channels.
    codes = model.values.codes(x) if model.config.known_channels else x
    y = model.layout.to_model(codes).to(parts.device).clone()
    embedded = parts.embed_conditioning(len(y), conditioning)
    rows = model.order.split(model.layout.row)
    walk = _Walk(parts, zip(progress(range(len(rows))), rows, row_predictions(model, x.to(parts.device))))
    with without_dropout(model):
        for c in model.slices:
            y[..., c, :] = walk.slab(0, parts.context(y, c, embedded))
    next(walk.rows, None)  # ends a progress bar
    return model.values.values(model.layout.to_data(y)).to(x.device)


class _Walk(NamedTuple):
    """The recursion over axes. (A recursive closure would keep the noise until garbage collection.)"""

    parts: Backend
    rows: Iterator[tuple[int, Tensor, RowPredictions | None]]
    """The rows that come next: number, positions [L P, d + 1], predictions."""

    def slab(self, level: int, context: Slab) -> Tensor:
        """Return the codes of a slab.

        Args:
            level: of the outer decoder that walks over this slab; 0 is the outermost.
            context: [B, *A[level:], D], with the upper context of all levels above.

        Returns:
            [B, *A[level:], P].
        """
        if context.ndim == ROW:
            _, positions, predictions = next(self.rows)
            return self.parts.row(context, positions, predictions)
        outer = self.parts.outer_decoders[level]
        state = outer.start(len(context))
        upper = 0.0
        slabs: list[Tensor] = []
        for i in range(context.shape[1]):
            here = context[:, i]
            slabs.append(self.slab(level + 1, here + upper))
            upper = outer.step(self.parts.embed_value(slabs[-1]) + here, i, state)
        return torch.stack(slabs, dim=1)


@torch.no_grad()
def decode_naively(
    model: AxialTransformer,
    choose: Choose,
    x: Integer[Tensor, "b *a c"],
    conditioning: Conditioning = UNCONDITIONAL,
) -> Integer[Tensor, "b *a c"]:
    """Decode with a whole forward pass for each position: the reference implementation of `decode`."""
    x = model.check(x).clone()
    with without_dropout(model):
        for position in model.order.tolist():
            here = (slice(None), *position)
            centres = model.values.centres(model.values.codes(x))[here]
            outputs = model.outputs(x, *conditioning)[here]
            x[here] = choose_at(choose, model.values.distribution(outputs, centres), tuple(position))
    return model.to_data(x)
