"""Decoding by compiled kernels on a CPU: weights packed for `kernels`, examples split over threads."""

import logging
from collections.abc import Callable, Iterable, Iterator
from math import ceil, prod
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from axial_transformers.decoding.backend import Backend
from axial_transformers.decoding.choices import Choose, row_choice
from axial_transformers.kernels import rows as kernels
from axial_transformers.kernels.line_attention import PANEL, Array
from axial_transformers.kernels.threads import mapped
from axial_transformers.layers.attention import AxisAttention
from axial_transformers.layers.blocks import TransformerBlock
from axial_transformers.models.axial_transformer import AxialTransformer
from axial_transformers.models.inner_decoder import InnerAttention
from axial_transformers.models.outer_decoder import OuterDecoder

TOGETHER = 16
"""Examples that a row is decoded of at a time: what they carry stays in a core's own cache."""
ENCODED_TOGETHER = 8
"""Examples that the channel encoder sees at a time, likewise."""
WORTH_A_THREAD = 4
"""Examples: fewer take as long, since every thread reads all weights."""

Embedded = Tensor | float

log = logging.getLogger(__name__)


def compiled(model: AxialTransformer, choose: Choose, batch: int) -> Backend:
    """The backend for `batch` examples: float32, and a choice that is made of tensors."""
    threads = max(1, min(torch.get_num_threads(), batch // WORTH_A_THREAD))
    return Backend(
        context=_context(model, parts(batch, min(ENCODED_TOGETHER, ceil(batch / threads)))),
        outer_decoders=[
            _Outer(outer, parts(batch, ceil(batch / threads))) if outer.blocks else outer
            for outer in model.outer_decoders
            if isinstance(outer, OuterDecoder)
        ],
        row=_row(model, choose, parts(batch, min(TOGETHER, ceil(batch / threads)))),
    )


def parts(batch: int, size: int) -> list[slice]:
    """The batch in parts of `size`."""
    return [slice(start, start + size) for start in range(0, batch, size)]


def _context(model: AxialTransformer, parts: list[slice]) -> Callable[[Tensor, int, Embedded], Tensor]:
    encoder = model.encoder
    blocks = None if encoder is None else _Unmasked(encoder.blocks, model.layout.shape)

    def context(y: Tensor, c: int, conditioning: Embedded) -> Tensor:
        @torch.no_grad()  # every thread has its own
        def of(part: slice) -> Tensor:
            some = conditioning[part] if isinstance(conditioning, Tensor) else conditioning
            if encoder is None or blocks is None:
                return model.position() + some
            return model.position() + blocks(encoder.convolve(y[part], torch.full((len(y[part]),), c), some))

        if c == 0 and not isinstance(conditioning, Tensor):
            return of(slice(1))  # nothing has been seen yet: all examples are alike
        return torch.cat(mapped(of, parts))

    return context


def _row(model: AxialTransformer, choose: Choose, parts: list[slice]) -> Callable[[Tensor, Tensor], Tensor]:
    ends = kernels.Ends(_array(model.embed_value.table), _norm([model], "head.0"), _dense([model], "head.1"))
    kernel, inner = _inner(model.inner_decoder)
    if not kernel.signatures:
        log.info("preparing compiled decoding: from disk, or once on this machine in about 15 seconds")
    top = len(ends.table)

    def row(context: Tensor, sites: Tensor) -> Tensor:
        choice = row_choice(choose, sites)
        assert choice is not None
        x, noise, known = _array(context), _array(choice.noise), _array(choice.known)
        if known.max() >= top:
            raise ValueError(f"known values must be in 0..{top - 1}; found {known.max()}")
        draw = choice.draw
        options = (np.float32(draw.temperature), min(draw.top_k or top, top), np.float32(draw.top_p or 1))

        def decode(part: slice) -> NDArray[np.int64]:
            return kernel(x[part], *inner, ends, kernels.Choice(noise[part], known[part], *options))

        return torch.from_numpy(np.concatenate(mapped(decode, parts)))

    return row


class _Cache(NamedTuple):
    """Keys [masked layers, B, S, N, K, L] and values [masked layers, B, S, N, L, K] of one part of the batch each."""

    keys: list[Array]
    values: list[Array]


class _Outer:
    """`OuterDecoder`, slab by slab."""

    def __init__(self, outer: OuterDecoder, parts: list[slice]):
        self.blocks, self.heads = _blocks(outer.blocks)
        self.parts = parts
        self.lines = np.array([_lines(attention, outer.slab) for attention in _attentions(outer.blocks)])
        self.length, self.sites = outer.length, prod(outer.slab)

    def start(self, batch: int) -> _Cache:
        masked, width = int((self.lines[:, 0] == 0).sum()), self.blocks.attention_norm.gain.shape[1] // self.heads
        sizes = [(masked, len(range(batch)[part]), self.sites, self.heads) for part in self.parts]
        return _Cache(
            [np.zeros((*size, width, self.length), np.float32) for size in sizes],
            [np.zeros((*size, self.length, width), np.float32) for size in sizes],
        )

    def step(self, u: Tensor, i: int, state: _Cache) -> Tensor:
        slabs = _array(u.flatten(1, -2))

        def step(k: int) -> Array:
            caches = state.keys[k], state.values[k]
            return kernels.slab(slabs[self.parts[k]], self.blocks, self.heads, self.lines, i, *caches)

        return torch.from_numpy(np.concatenate(mapped(step, range(len(self.parts))))).view(u.shape)


class _Unmasked:
    """Blocks over every axis of `shape`, none of them masked."""

    def __init__(self, blocks: nn.ModuleList, shape: tuple[int, ...]):
        self.blocks, self.heads = _blocks(blocks)
        self.lines = np.array([_lines(attention, shape) for attention in _attentions(blocks)])

    def __call__(self, h: Tensor) -> Tensor:
        nothing = np.zeros((0,) * 6, np.float32)
        return torch.from_numpy(
            kernels.slab(_array(h.flatten(1, -2)), self.blocks, self.heads, self.lines, 0, nothing, nothing)
        ).view(h.shape)


def _lines(attention: AxisAttention, slab: tuple[int, ...]) -> tuple[int, int]:
    """Length and stride of the lines that are attended along inside a flattened slab; zeros if masked, across slabs."""
    if attention.masked:
        return 0, 0
    axis = len(slab) + attention.axis + 1
    return slab[axis], prod(slab[axis + 1 :])


def _inner(decoder: nn.Module) -> tuple[Any, tuple[Any, ...]]:
    """The kernel of an inner decoder and its packed weights."""
    if isinstance(decoder, InnerAttention):
        return kernels.attention_row, _blocks(decoder.blocks)
    of_input, of_hidden = (_map([decoder], f"lstm.weight_{of}_l0", f"lstm.bias_{of}_l0") for of in ("ih", "hh"))
    return kernels.lstm_row, (kernels.Lstm(_norm([decoder], "norm"), of_input, of_hidden),)


def _blocks(blocks: nn.ModuleList) -> tuple[kernels.Blocks, int]:
    """Packed weights and the number of heads."""
    packed = kernels.Blocks(
        attention_norm=_norm(blocks, "attention.norm"),
        qkv=_dense(blocks, "attention.attention.qkv"),
        out=_dense(blocks, "attention.attention.out"),
        feedforward_norm=_norm(blocks, "feedforward.norm"),
        expand=_dense(blocks, "feedforward.expand"),
        contract=_dense(blocks, "feedforward.contract"),
    )
    return packed, next(_attentions(blocks)).heads


def _attentions(blocks: Iterable[nn.Module]) -> Iterator[AxisAttention]:
    for block in blocks:
        assert isinstance(block, TransformerBlock)
        yield block.attention.attention


def _dense(modules: Iterable[nn.Module], name: str) -> kernels.Map:
    return _map(modules, f"{name}.weight", f"{name}.bias")


def _norm(modules: Iterable[nn.Module], name: str) -> kernels.Norm:
    return kernels.Norm(_stack(modules, f"{name}.weight"), _stack(modules, f"{name}.bias"))


def _map(modules: Iterable[nn.Module], weight: str, bias: str) -> kernels.Map:
    matrices = _stack(modules, weight)  # [layers, out, in]
    layers, outputs, inputs = matrices.shape
    panels = ceil(outputs / PANEL)
    padded = np.zeros((layers, panels * PANEL, inputs), np.float32)
    padded[:, :outputs] = matrices
    panels_first = padded.reshape(layers, panels, PANEL, inputs).swapaxes(2, 3)
    return kernels.Map(np.ascontiguousarray(panels_first), _stack(modules, bias))


def _stack(modules: Iterable[nn.Module], parameter: str) -> Array:
    return np.stack([_array(module.get_parameter(parameter)) for module in modules])


def _array(tensor: Tensor) -> NDArray[Any]:
    return tensor.detach().contiguous().numpy()
