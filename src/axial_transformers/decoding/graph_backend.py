"""Decode each row as one CUDA graph, which starts all GPU kernels of the row at once."""

from collections.abc import Callable, Hashable
from dataclasses import replace
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from axial_transformers.decoding.backend import Backend, eager, walk_row
from axial_transformers.decoding.choices import Choose, KnownFirst, NoiseChoice, row_choice
from axial_transformers.decoding.values_so_far import RowPredictions
from axial_transformers.models import AxialTransformer

MAX_ROW = 1 << 12
"""Positions of a row times layers of the inner decoder; each adds about twenty GPU kernels. Not measured."""
MAX_KEPT = 4
"""Graphs kept for each model, the last used ones: each holds the activations of a row."""

Row = Callable[[Tensor, NoiseChoice, RowPredictions | None], Tensor]
_kept: WeakKeyDictionary[AxialTransformer, dict[Hashable, Row]] = WeakKeyDictionary()


def graphs(model: AxialTransformer, choose: Choose | KnownFirst) -> Backend:
    """Return the eager backend, with the kernels of a row as one CUDA graph.

    It is recorded at the first row, and kept with the model for rows of equal shape, dtype and options. A graph reads
    the weights at their address. So it uses new values there; if weights lie elsewhere, it is recorded anew.
    """
    weights = tuple(tensor.data_ptr() for tensor in (*model.parameters(), *model.buffers()))
    kept = _kept.setdefault(model, {})

    def row(context: Tensor, positions: Tensor, predictions: RowPredictions | None) -> Tensor:
        choice = row_choice(choose, positions)
        assert choice is not None
        autocast = torch.is_autocast_enabled("cuda") and torch.get_autocast_dtype("cuda")
        like = context.shape, context.dtype, context.device, choice.noise.shape, choice.noise.dtype
        key = weights, like, choice.sampler, autocast
        kept[key] = kept.pop(key) if key in kept else _recorded_row(model, context, choice, predictions)
        if len(kept) > MAX_KEPT:
            del kept[next(iter(kept))]
        return kept[key](context, choice, predictions)

    return replace(eager(model, choose), row=row)


def _recorded_row(
    model: AxialTransformer, context: Tensor, choice: NoiseChoice, predictions: RowPredictions | None
) -> Row:
    inputs = [tensor.clone() for tensor in _inputs(context, choice, predictions)]
    static = replace(choice, noise=inputs[1], known=inputs[2])
    held = predictions and RowPredictions(inputs[3], inputs[4], inputs[5], inputs[6], predictions.num_values)
    chosen, repeat = record(lambda: walk_row(model, inputs[0], static, held), context.device)

    def row(context: Tensor, choice: NoiseChoice, predictions: RowPredictions | None) -> Tensor:
        for own, new in zip(inputs, _inputs(context, choice, predictions)):
            own.copy_(new)
        repeat()
        if held is not None and predictions is not None:
            predictions.take(held)
        return chosen.clone()

    return row


def _inputs(context: Tensor, choice: NoiseChoice, predictions: RowPredictions | None) -> list[Tensor]:
    assert choice.known is not None
    return [context, choice.noise, choice.known, *(predictions[:-1] if predictions else ())]


def record(work: Callable[[], Tensor], device: torch.device) -> tuple[Tensor, Callable[[], None]]:
    """Return the output of `work`, and a function that computes it again in place, as a CUDA graph."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.device(device):
        stream = torch.cuda.Stream(device)  # the default one is on the device that captured first
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream):  # libraries allocate workspaces before the capture
            work()
        torch.cuda.current_stream(device).wait_stream(stream)
        torch.clear_autocast_cache()  # else it reads copies that autocast frees
        # Other threads may pin memory meanwhile.
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            output = work()
        torch.clear_autocast_cache()  # those copies lie in the graph's memory

    def repeat() -> None:
        with torch.cuda.device(device):
            graph.replay()

    return output, repeat
