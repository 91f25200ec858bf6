"""Entry points: a slab through transformer blocks, and a row of sites through inner decoder, head and entropy coder."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from axial_transformers.kernels.compilation import exact, exact_part
from axial_transformers.kernels.exact.coding import interval, read_value
from axial_transformers.kernels.exact.definition import GROUP, LANES, NOT_FINITE, Array, Coding
from axial_transformers.kernels.exact.layers import (
    BLOCK,
    Cache,
    Norms,
    PackedBlocks,
    PackedLinear,
    PackedLstm,
    linear,
    lstm_step,
    normalise_rows,
    padded,
    rows_of,
    scratch_of,
    transform,
)
from axial_transformers.kernels.exact.row_functions import fixed_points, not_inlined
from axial_transformers.kernels.llvm import Integers


class Inner(NamedTuple):
    """An inner decoder: blocks, all of them masked, or, with zero heads, an LSTM; the other one is of no use."""

    blocks: PackedBlocks
    heads: int
    lstm: PackedLstm


class PackedOutput(NamedTuple):
    """The head, and the table [V, D] that embeds values."""

    norm: Norms
    head: PackedLinear
    table: Array


@exact
def slab(u: Array, blocks: PackedBlocks, heads: int, lines: Integers, i: int, cache: Cache, part: int) -> Array:
    """Transformer blocks over slab i: u [rows, D] -> [rows, D]; `part` rows, whole examples, at a time."""
    rows, dim = u.shape
    longest = max(cache.keys.shape[4], lines[:, 0].max())
    scratch = scratch_of(min(part, rows), blocks, heads, longest)
    x = rows_of(min(part, rows), dim)
    out = np.empty_like(u)
    for first in range(0, rows, part):
        count = min(part, rows - first)
        x[:count, :dim] = u[first : first + count]
        transform(x, count, blocks, heads, lines, i, cache, first, scratch)
        out[first : first + count] = x[:count, :dim]
    return out


@exact
def dense(x: Array, weights: PackedLinear, outputs: int) -> Array:
    """A linear layer, [rows, in] -> [rows, outputs]."""
    rows, inputs = x.shape
    some, sums = rows_of(min(BLOCK, rows), inputs), rows_of(min(BLOCK, rows), outputs)
    out = np.empty((rows, outputs), np.float32)
    for first in range(0, rows, BLOCK):
        count = min(BLOCK, rows - first)
        some[:count, :inputs] = x[first : first + count]
        linear(some, count, weights, 0, sums)
        out[first : first + count] = sums[:count, :outputs]
    return out


@exact
def code_row(context: Array, inner: Inner, output: PackedOutput, coding: Coding) -> None:
    """Codes the values of a row of sites with context [B, L, D], GROUP examples after GROUP examples."""
    batch, length, dim = context.shape
    most = min(GROUP, batch)
    x = rows_of(most, dim)
    normed, logits = rows_of(most, dim), rows_of(most, len(output.table))
    numbers = np.empty(padded(len(output.table), LANES), np.int32)
    if inner.heads:
        layers, width = len(inner.blocks.qkv.panels), dim // inner.heads
        lines = np.zeros((layers, 2), np.int64)
        sizes = (layers, most, inner.heads, width, padded(length, LANES))
        cache = Cache(
            np.zeros(sizes, np.float32),
            np.zeros((layers, most, inner.heads, length, padded(width, LANES)), np.float32),
        )
        scratch = scratch_of(most, inner.blocks, inner.heads, length)
        for first in range(0, batch, GROUP):
            rows = min(GROUP, batch - first)
            for i in range(length):
                enter_site(context, first, rows, i, output.table, coding.values, x)
                transform(x, rows, inner.blocks, inner.heads, lines, i, cache, 0, scratch)
                code_site(x, first, rows, i, output, coding, normed, logits, numbers)
    else:
        of_input, of_hidden = rows_of(most, 4 * dim + LANES), rows_of(most, 4 * dim + LANES)
        cell, hidden = rows_of(most, dim), rows_of(most, dim)
        for first in range(0, batch, GROUP):
            rows = min(GROUP, batch - first)
            cell[:] = 0
            hidden[:] = 0
            for i in range(length):
                enter_site(context, first, rows, i, output.table, coding.values, x)
                lstm_step(x, rows, inner.lstm, normed, of_input, of_hidden, cell, hidden)
                code_site(x, first, rows, i, output, coding, normed, logits, numbers)


@exact_part
def enter_site(context: Array, first: int, rows: int, i: int, table: Array, values: Integers, x: Array) -> None:
    """x = context of site i + the embedding of the value before it, if there is one."""
    not_inlined()
    for row in range(rows):
        for j in range(context.shape[2]):
            x[row, j] = context[first + row, i, j]
            if i:
                x[row, j] += table[values[first + row, i - 1], j]


@exact_part
def code_site(
    x: Array, first: int, rows: int, i: int, output: PackedOutput, coding: Coding, normed: Array, logits: Array,
    numbers: NDArray[np.int32],
) -> None:  # fmt: skip
    """Codes the values of site i, given the inner decoder's output x [rows, D]."""
    not_inlined()
    count, dim = output.table.shape
    normalise_rows(x, rows, output.norm, 0, dim, normed)
    linear(normed, rows, output.head, 0, logits)
    for row in range(rows):
        if coding.logits.size:
            coding.logits[first + row, i] = logits[row, :count]
        if not fixed_points(logits, row * logits.shape[1], count, numbers):
            coding.stream.state[2] = NOT_FINITE
        if coding.intervals.size:
            interval(numbers, count, coding.values[first + row, i], coding.intervals[first + row, i])
        else:
            coding.values[first + row, i] = read_value(numbers, count, coding.stream)
