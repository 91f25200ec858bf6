"""Transformer blocks and LSTM steps on rows of numbers, compiled: the order of operations is that of `twin`.

x is [rows, D] inside larger arrays: rows are made a multiple of ROWS, widths a multiple of PANEL.
"""

from typing import NamedTuple

import numpy as np

from axial_transformers.kernels.compilation import exact_part
from axial_transformers.kernels.exact.definition import LANES, Array
from axial_transformers.kernels.exact.product_tiles import PANEL, ROWS, multiply
from axial_transformers.kernels.exact.row_functions import (
    QUERIES,
    attend,
    copy,
    copy_apart,
    lstm_cell,
    normalise,
    not_inlined,
    quick_gelu,
)
from axial_transformers.kernels.llvm import Integers

BLOCK = 48
"""Rows that a panel of weights is multiplied with while it is in a core's first cache."""
assert BLOCK % ROWS == 0


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
    """A line is [apart / LANES, K, LANES]: place i is column i mod LANES of part i // LANES."""
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
    """Of QUERIES queries."""
    places: Integers
    """[4, QUERIES], see `attend`."""
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
        linear(scratch.normed, rows, blocks.qkv, layer, scratch.qkv, False)
        if length == 0:
            attend_step(rows, heads, i, cache, masked, first, scratch)
            masked += 1
        else:
            attend_lines(rows, heads, length, stride, scratch)
        linear(scratch.attended, rows, blocks.out, layer, x, True)
        normalise_rows(x, rows, blocks.feedforward_norm, layer, of_x, scratch.normed)
        linear(scratch.normed, rows, blocks.expand, layer, scratch.hidden, False)
        hidden = scratch.hidden
        for row in range(rows):
            quick_gelu(hidden, row * hidden.shape[1], blocks.contract.panels.shape[2])
        linear(scratch.hidden, rows, blocks.contract, layer, x, True)


@exact_part
def attend_step(rows: int, heads: int, i: int, cache: Cache, masked: int, first: int, scratch: Scratch) -> None:
    """Adds keys and values of slab i to the cache of a masked layer; attention of its queries to slabs 0..i.

    Parts of tuples become variables before the loops: taking one counts references, which takes long.
    """
    not_inlined()
    qkv, attended, weights, places = scratch.qkv, scratch.attended, scratch.weights, scratch.places
    keys, values, width, apart, value_width = cache.keys, cache.values, cache.width, cache.apart, cache.value_width
    line_keys, line_values = width * apart, cache.length * value_width
    dim, q_row, out_row = heads * width, qkv.shape[1], attended.shape[1]
    lines, line = rows * heads, (masked * cache.rows + first) * heads
    key_at = i // LANES * LANES * width + i % LANES
    for row in range(rows):
        for head in range(heads):
            q_at = row * q_row + head * width
            copy_apart(qkv, q_at + dim, width, keys, line * line_keys + key_at)
            copy(qkv, q_at + 2 * dim, width, values, line * line_values + i * value_width)
            line += 1
    line -= lines
    for start in range(0, lines, QUERIES):
        for query in range(QUERIES):
            number = min(start + query, lines - 1)  # the last one several times, with the same result
            row, head = number // heads, number % heads
            places[0, query] = row * q_row + head * width
            places[1, query] = (line + number) * line_keys
            places[2, query] = (line + number) * line_values
            places[3, query] = row * out_row + head * width
        attend(qkv, keys, values, attended, places, width, apart, value_width, i + 1, weights)


@exact_part
def attend_lines(rows: int, heads: int, length: int, stride: int, scratch: Scratch) -> None:
    """Unmasked attention along the lines within rows: places `stride` apart, `length` in a line."""
    not_inlined()
    qkv, attended, weights, places, cache = (
        scratch.qkv, scratch.attended, scratch.weights, scratch.places, scratch.line
    )  # fmt: skip
    keys, values, width, apart, value_width = cache.keys, cache.values, cache.width, cache.apart, cache.value_width
    dim, q_row, out_row = heads * width, qkv.shape[1], attended.shape[1]
    for start in range(rows):
        if start // stride % length:
            continue  # not the first place of its line
        for head in range(heads):
            for i in range(length):
                q_at = (start + i * stride) * q_row + head * width
                copy_apart(qkv, q_at + dim, width, keys, i // LANES * LANES * width + i % LANES)
                copy(qkv, q_at + 2 * dim, width, values, i * value_width)
            for i in range(0, length, QUERIES):
                for query in range(QUERIES):
                    row = start + min(i + query, length - 1) * stride  # see `attend_step`
                    places[0, query] = row * q_row + head * width
                    places[1, query] = 0
                    places[2, query] = 0
                    places[3, query] = row * out_row + head * width
                attend(qkv, keys, values, attended, places, width, apart, value_width, length, weights)


@exact_part
def normalise_rows(x: Array, rows: int, norms: Norms, layer: int, dim: int, out: Array) -> None:
    """LayerNorm of each row."""
    not_inlined()
    gain, bias, x_row, out_row = norms.gain, norms.bias, x.shape[1], out.shape[1]
    for row in range(rows):
        normalise(x, row * x_row, dim, gain, bias, layer * gain.shape[1], out, row * out_row)


@exact_part
def linear(x: Array, rows: int, weights: PackedLinear, layer: int, out: Array, add: bool) -> None:
    """out = x W + bias; if `add`, this is added to out."""
    not_inlined()
    x_row, out_row, matrix, bias = x.shape[1], out.shape[1], weights.panels, weights.bias
    _, panels, inputs, _ = matrix.shape
    for first in range(0, rows, BLOCK):
        for panel in range(panels):
            at, of_bias = (layer * panels + panel) * inputs * PANEL, (layer * panels + panel) * PANEL
            for row in range(first, min(first + BLOCK, rows), ROWS):
                out_at = row * out_row + panel * PANEL
                multiply(x, row * x_row, x_row, matrix, at, bias, of_bias, inputs, out, out_at, out_row, add)


@exact_part
def lstm_step(x: Array, rows: int, lstm: PackedLstm, normed: Array, of_input: Array, of_hidden: Array, cell: Array,
              hidden: Array) -> None:  # fmt: skip
    """x += the hidden state [rows, D] after one step, which replaces the one before, like that of the cells."""
    not_inlined()
    dim = lstm.of_input.panels.shape[2]
    layer = np.int64(0)
    normalise_rows(x, rows, lstm.norm, layer, dim, normed)
    linear(normed, rows, lstm.of_input, layer, of_input, False)
    linear(hidden, rows, lstm.of_hidden, layer, of_hidden, False)
    for row in range(rows):
        at = row * x.shape[1]
        lstm_cell(of_input, of_hidden, row * of_input.shape[1], dim, cell, hidden, x, at)
