"""The forms of what the loop calls: eager, compiled for the CPU, and rows as CUDA graphs."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import util
from typing import Any, Protocol

import torch
from torch import Tensor

from axial_transformers.decoding.choices import Choose, RowChoice, noise_of, row_choice
from axial_transformers.layers.attention import AxisAttention
from axial_transformers.models.axial_transformer import AxialTransformer
from axial_transformers.models.inner_decoder import InnerAttention, InnerLSTM

PAYS_FROM = 1.0
"""Seconds that eager decoding must be expected to take: once prepared on a machine, compiled decoding loads in one."""


class Steps(Protocol):
    """An outer decoder, slab by slab: `OuterDecoder` is one."""

    def start(self, batch: int) -> Any:
        """The state before the first slab."""
        ...

    def step(self, u: Tensor, i: int, state: Any) -> Tensor:
        """Slab `i` of h + context [B, *S, D] -> the upper context of the next [B, *S, D]."""
        ...


@dataclass(frozen=True, kw_only=True)
class Form:
    """What the loop calls."""

    context: Callable[[Tensor, int, Tensor | float], Tensor]
    """Data in the model's coordinates, channel, what is given -> context [B or 1, *A', D] of the channel."""
    outer_decoders: Sequence[Steps]
    row: Callable[[Tensor, Tensor], Tensor]
    """Context [B, L, D] and sites [L, d + 1] of a row -> its values [B, L]."""


def best_form(model: AxialTransformer, choose: Choose, batch: int, compile: bool | None) -> Form:
    """The form for `batch` examples.

    Args:
        compile: False: eager. True: compiled for the CPU (float32, numba), or CUDA graphs of rows. None: compiled for
            the CPU where that is possible and either prepared already or worth preparing; eager on CUDA.

    Raises:
        ValueError: `compile` is True and the model or `choose` cannot be compiled.
    """
    device = model.embed_value.table.device
    obstacle = _obstacle(model, choose, device)
    if compile and obstacle:
        raise ValueError(f"compile=True, but {obstacle}")
    if compile is False or obstacle or not batch:
        return eager(model, choose)
    if device.type == "cuda":  # graphs have not been measured yet: they are for those who ask
        return graphs(model, choose) if compile else eager(model, choose)
    if not (compile or _pays(model, batch)):
        return eager(model, choose)
    from axial_transformers.decoding.compiled import compiled  # a second or more, for those who need it

    return compiled(model, choose, batch)


def eager(model: AxialTransformer, choose: Choose) -> Form:
    """The model's own parts, site by site: for any device, dtype and choice; the oracle of the other forms."""

    def context(y: Tensor, c: int, given: Tensor | float) -> Tensor:
        return model.context(y, torch.full((len(y),), c, device=y.device), given)

    def row(context: Tensor, sites: Tensor) -> Tensor:
        places = [tuple(site) for site in sites.tolist()]
        return _walk(model, context, lambda logits, i: choose(logits, places[i]))

    return Form(context=context, outer_decoders=list(model.outer_decoders), row=row)


def graphs(model: AxialTransformer, choose: Choose) -> Form:
    """Eager, but all kernels of a row are launched at once: a CUDA graph, captured at the first row."""
    recorded: list[Callable[[Tensor, RowChoice], Tensor]] = []

    def row(context: Tensor, sites: Tensor) -> Tensor:
        choice = row_choice(choose, sites)
        assert choice is not None
        if not recorded:
            recorded.append(_record(model, context, choice))
        return recorded[0](context, choice)

    return replace(eager(model, choose), row=row)


def _record(model: AxialTransformer, context: Tensor, choice: RowChoice) -> Callable[[Tensor, RowChoice], Tensor]:
    """A function that replays what a row computes; shapes and options stay those of this first one."""
    inputs = context.clone(), choice.noise.clone(), choice.known.clone()
    static = replace(choice, noise=inputs[1], known=inputs[2])
    apart = torch.cuda.Stream(context.device)
    apart.wait_stream(torch.cuda.current_stream(context.device))
    with torch.cuda.stream(apart):  # libraries make their workspaces before the capture, not in it
        _walk(model, inputs[0], static)
    torch.cuda.current_stream(context.device).wait_stream(apart)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.device(context.device), torch.cuda.graph(graph):
        values = _walk(model, inputs[0], static)

    def replay(context: Tensor, choice: RowChoice) -> Tensor:
        for held, new in zip(inputs, (context, choice.noise, choice.known)):
            held.copy_(new)
        graph.replay()
        return values.clone()

    return replay


def _walk(model: AxialTransformer, context: Tensor, choose: Callable[[Tensor, int], Tensor]) -> Tensor:
    state, previous, values = model.inner_decoder.start(len(context)), torch.zeros_like(context[:, 0]), []
    for i in range(context.shape[1]):
        logits = model.head(model.inner_decoder.step(previous + context[:, i], i, state))
        values.append(choose(logits, i))
        previous = model.embed_value(values[-1])
    return torch.stack(values, dim=1)


def _obstacle(model: AxialTransformer, choose: Choose, device: torch.device) -> str | None:
    """Why only the eager form will do."""
    noise = noise_of(choose)
    if noise is None:
        return "the choice of values is a Python function"
    if noise.device != device:
        return f"the noise is on {noise.device}, the model on {device}"
    if device.type == "cuda":
        return None
    if device.type != "cpu":
        return f"on {device.type} nothing is compiled"
    dtypes = {parameter.dtype for parameter in model.parameters()} | {noise.dtype}
    if dtypes != {torch.float32}:
        return f"model and noise must be float32 on CPU, not {' and '.join(map(str, dtypes))}"
    inner = model.inner_decoder
    parts = (
        {type(block.attention.attention) for block in inner.blocks}
        if isinstance(inner, InnerAttention)
        else {type(inner)}
    )
    if not parts <= {AxisAttention, InnerLSTM}:
        return f"nothing is compiled for {' and '.join(part.__name__ for part in parts)}"
    if util.find_spec("numba") is None:
        return "numba is not installed"
    return None


def _pays(model: AxialTransformer, batch: int) -> bool:
    """Whether compiled decoding is ready, or eager decoding would take seconds (as measured at width 128)."""
    ready = f"{__package__}.compiled" in sys.modules
    return ready or len(model.order) * (250e-6 + 25e-6 * batch) > PAYS_FROM
