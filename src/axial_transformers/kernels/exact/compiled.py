"""The compiled counterpart of `twin`: packs weights for the kernels and calls them."""

from collections.abc import Sequence
from math import ceil

import numpy as np

from axial_transformers.kernels.exact import coding, steps
from axial_transformers.kernels.exact.definition import (
    LANES,
    MASKED,
    Array,
    Block,
    Coding,
    Line,
    Linear,
    Lstm,
    Norm,
    Output,
)
from axial_transformers.kernels.exact.float_environment import ieee_arithmetic
from axial_transformers.kernels.exact.layers import Cache, Norms, PackedBlocks, PackedLinear, PackedLstm
from axial_transformers.kernels.exact.tiles import PANEL

__all__ = ["Dense", "Rows", "Slabs", "ieee_arithmetic", "write_stream"]

ROWS_TOGETHER = 192
"""Rows of a slab that go through its blocks at a time, at least one example: they stay in a core's cache."""


class Dense:
    """See `twin.Dense`."""

    def __init__(self, layer: Linear):
        self._packed, self._outputs = _packed([layer]), len(layer.bias)

    def __call__(self, x: Array) -> Array:
        """See `twin.Dense`."""
        return steps.dense(np.ascontiguousarray(x), self._packed, self._outputs)


class Slabs:
    """See `twin.Slabs`."""

    def __init__(self, blocks: Sequence[Block], heads: int, lines: Sequence[Line]):
        self._blocks, self._heads = packed_blocks(blocks), heads
        self._lines = np.array(lines, np.int64).reshape(-1, 2)
        self._width = len(blocks[0].qkv.weight) // heads
        self._masked = lines.count(MASKED)

    def start(self, rows: int, length: int) -> Cache:
        """See `twin.Slabs.start`."""
        sizes = self._masked, rows, self._heads
        return Cache(
            np.zeros((*sizes, self._width, _padded(length, LANES)), np.float32),
            np.zeros((*sizes, length, _padded(self._width, LANES)), np.float32),
        )

    def step(self, u: Array, i: int, cache: Cache, sites: int) -> Array:
        """See `twin.Slabs.step`."""
        part = max(1, ROWS_TOGETHER // sites) * sites
        return steps.slab(np.ascontiguousarray(u), self._blocks, self._heads, self._lines, i, cache, part)


class Rows:
    """See `twin.Rows`."""

    def __init__(self, inner: Sequence[Block] | Lstm, heads: int, output: Output):
        unused = Linear(np.zeros((0, 0), np.float32), np.zeros(0, np.float32))
        none = Norm(unused.bias, unused.bias)
        lstm = inner if isinstance(inner, Lstm) else Lstm(none, unused, unused)
        blocks = [Block(none, unused, unused, none, unused, unused)] if isinstance(inner, Lstm) else inner
        packed = PackedLstm(_norms([lstm.norm]), _packed([lstm.of_input]), _packed([lstm.of_hidden]))
        self._inner = steps.Inner(packed_blocks(blocks), 0 if isinstance(inner, Lstm) else heads, packed)
        table = np.ascontiguousarray(output.table)
        self._output = steps.PackedOutput(_norms([output.norm]), _packed([output.head]), table)

    def __call__(self, context: Array, coding: Coding) -> None:
        """See `twin.Rows`."""
        steps.code_row(np.ascontiguousarray(context), self._inner, self._output, coding)


write_stream = coding.write_stream


def packed_blocks(blocks: Sequence[Block]) -> PackedBlocks:
    """The blocks' weights as the kernels take them."""
    columns = dict(zip(Block._fields, zip(*blocks)))
    return PackedBlocks(
        attention_norm=_norms(columns["attention_norm"]),
        qkv=_packed(columns["qkv"]),
        out=_packed(columns["out"]),
        feedforward_norm=_norms(columns["feedforward_norm"]),
        expand=_packed(columns["expand"]),
        contract=_packed(columns["contract"]),
    )


def _packed(layers: Sequence[Linear]) -> PackedLinear:
    inputs, outputs = layers[0].weight.shape
    panels = ceil(outputs / PANEL)
    weights = np.zeros((len(layers), inputs, panels * PANEL), np.float32)
    biases = np.zeros((len(layers), panels * PANEL), np.float32)
    for i, layer in enumerate(layers):
        weights[i, :, :outputs], biases[i, :outputs] = layer
    in_panels = weights.reshape(len(layers), inputs, panels, PANEL).swapaxes(1, 2)
    return PackedLinear(np.ascontiguousarray(in_panels), biases)


def _norms(norms: Sequence[Norm]) -> Norms:
    padded = np.zeros((2, len(norms), _padded(len(norms[0].gain), LANES)), np.float32)
    for i, norm in enumerate(norms):
        padded[:, i, : len(norm.gain)] = norm
    return Norms(padded[0], padded[1])


def _padded(size: int, multiple: int) -> int:
    return ceil(size / multiple) * multiple
