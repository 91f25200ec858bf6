"""Transformer blocks and LSTM steps on rows of numbers, compiled: the order of operations is that of `twin`.

x is [rows, D] inside larger arrays: rows are made a multiple of ROWS, widths a multiple of PANEL.
"""

from typing import NamedTuple

import numpy as np

from axial_transformers.kernels.compilation import exact_part
from axial_transformers.kernels.exact.definition import LANES, Array
from axial_transformers.kernels.exact.row_functions import (
    copy,
    lstm_cell,
    normalise,
    not_inlined,
    quick_gelu,
    scores,
    softmax_numerators,
    weighted_values,
)
from axial_transformers.kernels.exact.tiles import PANEL, ROWS, multiply, multiply_add
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
    """Keys [masked layers, rows, heads, K, L padded] and values [masked layers, rows, heads, L, K padded]."""

    keys: Array
    values: Array


class Scratch(NamedTuple):
    """Memory for the results within a block, for some rows, and for lines of some length."""

    normed: Array
    qkv: Array
    attended: Array
    hidden: Array
    weights: Array
    keys: Array
    values: Array


@exact_part
def padded(size: int, multiple: int) -> int:
    """The least multiple that is not below `size`."""
    return (size + multiple - 1) // multiple * multiple


@exact_part
def rows_of(rows: int, width: int) -> Array:
    """Zeros for `rows` rows of `width` numbers, with room for whole tiles."""
    return np.zeros((padded(rows, ROWS), padded(width, PANEL)), np.float32)


@exact_part
def scratch_of(rows: int, blocks: PackedBlocks, heads: int, longest: int) -> Scratch:
    """Scratch memory for `rows` rows."""
    not_inlined()
    dim, hidden = blocks.qkv.panels.shape[2], blocks.contract.panels.shape[2]
    width = dim // heads
    return Scratch(
        rows_of(rows, dim), rows_of(rows, 3 * dim), rows_of(rows, dim + LANES), rows_of(rows, hidden),
        np.zeros(padded(longest, LANES), np.float32), np.zeros(width * padded(longest, LANES), np.float32),
        np.zeros(longest * padded(width, LANES), np.float32),
    )  # fmt: skip


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
    masked = 0
    for layer in range(len(lines)):
        length, stride = lines[layer]
        normalise_rows(x, rows, blocks.attention_norm, layer, blocks.qkv.panels.shape[2], scratch.normed)
        linear(scratch.normed, rows, blocks.qkv, layer, scratch.qkv)
        if length == 0:
            attend_step(rows, heads, i, cache, masked, first, scratch)
            masked += 1
        else:
            attend_lines(rows, heads, length, stride, scratch)
        add_linear(scratch.attended, rows, blocks.out, layer, x)
        normalise_rows(x, rows, blocks.feedforward_norm, layer, blocks.qkv.panels.shape[2], scratch.normed)
        linear(scratch.normed, rows, blocks.expand, layer, scratch.hidden)
        for row in range(rows):
            quick_gelu(scratch.hidden, row * scratch.hidden.shape[1], blocks.contract.panels.shape[2])
        add_linear(scratch.hidden, rows, blocks.contract, layer, x)


@exact_part
def attend_step(rows: int, heads: int, i: int, cache: Cache, masked: int, first: int, scratch: Scratch) -> None:
    """Adds keys and values of slab i to the cache of a masked layer; attention of its queries to slabs 0..i."""
    not_inlined()
    _, all_rows, _, width, length = cache.keys.shape
    value_width = cache.values.shape[4]
    for row in range(rows):
        for head in range(heads):
            line = (masked * all_rows + first + row) * heads + head
            keys_at, values_at = line * width * length, line * cache.values.shape[3] * value_width
            copy_key(scratch, row, heads, head, width, cache.keys, keys_at + i, length, cache.values,
                     values_at + i * value_width)  # fmt: skip
            attend(scratch, row, head, width, cache.keys, keys_at, length, cache.values, values_at, i + 1)


@exact_part
def attend_lines(rows: int, heads: int, length: int, stride: int, scratch: Scratch) -> None:
    """Unmasked attention along the lines within rows: places `stride` apart, `length` in a line."""
    not_inlined()
    width = len(scratch.keys) // len(scratch.weights)
    apart, value_width = len(scratch.weights), padded(width, LANES)
    for start in range(rows):
        if start // stride % length:
            continue  # not the first place of its line
        for head in range(heads):
            for i in range(length):
                copy_key(scratch, start + i * stride, heads, head, width, scratch.keys, i, apart, scratch.values,
                         i * value_width)  # fmt: skip
            for i in range(length):
                attend(scratch, start + i * stride, head, width, scratch.keys, 0, apart, scratch.values, 0, length)


@exact_part
def copy_key(
    scratch: Scratch, row: int, heads: int, head: int, width: int, keys: Array, key_at: int, apart: int, values: Array,
    value_at: int,
) -> None:  # fmt: skip
    """The key of a row and a head, as a column of keys whose rows are `apart`, and its value, as a row of values."""
    dim, at = heads * width, row * scratch.qkv.shape[1] + head * width
    copy(scratch.qkv, at + dim, width, keys, key_at, apart)
    copy(scratch.qkv, at + 2 * dim, width, values, value_at, 1)


@exact_part
def attend(
    scratch: Scratch, row: int, head: int, width: int, keys: Array, keys_at: int, apart: int, values: Array,
    values_at: int, count: int,
) -> None:  # fmt: skip
    """softmax(q . keys / sqrt(K)) values of a row and a head over the first `count` places."""
    not_inlined()
    scale = np.float32(1) / np.sqrt(np.float32(width))
    scores(scratch.qkv, row * scratch.qkv.shape[1] + head * width, width, keys, keys_at, apart, count, scratch.weights)
    total = softmax_numerators(scratch.weights, count, scale)
    at = row * scratch.attended.shape[1] + head * width
    weighted_values(scratch.weights, count, total, values, values_at, padded(width, LANES), scratch.attended, at)


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
    normalise_rows(x, rows, lstm.norm, 0, dim, normed)
    linear(normed, rows, lstm.of_input, 0, of_input)
    linear(hidden, rows, lstm.of_hidden, 0, of_hidden)
    for row in range(rows):
        at = row * x.shape[1]
        lstm_cell(of_input, of_hidden, row * of_input.shape[1], dim, cell, hidden, x, at)
