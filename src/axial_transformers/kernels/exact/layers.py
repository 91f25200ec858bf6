"""Transformer blocks and LSTM steps on rows of numbers, each operation in the order of `reference`.

x is [rows, D] inside a larger array: rows are padded to a multiple of ROWS, widths to a multiple of PANEL, so that
tiles may read and write whole.
"""

from typing import NamedTuple

import numpy as np

from axial_transformers.kernels.compilation import exact_part
from axial_transformers.kernels.exact.definition import LANES, Array
from axial_transformers.kernels.exact.instructions import FEW, PANEL, ROWS, multiply, multiply_few, multiply_one
from axial_transformers.kernels.exact.row_functions import (
    QUERIES,
    attend,
    attend_together,
    from_lanes,
    lstm_cell,
    normalise,
    not_inlined,
    quick_gelu,
    rotate,
    to_lanes,
)
from axial_transformers.kernels.llvm import Integers

ORIGIN = np.int64(0)
"""Zero as a variable: numba would compile a function again for each constant."""
BLOCK = 48
"""Rows that are multiplied with a panel of weights while it is in a core's first cache."""
assert BLOCK % ROWS == 0


class Norms(NamedTuple):
    """The layer norms of all layers: [layers, D padded with zeros]."""

    gain: Array
    bias: Array


class PackedLinear(NamedTuple):
    """A linear layer of each block, outputs padded with zeros: [layers, panels, in, PANEL] and [layers, outputs]."""

    panels: Array
    bias: Array


class PackedBlocks(NamedTuple):
    """The weights of transformer blocks, layer by layer."""

    attention_norm: Norms
    qkv: PackedLinear
    rotations: Array
    """[layers, longest line or 0, K]."""
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
    """Keys and values of the slabs so far, flat: [masked layers, tiles, length, K, LANES]; drawn in `compiled`."""

    keys: Array
    values: Array
    tiles: int
    """Of one masked layer."""
    length: int
    """Slabs that there is room for."""
    width: int
    """K, of a head."""


class Scratch(NamedTuple):
    """Memory of one thread for what is computed inside a block."""

    normed: Array
    qkv: Array
    attended: Array
    hidden: Array
    query: Array
    """QUERIES queries of a tile, with a lane for each line; `result` and `weights` alike."""
    result: Array
    weights: Array
    offsets: Integers
    """Where each line of a tile begins in qkv."""
    outs: Integers
    """Where each line of a tile begins in attended."""
    line: Cache
    """Keys and values of one tile, for attention along lines inside x."""


@exact_part
def tiles_of(count: int) -> int:
    """Return how many tiles hold `count` lines, or how many vectors hold `count` numbers."""
    return (count + LANES - 1) // LANES


@exact_part
def transform(
    x: Array, rows: int, blocks: PackedBlocks, heads: int, lines: Integers, i: int, cache: Cache, first: int,
    scratch: Scratch,
) -> None:  # fmt: skip
    """Run transformer blocks on x [rows, D], in place.

    Args:
        lines: int64 [layers, 4], see `compiled._by_layer`: length, stride, causal, and the rows that go through the
            layer together. With length 0, a row attends to itself in the slabs 0 .. i.
        i: number of the slab.
        first: the tile of the cache in which row 0 begins.
    """
    not_inlined()
    masked, dim, normed, hidden = ORIGIN, blocks.qkv.panels.shape[2], scratch.normed, scratch.hidden
    qkv, attended = scratch.qkv, scratch.attended
    for layer in range(len(lines)):
        length, stride, causal, size = lines[layer]
        for top in range(0, rows, size):
            end = min(top + size, rows)
            for start in range(top, end, BLOCK):
                count = min(BLOCK, end - start)
                normalise_rows(x, start, count, blocks.attention_norm, layer, dim, normed)
                linear(normed, ORIGIN, count, blocks.qkv, layer, qkv, start - top, False)
            rotate_rows(qkv, end - top, heads, length, stride, i, blocks.rotations, layer)
            if length:
                attend_lines(end - top, heads, length, stride, causal, scratch)
            else:
                attend_step(rows, heads, i, cache, masked, first, scratch)
            for start in range(top, end, BLOCK):
                count = min(BLOCK, end - start)
                linear(attended, start - top, count, blocks.out, layer, x, start, True)
                normalise_rows(x, start, count, blocks.feedforward_norm, layer, dim, normed)
                linear(normed, ORIGIN, count, blocks.expand, layer, hidden, ORIGIN, False)
                for row in range(count):
                    quick_gelu(hidden, row * hidden.shape[1], blocks.contract.panels.shape[2])
                linear(hidden, ORIGIN, count, blocks.contract, layer, x, start, True)
        masked += length == 0


@exact_part
def rotate_rows(
    qkv: Array, rows: int, heads: int, length: int, stride: int, i: int, rotations: Array, layer: int
) -> None:
    """Rotate queries and keys, if there are tables, by the position in the line or, without lines, by i."""
    not_inlined()
    _, positions, width = rotations.shape
    if positions:
        for row in range(rows):
            position = row // stride % length if length else i
            table, at = (layer * positions + position) * width, row * qkv.shape[1]
            for _ in range(2 * heads):
                rotate(qkv, at, width // 2, rotations, table)
                at += width


@exact_part
def attend_step(rows: int, heads: int, i: int, cache: Cache, masked: int, first: int, scratch: Scratch) -> None:
    """Add keys and values of slab i to the cache of a masked layer; its queries attend to slabs 0 .. i.

    Fields of tuples become variables before the loops: numba counts references at each access, which takes long.
    """
    not_inlined()
    qkv, attended, weights, offsets = scratch.qkv, scratch.attended, scratch.weights, scratch.offsets
    outs, query, result, keys, values, width = (
        scratch.outs, scratch.query, scratch.result, cache.keys, cache.values, cache.width
    )  # fmt: skip
    dim, of_position = heads * width, width * LANES
    tile_at = (masked * cache.tiles + first) * cache.length * of_position
    row, head = np.int64(0), np.int64(0)
    for _ in range(0, rows * heads, LANES):
        for lane in range(LANES):
            offsets[lane] = row * qkv.shape[1] + head * width
            outs[lane] = row * attended.shape[1] + head * width
            if head < heads - 1:
                head += 1
            elif row < rows - 1:  # otherwise the last line again, with the same result
                head, row = np.int64(0), row + 1
        position_at = tile_at + i * of_position
        to_lanes(qkv, offsets, np.int64(0), width, query, np.int64(0))
        to_lanes(qkv, offsets, dim, width, keys, position_at)
        to_lanes(qkv, offsets, 2 * dim, width, values, position_at)
        attend(query, keys, values, tile_at, width, i + 1, ORIGIN, weights, result)
        from_lanes(result, np.int64(0), width, attended, outs, np.int64(0))
        tile_at += cache.length * of_position


@exact_part
def attend_lines(rows: int, heads: int, length: int, stride: int, causal: int, scratch: Scratch) -> None:
    """Attend along the lines inside the rows: `length` positions, `stride` rows apart; if causal, to no later ones."""
    not_inlined()
    qkv, attended, weights, offsets, cache = (
        scratch.qkv, scratch.attended, scratch.weights, scratch.offsets, scratch.line
    )  # fmt: skip
    outs, query, result, keys, values, width = (
        scratch.outs, scratch.query, scratch.result, cache.keys, cache.values, cache.width
    )  # fmt: skip
    dim, of_position, lines = heads * width, width * LANES, rows // length * heads
    of_query = tiles_of(width) * LANES * LANES
    q_step, out_step = stride * qkv.shape[1], stride * attended.shape[1]
    for start in range(0, lines, LANES):
        for lane in range(LANES):
            line, head = divmod(min(start + lane, lines - 1), heads)  # the last line repeats, as in `attend_step`
            row = line // stride * stride * length + line % stride
            offsets[lane] = row * qkv.shape[1] + head * width
            outs[lane] = row * attended.shape[1] + head * width
        for i in range(length):
            to_lanes(qkv, offsets, i * q_step + dim, width, keys, i * of_position)
            to_lanes(qkv, offsets, i * q_step + 2 * dim, width, values, i * of_position)
        for first in range(0, length, QUERIES):
            for i in range(QUERIES):
                to_lanes(qkv, offsets, min(first + i, length - 1) * q_step, width, query, i * of_query)
            count, more = (first + 1, 1) if causal else (length, 0)
            attend_together(query, keys, values, np.int64(0), width, count, more, weights, result)
            for i in range(min(QUERIES, length - first)):
                from_lanes(result, i * of_query, width, attended, outs, (first + i) * out_step)


@exact_part
def normalise_rows(x: Array, first: int, rows: int, norms: Norms, layer: int, dim: int, out: Array) -> None:
    """Write the layer norm of `rows` rows of x, from row `first` on."""
    not_inlined()
    gain, bias, x_row, out_row = norms.gain, norms.bias, x.shape[1], out.shape[1]
    for row in range(rows):
        normalise(x, (first + row) * x_row, dim, gain, bias, layer * gain.shape[1], out, row * out_row)


@exact_part
def linear(
    x: Array, x_first: int, rows: int, weights: PackedLinear, layer: int, out: Array, out_first: int, add: bool
) -> None:  # fmt: skip
    """out = x W + bias, or out += x W + bias if `add`, for `rows` rows from x_first and out_first on.

    It also reads and writes the rows that are missing to a multiple of FEW.
    """
    not_inlined()
    tall = (rows + FEW - 1) // ROWS * ROWS
    x_row, out_row, matrix, bias = x.shape[1], out.shape[1], weights.panels, weights.bias
    _, panels, inputs, _ = matrix.shape
    pairs = panels // 2 if rows == 1 else 0
    for pair in range(pairs):
        panel = layer * panels + 2 * pair
        x_at, out_at = x_first * x_row, out_first * out_row + 2 * pair * PANEL
        at, of_bias = panel * inputs * PANEL, panel * PANEL
        multiply_one(x, x_at, x_row, matrix, at, bias, of_bias, inputs, out, out_at, out_row, add)
    for panel in range(2 * pairs, panels):
        at, of_bias = (layer * panels + panel) * inputs * PANEL, (layer * panels + panel) * PANEL
        for row in range(0, tall, ROWS):
            x_at, out_at = (x_first + row) * x_row, (out_first + row) * out_row + panel * PANEL
            multiply(x, x_at, x_row, matrix, at, bias, of_bias, inputs, out, out_at, out_row, add)
        for row in range(tall, rows, FEW):
            x_at, out_at = (x_first + row) * x_row, (out_first + row) * out_row + panel * PANEL
            multiply_few(x, x_at, x_row, matrix, at, bias, of_bias, inputs, out, out_at, out_row, add)


@exact_part
def lstm_step(x: Array, rows: int, lstm: PackedLstm, normed: Array, of_input: Array, of_hidden: Array, cell: Array,
              hidden: Array) -> None:  # fmt: skip
    """Make one LSTM step: update cell and hidden [rows, D], and add the new hidden state to x."""
    not_inlined()
    dim = lstm.of_input.panels.shape[2]
    normalise_rows(x, ORIGIN, rows, lstm.norm, ORIGIN, dim, normed)
    linear(normed, ORIGIN, rows, lstm.of_input, ORIGIN, of_input, ORIGIN, False)
    linear(hidden, ORIGIN, rows, lstm.of_hidden, ORIGIN, of_hidden, ORIGIN, False)
    for row in range(rows):
        at = row * x.shape[1]
        lstm_cell(of_input, of_hidden, row * of_input.shape[1], dim, cell, hidden, x, at)
