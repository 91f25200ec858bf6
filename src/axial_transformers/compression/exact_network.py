"""The network of an archive: a model's weights, walked slab by slab in an arithmetic with equal bits everywhere.

The walk is that of `decoding.decode`: what it computes for an example depends on nothing but the example and the
weights. Nothing between the values of sites and the frequencies of the next is computed by torch.
"""

from collections.abc import Callable, Iterable, Sequence
from importlib import import_module, util
from math import prod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from axial_transformers.kernels.exact.definition import MASKED, Array, Block, Coding, Line, Linear, Lstm, Norm, Output
from axial_transformers.layers.attention import AxisAttention
from axial_transformers.layers.blocks import TransformerBlock
from axial_transformers.layers.embeddings import Positions
from axial_transformers.models import AxialTransformer, Conditioning
from axial_transformers.models.channel_encoder import ChannelEncoder
from axial_transformers.models.inner_decoder import InnerLSTM
from axial_transformers.ops.shift import shifted_copies

Values = NDArray[np.int64]
Row = Callable[[Coding], None]
"""Computes the logits of a row of sites, and codes values by them."""
Code = Callable[[Row, int], Values]
"""Codes the values [B, L] of a row of sites, given what computes their logits and the number of the row."""

ENCODED_TOGETHER = 1 << 14
"""Sites that go through the channel encoder at a time, at least one example."""


def fastest_arithmetic() -> Any:
    """The module of compiled kernels, or their twin where numba is missing: they give the same bits."""
    name = "compiled" if util.find_spec("numba") else "twin"
    return import_module(f"axial_transformers.kernels.exact.{name}")


class ExactNetwork:
    """The network of a model, in the arithmetic of `kernels.exact`.

    Args:
        model: any device and dtype; its weights are rounded to float32.
        arithmetic: `kernels.exact.compiled` or `kernels.exact.twin`; None: the faster one that there is.

    Raises:
        ValueError: a model with attention that has no exact kernel.
    """

    def __init__(self, model: AxialTransformer, arithmetic: Any = None):
        self.model = model
        self.arithmetic = arithmetic or fastest_arithmetic()
        self.shape = model.layout.shape
        self._tables = Output(_norm(model.head[0]), _linear(model.head[1]), _array(model.embed_value.table))
        inner = model.inner_decoder
        heads = 0 if isinstance(inner, InnerLSTM) else model.config.heads
        weights = _lstm(inner) if isinstance(inner, InnerLSTM) else _blocks(inner.blocks)
        with self.arithmetic.ieee_arithmetic():
            self._positions = positions(model.position)
        self._rows = self.arithmetic.Rows(weights, heads, self._tables)
        outer_decoders: Iterable[Any] = model.outer_decoders
        self._outer = [self._slabs(outer.blocks, self.shape[level + 1 :]) for level, outer in enumerate(outer_decoders)]
        self._encoder = None if model.encoder is None else _Encoder(self, model.encoder)

    def walk(self, x: Tensor, conditioning: Conditioning, code: Code) -> Values:
        """Values [B, *A', C'] in model coordinates, all but the known channels' those of `code`.

        Args:
            x: [B, *A, C] integers, of which only known channels matter.
            code: called for each row of sites in generation order.

        Raises:
            ValueError: label or cond that the model does not take.
        """
        with self.arithmetic.ieee_arithmetic():
            values = self.model.layout.to_model(x).long().cpu().numpy().copy()
            embedded = self._embed(len(x), conditioning)
            walk = _Walk(self, code)
            for c in self.model.slices:
                context = np.broadcast_to(self._context(values, c, embedded), (*values.shape[:-1], self.dim))
                values[..., c] = walk.slab(0, context)
            return values

    @property
    def dim(self) -> int:
        """Width D."""
        return self._tables.table.shape[1]

    @property
    def num_values(self) -> int:
        """Number of values V of a site."""
        return len(self._tables.table)

    def embed_value(self, values: Values) -> Array:
        """[..] -> [.., D]."""
        return self._tables.table[values]

    def _embed(self, batch: int, conditioning: Conditioning) -> Array | None:
        """The label's embedding plus external conditioning, [B, *A' or 1s, D]; None where there is neither."""
        self.model.embed_conditioning(batch, conditioning)  # checks both
        embedded = None
        if self.model.labels is not None:
            table, classes = _array(self.model.labels.embed.table), self.model.labels.classes
            label = conditioning.label
            chosen = np.full(batch, classes) if label is None else label.long().cpu().numpy()
            embedded = table[chosen].reshape(batch, *(1,) * len(self.shape), self.dim)
        if conditioning.cond is not None:
            cond = _array(self.model.layout.expand_cond(conditioning.cond))
            embedded = cond if embedded is None else embedded + cond
        return embedded

    def _context(self, values: Values, c: int, embedded: Array | None) -> Array:
        """position + e, for channel c: broadcasts to [B, *A', D]."""
        if self._encoder is None:
            return self._positions if embedded is None else self._positions + embedded
        same = c == 0 and embedded is None  # no example's values matter
        return self._positions + self._encoder(values[: 1 if same else None], c, embedded)

    def _slabs(self, blocks: nn.ModuleList, slab: Sequence[int]) -> Any:
        """The blocks over a slab of that shape; None if there are none."""
        if not len(blocks):
            return None
        lines = [_line(attention, slab) for attention in map(_attention, blocks)]
        return self.arithmetic.Slabs(_blocks(blocks), self.model.config.heads, lines)


class _Walk:
    """The recursion over axes of `decoding_loop`, on arrays."""

    def __init__(self, network: ExactNetwork, code: Code):
        self._network, self._code, self._row = network, code, 0

    def slab(self, level: int, context: Array) -> Values:
        """Values [B, *A[level:]] of the slab whose context [B, *A[level:], D] includes all outer axes."""
        network = self._network
        if level == len(network._outer):
            self._row += 1
            return self._code(lambda coding: network._rows(context, coding), self._row - 1)
        blocks, batch, length = network._outer[level], len(context), context.shape[1]
        sites = prod(context.shape[2:-1])
        state = blocks and blocks.start(batch * sites, length)
        upper, slabs = np.zeros_like(context[:, 0]), []
        for i in range(length):
            here = context[:, i]
            slabs.append(self.slab(level + 1, here + upper))
            if blocks and i + 1 < length:
                u = network.embed_value(slabs[-1]) + here
                upper = blocks.step(u.reshape(-1, network.dim), i, state, sites).reshape(u.shape)
        return np.stack(slabs, axis=1)


class _Encoder:
    """`ChannelEncoder` of one channel at a time."""

    def __init__(self, network: ExactNetwork, encoder: ChannelEncoder):
        self._shape, self._channels, self._planes = network.shape, encoder.channels, encoder.planes
        self._divisor = np.float32(encoder.divisor)
        self._convolution = network.arithmetic.Dense(_linear(encoder.convolution))
        self._blocks = network._slabs(encoder.blocks, network.shape)
        with network.arithmetic.ieee_arithmetic():
            self._positions = positions(encoder.position)

    def __call__(self, values: Values, c: int, embedded: Array | None) -> Array:
        """Values [B, *A', C'], channel c -> e [B, *A', D]."""
        size = max(1, ENCODED_TOGETHER // prod(self._shape))
        parts = [slice(first, first + size) for first in range(0, len(values), size)]
        return np.concatenate(
            [self._encode(values[part], c, None if embedded is None else embedded[part]) for part in parts]
        )

    def _encode(self, values: Values, c: int, embedded: Array | None) -> Array:
        known = values.astype(np.float32) / self._divisor
        known[..., c:] = 0
        if self._planes == "one_hot":
            planes = np.zeros(values.shape, np.float32)
            planes[..., c] = 1
        else:
            planes = np.full((*values.shape[:-1], 1), np.float32(c) / np.float32(self._channels))
        copies = shifted_copies(torch.from_numpy(np.concatenate([known, planes], axis=-1))).numpy()
        h = self._convolution(copies.reshape(-1, copies.shape[-1])).reshape(*values.shape[:-1], -1)
        h = h + self._positions
        if embedded is not None:
            h = h + embedded
        rows, sites = h.reshape(-1, h.shape[-1]), prod(self._shape)
        return self._blocks.step(rows, 0, self._blocks.start(len(rows), 1), sites).reshape(h.shape)


def positions(module: Positions) -> Array:
    """[*A', D]: a row of each axis' table, added from the outermost axis inward."""
    total, *tables = (_array(table) for table in module.tables)
    for table in tables:
        total = total[..., None, :] + table
    return total


def _attention(block: nn.Module) -> AxisAttention:
    assert isinstance(block, TransformerBlock)
    attention = block.attention.attention
    if type(attention) is not AxisAttention:
        raise ValueError(f"{type(attention).__name__} has no exact arithmetic: use version=1")
    return attention


def _line(attention: AxisAttention, slab: Sequence[int]) -> Line:
    """The line in a flattened slab that a layer attends along."""
    if attention.masked:
        return MASKED
    axis = len(slab) + attention.axis + 1
    return Line(slab[axis], prod(slab[axis + 1 :]))


def _blocks(blocks: nn.ModuleList) -> list[Block]:
    weights = []
    for block in blocks:
        assert isinstance(block, TransformerBlock)
        attention, feedforward = _attention(block), block.feedforward
        weights.append(
            Block(
                attention_norm=_norm(block.attention.norm),
                qkv=_linear(attention.qkv),
                out=_linear(attention.out),
                feedforward_norm=_norm(feedforward.norm),
                expand=_linear(feedforward.expand),
                contract=_linear(feedforward.contract),
            )
        )
    return weights


def _lstm(inner: InnerLSTM) -> Lstm:
    of_input, of_hidden, input_bias, hidden_bias = map(_array, inner.lstm.all_weights[0])
    return Lstm(_norm(inner.norm), Linear(of_input.T, input_bias), Linear(of_hidden.T, hidden_bias))


def _linear(layer: nn.Module) -> Linear:
    return Linear(_array(layer.get_parameter("weight")).T, _array(layer.get_parameter("bias")))


def _norm(norm: nn.Module) -> Norm:
    return Norm(_array(norm.get_parameter("weight")), _array(norm.get_parameter("bias")))


def _array(tensor: Tensor) -> Array:
    return tensor.detach().to("cpu", torch.float32).contiguous().numpy()
