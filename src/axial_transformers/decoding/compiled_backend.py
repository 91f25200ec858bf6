"""Decoding by compiled kernels on a CPU: weights packed for `kernels.rows`, the batch split over threads."""

from collections.abc import Callable, Iterable, Iterator
from math import ceil, prod
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from axial_transformers.decoding.backend import Backend
from axial_transformers.decoding.choices import Choose, row_choice
from axial_transformers.kernels import rows
from axial_transformers.kernels.llvm import Array
from axial_transformers.kernels.threads import parallel_map
from axial_transformers.kernels.transformer_blocks import Blocks, Norm, PackedLinear, packed
from axial_transformers.layers.attention import AxisAttention
from axial_transformers.layers.blocks import TransformerBlock
from axial_transformers.models.axial_transformer import AxialTransformer
from axial_transformers.models.inner_decoder import InnerAttention
from axial_transformers.models.outer_decoder import OuterDecoder

ROW_BATCH = 16
"""Examples of a row's kernel: their activations stay in a core's own cache."""
EXAMPLES_PER_THREAD = 4
"""The least number that is worth a thread: each reads all weights, so that fewer examples take as long."""

Embedded = Tensor | float


def compiled(model: AxialTransformer, choose: Choose, batch: int) -> Backend:
    """The backend for `batch` examples; the model is float32, and `choose` consists of tensors (`row_choice`)."""
    threads = max(1, min(torch.get_num_threads(), batch // EXAMPLES_PER_THREAD))
    return Backend(
        embed_conditioning=model.embed_conditioning,
        context=_context(model),
        embed_value=model.embed_value,
        outer_decoders=[
            _Outer(outer, parts(batch, ceil(batch / threads))) if outer.blocks else outer
            for outer in model.outer_decoders
            if isinstance(outer, OuterDecoder)
        ],
        row=_row(model, choose, parts(batch, min(ROW_BATCH, ceil(batch / threads)))),
    )


def parts(batch: int, size: int) -> list[slice]:
    """The batch in parts of `size`."""
    return [slice(start, start + size) for start in range(0, batch, size)]


def _context(model: AxialTransformer) -> Callable[[Tensor, int, Embedded], Tensor]:
    def context(y: Tensor, c: int, conditioning: Embedded) -> Tensor:
        # where it depends on no data yet, all examples are alike
        some = y[:1] if c == 0 and not isinstance(conditioning, Tensor) else y
        return model.context(some, torch.full((len(some),), c), conditioning).expand(*y.shape[:-1], -1)

    return context


def _row(model: AxialTransformer, choose: Choose, parts: list[slice]) -> Callable[[Tensor, Tensor], Tensor]:
    output = rows.OutputWeights(_norm([model], "head.0"), _linear([model], "head.1"), _array(model.embed_value.table))
    kernel, inner = _inner(model.inner_decoder)
    num_values = len(output.table)

    def row(context: Tensor, sites: Tensor) -> Tensor:
        choice = row_choice(choose, sites)
        assert choice is not None
        x, noise, known = _array(context), _array(choice.noise), _array(choice.known)
        if known.max() >= num_values:
            raise ValueError(f"known values must be in 0..{num_values - 1}; found {known.max()}")
        draw = choice.draw
        top_k = min(draw.top_k or num_values, num_values)
        options = np.float32(draw.temperature), top_k, np.float32(draw.top_p or 1)

        def decode(part: slice) -> NDArray[np.int64]:
            return kernel(x[part], *inner, output, rows.Choice(noise[part], known[part], *options))

        return torch.from_numpy(np.concatenate(parallel_map(decode, parts)))

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
            return rows.slab(slabs[self.parts[k]], self.blocks, self.heads, self.lines, i, *caches)

        return torch.from_numpy(np.concatenate(parallel_map(step, range(len(self.parts))))).view(u.shape)


def _lines(attention: AxisAttention, slab: tuple[int, ...]) -> tuple[int, int]:
    """Length and stride of the lines in a flattened slab that a layer attends along; zeros if masked, across slabs."""
    if attention.masked:
        return 0, 0
    axis = len(slab) + attention.axis + 1
    return slab[axis], prod(slab[axis + 1 :])


def _inner(decoder: nn.Module) -> tuple[Any, tuple[Any, ...]]:
    """The kernel of an inner decoder and its packed weights."""
    if isinstance(decoder, InnerAttention):
        return rows.attention_row, _blocks(decoder.blocks)
    of_input, of_hidden = (_packed([decoder], f"lstm.weight_{of}_l0", f"lstm.bias_{of}_l0") for of in ("ih", "hh"))
    return rows.lstm_row, (rows.Lstm(_norm([decoder], "norm"), of_input, of_hidden),)


def _blocks(blocks: nn.ModuleList) -> tuple[Blocks, int]:
    """Packed weights and the number of heads."""
    together = Blocks(
        attention_norm=_norm(blocks, "attention.norm"),
        qkv=_linear(blocks, "attention.attention.qkv"),
        out=_linear(blocks, "attention.attention.out"),
        feedforward_norm=_norm(blocks, "feedforward.norm"),
        expand=_linear(blocks, "feedforward.expand"),
        contract=_linear(blocks, "feedforward.contract"),
    )
    return together, next(_attentions(blocks)).heads


def _attentions(blocks: Iterable[nn.Module]) -> Iterator[AxisAttention]:
    for block in blocks:
        assert isinstance(block, TransformerBlock)
        yield block.attention.attention


def _linear(modules: Iterable[nn.Module], name: str) -> PackedLinear:
    return _packed(modules, f"{name}.weight", f"{name}.bias")


def _norm(modules: Iterable[nn.Module], name: str) -> Norm:
    return Norm(_stack(modules, f"{name}.weight"), _stack(modules, f"{name}.bias"))


def _packed(modules: Iterable[nn.Module], weight: str, bias: str) -> PackedLinear:
    return packed(_stack(modules, weight), _stack(modules, bias))


def _stack(modules: Iterable[nn.Module], parameter: str) -> Array:
    return np.stack([_array(module.get_parameter(parameter)) for module in modules])


def _array(tensor: Tensor) -> NDArray[Any]:
    return tensor.detach().contiguous().numpy()
