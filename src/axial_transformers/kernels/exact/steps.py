"""Entry points: a slab through transformer blocks, and a row of sites through inner decoder, head and entropy coder."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from axial_transformers.kernels.compilation import exact, exact_part
from axial_transformers.kernels.exact.coding import interval, read_value
from axial_transformers.kernels.exact.definition import NOT_FINITE, Array, Coding, Prediction
from axial_transformers.kernels.exact.layers import (
    BLOCK,
    ORIGIN,
    Cache,
    Norms,
    PackedBlocks,
    PackedLinear,
    PackedLstm,
    Scratch,
    linear,
    lstm_step,
    normalise_rows,
    tiles_of,
    transform,
)
from axial_transformers.kernels.exact.predictions import keep, predicted, take_signed
from axial_transformers.kernels.exact.row_functions import add, copy, fixed_points, not_inlined
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


class KnownSlabs(NamedTuple):
    """Known values of all slabs of some examples; of size 0 where there are none."""

    values: Integers
    """[rows]."""
    table: Array
    """[V, D]."""
    example: int
    """Rows of an example."""
    sites: int
    """Rows of a slab."""


class Memory(NamedTuple):
    """Memory for a row of sites of some examples, GROUP at most where values are read."""

    known: bool
    """All sites are computed at once."""
    lines: Integers
    """Of the inner decoder's blocks, see `transform`."""
    x: Array
    normed: Array
    logits: Array
    numbers: NDArray[np.int32]
    cache: Cache
    scratch: Scratch
    of_input: Array
    of_hidden: Array
    cell: Array
    hidden: Array


@exact
def slabs(
    x: Array, blocks: PackedBlocks, heads: int, lines: Integers, cache: Cache, part: int, i: int, known: KnownSlabs,
    first_part: int, last_part: int, own: Array, scratch: Scratch,
) -> None:  # fmt: skip
    """Transformer blocks over parts of x [rows, D], each `part` rows, whole examples, which go through them as `own`.

    Slab i is replaced by its output. Or, with known values, x is the context of all slabs: blocks take it with the
    values' embeddings, and their output for a slab is added to the context of the next one.
    """
    (rows, dim), values, own_row = x.shape, known.values, own.shape[1]
    tiles = tiles_of(part * heads)
    for number in range(first_part, last_part):
        first = number * part
        count = min(part, rows - first)
        for row in range(count):
            copy(x, (first + row) * dim, dim, own, row * own_row)
            if values.size:
                add(known.table, values[first + row] * dim, dim, own, row * own_row)
        transform(own, count, blocks, heads, lines, i, cache, number * tiles, scratch)
        for row in range(count):
            if not values.size:
                copy(own, row * own_row, dim, x, (first + row) * dim)
            elif (row + known.sites) % known.example >= known.sites:
                add(own, row * own_row, dim, x, (first + row + known.sites) * dim)


@exact
def dense(x: Array, rows: int, weights: PackedLinear, out: Array) -> None:
    """A linear layer: x and out have a multiple of ROWS rows."""
    for first in range(0, rows, BLOCK):
        linear(x, first, min(BLOCK, rows - first), weights, ORIGIN, out, first, False)


@exact
def code_row(
    context: Array, inner: Inner, output: PackedOutput, coding: Coding, prediction: Prediction, first: int, last: int,
    memory: Memory,
) -> None:  # fmt: skip
    """Codes the values of a row of sites with context [B, L, D], of examples `first` to `last`.

    Values that are read: at most GROUP examples, site after site. Values that are known: all sites at once, layer after
    layer, so that keys and values of one layer at a time are in cache; but an LSTM goes from site to site.
    """
    rows, length, count = last - first, context.shape[1], len(output.table)
    if memory.known:
        known_row(context, first, rows, inner, output, coding, prediction, memory)
        return
    start_row(rows, inner.heads, memory.cell, memory.hidden)
    for i in range(length):
        site_logits(context, first, rows, i, inner, output, coding.values, memory)
        for row in range(rows):
            code_value(first + row, i, row, count, coding, prediction, memory.logits, memory.numbers)


@exact_part
def known_row(
    context: Array, first: int, examples: int, inner: Inner, output: PackedOutput, coding: Coding,
    prediction: Prediction, memory: Memory,
) -> None:  # fmt: skip
    """`code_row` of known values by attention: the sites of an example are rows behind each other."""
    not_inlined()
    length, x, normed = context.shape[1], memory.x, memory.normed
    rows, values = examples * length, len(output.table)
    for i in range(length):
        enter_site(context, first, examples, i, output.table, coding.values, x, i, length)
    transform(x, rows, inner.blocks, inner.heads, memory.lines, ORIGIN, memory.cache, ORIGIN, memory.scratch)
    for start in range(0, rows, BLOCK):
        count = min(BLOCK, rows - start)
        normalise_rows(x, start, count, output.norm, ORIGIN, output.table.shape[1], normed)
        linear(normed, ORIGIN, count, output.head, ORIGIN, memory.logits, ORIGIN, False)
        for row in range(count):
            example, i = divmod(start + row, length)
            code_value(first + example, i, row, values, coding, prediction, memory.logits, memory.numbers)


@exact_part
def start_row(rows: int, heads: int, cell: Array, hidden: Array) -> None:
    """Forgets what an LSTM, with zero heads, knows of the row before; caches are overwritten."""
    if not heads:
        for row in range(rows):
            for j in range(cell.shape[1]):
                cell[row, j] = 0
                hidden[row, j] = 0


@exact_part
def site_logits(
    context: Array, first: int, rows: int, i: int, inner: Inner, output: PackedOutput, values: Integers, memory: Memory
) -> None:
    """The logits of site i, given the value of the site before it, into the first rows of memory.logits."""
    x, normed = memory.x, memory.normed
    enter_site(context, first, rows, i, output.table, values, x, ORIGIN, ORIGIN + 1)
    if inner.heads:
        transform(x, rows, inner.blocks, inner.heads, memory.lines, i, memory.cache, ORIGIN, memory.scratch)
    else:
        lstm_step(x, rows, inner.lstm, normed, memory.of_input, memory.of_hidden, memory.cell, memory.hidden)
    normalise_rows(x, ORIGIN, rows, output.norm, ORIGIN, output.table.shape[1], normed)
    linear(normed, ORIGIN, rows, output.head, ORIGIN, memory.logits, ORIGIN, False)


@exact_part
def enter_site(
    context: Array, first: int, examples: int, i: int, table: Array, values: Integers, x: Array, row: int, step: int
) -> None:
    """Rows of x, `step` apart from `row` on = context of site i + the embedding of the value before it, if any."""
    not_inlined()
    _, length, dim = context.shape
    for b in range(first, first + examples):
        at = row * x.shape[1]
        copy(context, (b * length + i) * dim, dim, x, at)
        if i:
            add(table, values[b, i - 1] * dim, dim, x, at)
        row += step


@exact_part
def code_value(
    b: int, i: int, row: int, count: int, coding: Coding, prediction: Prediction, logits: Array,
    numbers: NDArray[np.int32],
) -> None:  # fmt: skip
    """Codes the value of example b at site i, one of `count`, by a row of logits; `numbers` is memory."""
    not_inlined()
    values, intervals, stream, kept = coding.values, coding.intervals, coding.stream, coding.logits
    at = row * logits.shape[1]
    take_signed(prediction, predicted(prediction, b, i, count), count, logits, at)
    if kept.size:
        copy(logits, at, count, kept, (b * values.shape[1] + i) * count)
    if not fixed_points(logits, at, count, numbers):
        stream.state[2] = NOT_FINITE
    if intervals.size:
        intervals[b, i, 0], intervals[b, i, 1] = interval(numbers, count, values[b, i])
    else:
        values[b, i] = read_value(numbers, count, stream)
    keep(prediction, b, i, values[b, i], count)
