"""Work on a GPU as one CUDA graph, which starts all its kernels at once."""

from collections.abc import Callable
from functools import cache
from threading import Lock, get_ident

import torch
from torch import Tensor


class Graph:
    """Work that is done and recorded; a call copies its inputs to where the graph reads them, and replays it."""

    def __init__(self, work: Callable[..., Tensor], *inputs: Tensor):
        self.inputs = [tensor.clone() for tensor in inputs]
        self.output, self.repeat = record(lambda: work(*self.inputs), inputs[0].device)

    def __call__(self, *inputs: Tensor) -> Tensor:
        """Return the output, which the next call overwrites."""
        for own, new in zip(self.inputs, inputs):
            own.copy_(new)
        self.repeat()
        return self.output


_RECORDING = Lock()


@cache
def _stream(device: torch.device, thread: int) -> torch.cuda.Stream:
    """Return the stream where a thread records: cuBLAS keeps memory for each stream that it has seen."""
    return torch.cuda.Stream(device)  # torch's default one is on the device that captured first


def record(work: Callable[[], Tensor], device: torch.device) -> tuple[Tensor, Callable[[], None]]:
    """Do `work`; return its output, and a function that does it again, as a CUDA graph, with its output in place.

    CUDA records one graph at a time. Replays are in the order of the current stream.
    """
    graph = torch.cuda.CUDAGraph()
    with _RECORDING, torch.cuda.device(device):
        stream = _stream(device, get_ident())
        current = torch.cuda.current_stream(device)
        stream.wait_stream(current)
        try:
            with torch.cuda.stream(stream):  # also ends it where the capture fails
                first = work()  # libraries allocate workspaces before the capture
                torch.clear_autocast_cache()  # else the graph reads copies that autocast frees
                # Other threads may pin memory meanwhile.
                with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
                    output = work()
                output.copy_(first)
        finally:
            torch.clear_autocast_cache()  # those copies lie in the graph's memory
        current.wait_stream(stream)

    def repeat() -> None:
        with torch.cuda.device(device):
            graph.replay()

    return output, repeat
