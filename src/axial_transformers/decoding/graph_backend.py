"""Decoding with rows as CUDA graphs: all kernels of a row are launched at once."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from axial_transformers.decoding.backend import Backend
from axial_transformers.decoding.choices import Choose, RowChoice, row_choice
from axial_transformers.decoding.eager_backend import SiteLogits, eager, walk_row
from axial_transformers.models import AxialTransformer


def graphs(model: AxialTransformer, choose: Choose) -> Backend:
    """The eager backend, but with the kernels of a row as one CUDA graph, captured at the first row."""
    captured: list[Callable[[Tensor, RowChoice], Tensor]] = []

    def row(context: Tensor, sites: Tensor) -> Tensor:
        choice = row_choice(choose, sites)
        assert choice is not None
        if not captured:
            captured.append(_capture(model, context, choice))
        return captured[0](context, choice)

    return replace(eager(model, choose), row=row)


def _capture(model: AxialTransformer, context: Tensor, choice: RowChoice) -> Callable[[Tensor, RowChoice], Tensor]:
    """A function that replays the computation of this row for others of the same shapes and options."""
    inputs = context.clone(), choice.noise.clone(), choice.known.clone()
    static = replace(choice, noise=inputs[1], known=inputs[2])
    logits, side_stream = SiteLogits(model), torch.cuda.Stream(context.device)
    side_stream.wait_stream(torch.cuda.current_stream(context.device))
    with torch.cuda.stream(side_stream):  # libraries allocate their workspaces before the capture, not in it
        walk_row(model, inputs[0], static, logits)
    torch.cuda.current_stream(context.device).wait_stream(side_stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.device(context.device), torch.cuda.graph(graph):
        values = walk_row(model, inputs[0], static, logits)

    def replay(context: Tensor, choice: RowChoice) -> Tensor:
        for held, new in zip(inputs, (context, choice.noise, choice.known)):
            held.copy_(new)
        graph.replay()
        return values.clone()

    return replay
