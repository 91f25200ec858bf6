"""Transformer blocks and LSTM steps on rows of numbers, compiled: the order of operations is that of `twin`.

x is [rows, D] inside larger arrays: rows are made a multiple of ROWS, widths a multiple of PANEL.
"""

from typing import NamedTuple

import numpy as np

from axial_transformers.kernels.compilation import exact_part
from axial_transformers.kernels.exact.definition import Array
from axial_transformers.kernels.exact.product_tiles import PANEL, ROWS, multiply, multiply_add
from axial_transformers.kernels.exact.row_functions import (
    copy,
    inverse_root,
    lstm_cell,
    normalise,
    not_inlined,
    quick_gelu,
    scores,
    softmax_numerators,
    weighted_values,
)
from axial_transformers.kernels.llvm import Integers

BLOCK = 48
"""Rows that a panel of weights is multiplied with while it is in a core's first cache."""


class Norms(NamedTuple):
    """A layer norm of each layer: [layers, D padded with zeros]."""

    gain: Array
    bias: Array


class PackedLinear(NamedTuple):
    """A linear layer of each block, its outputs padded with zeros: [layers, panels, in, PANEL], [layers, outputs]."""

    panels: Array
    bias: Array


class PackedBlocks(NamedTuple):
    """Transformer blocks."""

    attention_norm: Norms
    qkv: PackedLinear
    out: PackedLinear
    feedforward_norm: Norms
    expand: PackedLinear
    contract: PackedLinear


class PackedLstm(NamedTuple):
    """An LSTM layer."""

    norm: Norms
    of_input: PackedLinear
    of_hidden: PackedLinear


class Cache(NamedTuple):
    """Keys and values of the places that queries attend to, flat: one line after the other."""

    keys: Array
    """A line is [K, apart]: a place is a column."""
    values: Array
    """A line is [length, value_width]."""
    rows: int
    """Rows of a masked layer; each has a line for every head."""
    width: int
    """K, of a head."""
    apart: int
    length: int
    value_width: int


class Scratch(NamedTuple):
    """Memory for the results within a block, for some rows."""

    normed: Array
    qkv: Array
    attended: Array
    hidden: Array
    weights: Array
    """Of one query."""
    line: Cache
    """Of one line within the rows, and one head."""


@exact_part
def transform(
    x: Array, rows: int, blocks: PackedBlocks, heads: int, lines: Integers, i: int, cache: Cache, first: int,
    scratch: Scratch,
) -> None:  # fmt: skip
    """Transformer blocks on x [rows, D], in place.

    Args:
        lines: [layers, 2], length and stride of the lines that a layer attends along; length 0: masked.
        i: number of the slab; masked layers attend to the same row of the slabs 0..i.
        first: the cache's row that belongs to row 0.
    """
    not_inlined()
    masked, of_x = np.int64(0), blocks.qkv.panels.shape[2]
    for layer in range(len(lines)):
        length, stride = lines[layer]
        normalise_rows(x, rows, blocks.attention_norm, layer, of_x, scratch.normed)
        linear(scratch.normed, rows, blocks.qkv, layer, scratch.qkv)
        if length == 0:
            attend_step(rows, heads, i, cache, masked, first, scratch)
            masked += 1
        else:
            attend_lines(rows, heads, length, stride, scratch)
        add_linear(scratch.attended, rows, blocks.out, layer, x)
        normalise_rows(x, rows, blocks.feedforward_norm, layer, of_x, scratch.normed)
        linear(scratch.normed, rows, blocks.expand, layer, scratch.hidden)
        for row in range(rows):
            quick_gelu(scratch.hidden, row * scratch.hidden.shape[1], blocks.contract.panels.shape[2])
        add_linear(scratch.hidden, rows, blocks.contract, layer, x)


@exact_part
def attend_step(rows: int, heads: int, i: int, cache: Cache, masked: int, first: int, scratch: Scratch) -> None:
    """Adds keys and values of slab i to the cache of a masked layer; attention of its queries to slabs 0..i."""
    not_inlined()
    for row in range(rows):
        for head in range(heads):
            line = (masked * cache.rows + first + row) * heads + head
            remember(scratch, row, heads, head, cache, line, i)
            attend(scratch, row, head, cache, line, i + 1)


@exact_part
def attend_lines(rows: int, heads: int, length: int, stride: int, scratch: Scratch) -> None:
    """Unmasked attention along the lines within rows: places `stride` apart, `length` in a line."""
    not_inlined()
    line = np.int64(0)
    for start in range(rows):
        if start // stride % length:
            continue  # not the first place of its line
        for head in range(heads):
            for i in range(length):
                remember(scratch, start + i * stride, heads, head, scratch.line, line, i)
            for i in range(length):
                attend(scratch, start + i * stride, head, scratch.line, line, length)


@exact_part
def remember(scratch: Scratch, row: int, heads: int, head: int, cache: Cache, line: int, i: int) -> None:
    """Makes key and value of a row and a head those of place i of a line."""
    dim, at = heads * cache.width, row * scratch.qkv.shape[1] + head * cache.width
    copy(scratch.qkv, at + dim, cache.width, cache.keys, line * cache.width * cache.apart + i, cache.apart)
    value_at = (line * cache.length + i) * cache.value_width
    copy(scratch.qkv, at + 2 * dim, cache.width, cache.values, value_at, np.int64(1))


@exact_part
def attend(scratch: Scratch, row: int, head: int, cache: Cache, line: int, count: int) -> None:
    """softmax(q . keys / sqrt(K)) values of a row and a head over the first `count` places of a line."""
    not_inlined()
    width = cache.width
    q_at, keys_at = row * scratch.qkv.shape[1] + head * width, line * width * cache.apart
    scores(scratch.qkv, q_at, width, cache.keys, keys_at, cache.apart, count, scratch.weights)
    total = softmax_numerators(scratch.weights, count, inverse_root(width))
    values_at, out_at = line * cache.length * cache.value_width, row * scratch.attended.shape[1] + head * width
    weighted_values(scratch.weights, count, total, cache.values, values_at, cache.value_width, scratch.attended, out_at)


@exact_part
def normalise_rows(x: Array, rows: int, norms: Norms, layer: int, dim: int, out: Array) -> None:
    """LayerNorm of each row."""
    not_inlined()
    for row in range(rows):
        of_norm = layer * norms.gain.shape[1]
        normalise(x, row * x.shape[1], dim, norms.gain, norms.bias, of_norm, out, row * out.shape[1])


@exact_part
def linear(x: Array, rows: int, weights: PackedLinear, layer: int, out: Array) -> None:
    """out = x W + bias."""
    not_inlined()
    _, panels, inputs, _ = weights.panels.shape
    for first in range(0, rows, BLOCK):
        for panel in range(panels):
            at, of_bias = (layer * panels + panel) * inputs * PANEL, (layer * panels + panel) * PANEL
            for row in range(first, min(first + BLOCK, rows), ROWS):
                multiply(x, row * x.shape[1], x.shape[1], weights.panels, at, weights.bias, of_bias, inputs,
                         out, row * out.shape[1] + panel * PANEL, out.shape[1])  # fmt: skip


@exact_part
def add_linear(x: Array, rows: int, weights: PackedLinear, layer: int, out: Array) -> None:
    """out += x W + bias."""
    not_inlined()
    _, panels, inputs, _ = weights.panels.shape
    for first in range(0, rows, BLOCK):
        for panel in range(panels):
            at, of_bias = (layer * panels + panel) * inputs * PANEL, (layer * panels + panel) * PANEL
            for row in range(first, min(first + BLOCK, rows), ROWS):
                multiply_add(x, row * x.shape[1], x.shape[1], weights.panels, at, weights.bias, of_bias, inputs,
                             out, row * out.shape[1] + panel * PANEL, out.shape[1])  # fmt: skip


@exact_part
def lstm_step(x: Array, rows: int, lstm: PackedLstm, normed: Array, of_input: Array, of_hidden: Array, cell: Array,
              hidden: Array) -> None:  # fmt: skip
    """x += the hidden state [rows, D] after one step, which replaces the one before, like that of the cells."""
    not_inlined()
    dim = lstm.of_input.panels.shape[2]
    layer = np.int64(0)
    normalise_rows(x, rows, lstm.norm, layer, dim, normed)
    linear(normed, rows, lstm.of_input, layer, of_input)
    linear(hidden, rows, lstm.of_hidden, layer, of_hidden)
    for row in range(rows):
        at = row * x.shape[1]
        lstm_cell(of_input, of_hidden, row * of_input.shape[1], dim, cell, hidden, x, at)
