"""Transformer blocks: their packed weights, their layers on a few rows of numbers, and whole blocks along lines.

float32 throughout. The rows of a call are so few that their activations stay in a core's own cache.
"""

from typing import NamedTuple

import numpy as np

from axial_transformers.kernels.compilation import compiled, part
from axial_transformers.kernels.exact.product_tiles import FEW, PANEL, ROWS, multiply, multiply_few
from axial_transformers.kernels.line_attention import hide_later
from axial_transformers.kernels.llvm import LANES, Array, Integers
from axial_transformers.kernels.memory import aligned_zeros
from axial_transformers.kernels.register_tiles import PANEL as QUERIES
from axial_transformers.kernels.register_tiles import ROWS as TILE_ROWS
from axial_transformers.kernels.register_tiles import multiply_rows, round_up, transpose_part
from axial_transformers.kernels.rotated_lines import rotate_rows
from axial_transformers.kernels.softmaxes import TOGETHER, column_exponentials, exponentials_together
from axial_transformers.kernels.staging import ONE, load_rows, store_rows, zeros
from axial_transformers.kernels.vectors import narrow, quick_gelu

EPSILON = np.float32(1e-5)
CHUNK = 96
"""Rows that go through a layer at a time: many enough to read its weights seldom. Also the rows of the lines that go
through a block at a time, at least one line."""


class Norm(NamedTuple):
    """A LayerNorm of each layer: [layers, D]."""

    gain: Array
    bias: Array


class PackedLinear(NamedTuple):
    """A linear layer of each block: [layers, panels, in, PANEL], its outputs padded with zeros, and [layers, out].

    Behind its last number, a bias goes on for a whole panel.
    """

    panels: Array
    bias: Array


class Blocks(NamedTuple):
    """Transformer blocks of equal sizes: [layers, ..] each."""

    attention_norm: Norm
    qkv: PackedLinear
    rotations: Array
    """Of queries and keys, [layers, L or 0, K], see `rotate_rows`."""
    out: PackedLinear
    feedforward_norm: Norm
    expand: PackedLinear
    contract: PackedLinear


def packed(weights: Array, bias: Array) -> PackedLinear:
    """Weights [layers, out, in] and biases [layers, out] as the kernels read them."""
    layers, outputs, inputs = weights.shape
    panels = -(-outputs // PANEL)
    in_panels = aligned_zeros(layers, panels, inputs, PANEL)
    rows = in_panels.swapaxes(2, 3)  # [layers, panels, PANEL, inputs]
    whole = outputs // PANEL
    rows[:, :whole] = weights[:, : whole * PANEL].reshape(layers, whole, PANEL, inputs)
    rows[:, whole:, : outputs % PANEL] = weights[:, None, whole * PANEL :]
    padded = np.zeros((layers, panels * PANEL), np.float32)
    padded[:, :outputs] = bias
    return PackedLinear(in_panels, padded[:, :outputs])


@compiled
def block_along_lines(
    x: Array, grid: Integers, blocks: Blocks, heads: int, causal: bool, out: Array, first: int, last: int
) -> None:
    """out = the first of `blocks` of x, both flat [outer, L, inner, D], for lines `first` to `last` of outer * inner.

    A line is read and written once. In between, CHUNK rows at a time go through the layers on either side of attention.

    Args:
        grid: outer, L, inner, D.
    """
    length, inner, dim = grid[1], grid[2], grid[3]
    group = max(1, CHUNK // length)
    most = group * length
    chunk = min(CHUNK, most)
    state, attended = np.empty((most, dim), np.float32), row_buffer(most, dim)
    flat, of_line = state.reshape(-1), length * dim
    normed, hidden = row_buffer(chunk, dim), row_buffer(chunk, blocks.expand.bias.shape[1])
    qkv = np.zeros((most + LANES, 3 * dim), np.float32)
    for m in range(first, last, group):
        lines = min(group, last - m)
        rows = lines * length
        for line in range(lines):
            at = start_of(m + line, length, inner) * dim
            load_rows(x, at, inner * dim, length, dim, ONE, flat[line * of_line :], dim)
        for r in range(0, rows, chunk):
            end = min(rows, r + chunk)
            project(state[r:end], blocks, 0, normed, qkv[r:end])
        attend_lines(qkv, heads, lines, length, causal, blocks.rotations[0], attended)
        for r in range(0, rows, chunk):
            some = state[r : min(rows, r + chunk)]
            linear(attended[r:], blocks.out, 0, some, True)
            feed_forward(some, blocks, 0, normed, hidden)
        for line in range(lines):
            at = start_of(m + line, length, inner) * dim
            store_rows(flat[line * of_line :], dim, length, dim, ONE, out, at, inner * dim)


@part
def start_of(line: int, length: int, inner: int) -> int:
    """The number of the first site of a line in [outer, L, inner], the line counted in [outer, inner]."""
    return line // inner * length * inner + line % inner


@compiled
def nats(
    x: Array, norm: Norm, head: PackedLinear, values: Integers, predictions: Integers, out: Array, first: int, last: int
) -> None:
    """out = -log softmax(head(LayerNorm(x)))[values] of rows `first` to `last` of x [rows, D]; logits are not kept.

    With predictions p, the last p of a row's V logits are in the second half of what the head gives.
    """
    outputs = head.bias.shape[1]
    count = outputs // 2 if len(predictions) else outputs
    normed, logits = row_buffer(CHUNK, x.shape[1]), np.empty((CHUNK, outputs), np.float32)
    flat, wide = logits.reshape(-1), round_up(count, LANES)
    powers, sums = np.zeros(TOGETHER * wide, np.float32), np.empty(2 * TOGETHER, np.float32)
    for r in range(first, last, CHUNK):
        rows = min(CHUNK, last - r)
        normalise(x[r : r + rows], norm, 0, normed)
        linear(normed, head, 0, logits[:rows], False)
        if len(predictions):
            for row in range(rows):
                for j in range(count - predictions[r + row], count):
                    logits[row, j] = logits[row, count + j]
        for first_row in range(0, rows, TOGETHER):
            some = min(TOGETHER, rows - first_row)
            load_rows(flat, first_row * outputs, outputs, some, count, ONE, powers, wide)
            exponentials_together(powers, 0, wide, wide, count, 0, sums, 0)
            for i in range(some):
                row = first_row + i
                out[r + row] = np.log(sums[2 * i]) + sums[2 * i + 1] - logits[row, values[r + row]]


@part
def project(x: Array, blocks: Blocks, layer: int, normed: Array, qkv: Array) -> None:
    """Queries, keys and values of all heads: [B, D] -> [B, 3 D]."""
    normalise(x, blocks.attention_norm, layer, normed)
    linear(normed, blocks.qkv, layer, qkv, False)


@part
def feed_forward(x: Array, blocks: Blocks, layer: int, normed: Array, hidden: Array) -> None:
    """x += W2 quick_gelu(W1 LayerNorm(x))."""
    normalise(x, blocks.feedforward_norm, layer, normed)
    rows = hidden[: len(x)]
    linear(normed, blocks.expand, layer, rows, False)
    quick_gelu(rows, rows.size)
    linear(hidden, blocks.contract, layer, x, True)


@part
def attend_lines(qkv: Array, heads: int, lines: int, length: int, causal: bool, rotations: Array, out: Array) -> None:
    """Attention along `lines` lines of `length` sites: [sites, 3 D] to the first rows of out [.., D].

    Queries, keys and values are read where `project` left them, and so are LANES rows behind them. Queries and keys are
    rotated there if `rotations` has rows.
    """
    dim = out.shape[1]
    row, width = 3 * dim, dim // heads
    wide, scale = round_up(width, LANES), np.float32(1 / np.sqrt(width))
    x, to = qkv.reshape(-1), out.reshape(-1)
    queries, attended = zeros(wide * QUERIES), zeros((QUERIES + TILE_ROWS) * wide)
    scores, inverses, largest = zeros((length + TILE_ROWS) * QUERIES), zeros(QUERIES), zeros(QUERIES)
    for piece in range(lines * heads):
        first, of_head = piece // heads * length, piece % heads * width
        at = first * row + of_head
        rotate_rows(x, at, row, rotations, ONE)
        rotate_rows(x, at + dim, row, rotations, ONE)
        for b in range(0, length, QUERIES):
            rows = min(QUERIES, length - b)
            columns, reach = round_up(rows, LANES), b + rows if causal else length
            transpose_part(x, at + b * row, row, columns, wide, queries, 0, QUERIES)
            multiply_rows(x, at + dim, row, 1, width, queries, 0, QUERIES, scores, 0, QUERIES, reach, columns)
            if causal:
                hide_later(b, reach, scores)
            column_exponentials(scores, reach, columns, scale, inverses, largest)
            multiply_rows(scores, 0, 1, QUERIES, reach, x, at + 2 * dim, row, attended, 0, wide, rows, wide)
            for o in range(rows):
                narrow(attended, o * wide, width, inverses[o], to, (first + b + o) * dim + of_head)


@part
def normalise(x: Array, norm: Norm, layer: int, out: Array) -> None:
    """LayerNorm, [B, D] -> [B, D]."""
    dim = x.shape[1]
    gain, bias = norm.gain[layer], norm.bias[layer]
    for b in range(len(x)):
        mean = np.float32(0)
        for j in range(dim):
            mean += x[b, j]
        mean /= np.float32(dim)
        variance = np.float32(0)
        for j in range(dim):
            variance += (x[b, j] - mean) ** 2
        scale = np.float32(1) / np.sqrt(variance / np.float32(dim) + EPSILON)
        for j in range(dim):
            out[b, j] = (x[b, j] - mean) * scale * gain[j] + bias[j]


@part
def row_buffer(rows: int, width: int) -> Array:
    """Zeros [rows, width], and as many more rows as `linear` may read."""
    return np.zeros((rows + FEW - 1, width), np.float32)


@part
def linear(x: Array, weights: PackedLinear, layer: int, out: Array, add: bool) -> None:
    """out = x W^T + bias, or if `add` this is added to out: [B, in] to [B, out], x with FEW - 1 further rows."""
    (batch, outputs), inputs = out.shape, x.shape[1]
    panels, bias, tile = weights.panels[layer], weights.bias[layer], np.empty((FEW, PANEL), np.float32)
    for start in range(0, outputs, PANEL):
        width, at = min(PANEL, outputs - start), start * inputs
        tall = batch // ROWS * ROWS if width == PANEL else 0
        for b in range(0, tall, ROWS):
            to = b * outputs + start
            multiply(x, b * inputs, inputs, panels, at, bias, start, inputs, out, to, outputs, add)
        for b in range(tall, batch, FEW):
            multiply_few(x, b * inputs, inputs, panels, at, bias, start, inputs, tile, 0, PANEL, False)
            for row in range(min(FEW, batch - b)):
                for j in range(width):
                    out[b + row, start + j] = tile[row, j] + (out[b + row, start + j] if add else np.float32(0))
