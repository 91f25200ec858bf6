"""The kernels that Python calls: a slab through transformer blocks, and rows of positions to values.

A row of positions goes through the inner decoder, the head, and a choice of values: read from a
stream (`read_row`), known (`known_rows`), or sampled (`sample_row`).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from axial_transformers.kernels.compilation import compiled, exact, exact_part, part
from axial_transformers.kernels.exact.coding import interval, read_value
from axial_transformers.kernels.exact.definition import (
    NOT_FINITE,
    Array,
    Centring,
    Known,
    Ordinal,
    RowSampling,
    Stream,
)
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
from axial_transformers.kernels.exact.mixtures import (
    MixtureMemory,
    centre_of,
    counts_below,
    keep_value,
    nats_of_mixture,
    precisions_of,
    prepare,
    read_mixture,
)
from axial_transformers.kernels.exact.row_functions import add, add_linear, copy, fixed_points, nats_of, not_inlined
from axial_transformers.kernels.llvm import Integers
from axial_transformers.kernels.vectors import exp


class Inner(NamedTuple):
    """An inner decoder: masked blocks or, if heads is 0, an LSTM. The other one is a stand-in without weights."""

    blocks: PackedBlocks
    heads: int
    lstm: PackedLstm


class Embedding(NamedTuple):
    """What embeds values: a table [V, D], or `definition.Features`. The other one is of size 0."""

    table: Array
    values: Array
    differences: Array
    weight: Array
    """[F, D padded with zeros]."""
    bias: Array


class PackedOutput(NamedTuple):
    """The head, what embeds values, and what the outputs of the head are; of categorical values mixtures is 0."""

    norm: Norms
    head: PackedLinear
    embedding: Embedding
    ordinal: Ordinal


class KnownSlabs(NamedTuple):
    """Known values of all slabs of some examples; of size 0 if x is one slab."""

    values: Integers
    """[rows]."""
    embedding: Embedding
    example: int
    """Rows of an example."""
    positions: int
    """Rows of a slab."""


class RowMemory(NamedTuple):
    """What one thread needs for rows of positions: one row of x for each example, or for each position of each."""

    lines: Integers
    """Of the inner decoder's blocks, see `layers.transform`."""
    x: Array
    normed: Array
    logits: Array
    numbers: NDArray[np.int32]
    mixture: MixtureMemory
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
    """Run blocks over x [rows, D], in place, `part` rows (whole examples) at a time.

    x is slab i, and becomes the output for it. With known values, x is the context of all slabs: blocks take it
    together with the embedded values, and their output for a slab is added to the context of the next slab.

    Args:
        lines: int64 [layers, 4], see `layers.transform`.
        part: rows that are copied to `own`, and go through all blocks there.
        first_part, last_part: the parts to compute, the last one excluded.
        own, scratch: memory of this thread.
    """
    (rows, dim), values, own_row = x.shape, known.values, own.shape[1]
    tiles = tiles_of(part * heads)
    for number in range(first_part, last_part):
        first = number * part
        count = min(part, rows - first)
        for row in range(count):
            copy(x, (first + row) * dim, dim, own, row * own_row)
            if values.size:
                add_embedding(known.embedding, values[first + row], dim, own, row * own_row)
        transform(own, count, blocks, heads, lines, i, cache, number * tiles, scratch)
        for row in range(count):
            if not values.size:
                copy(own, row * own_row, dim, x, (first + row) * dim)
            elif (row + known.positions) % known.example >= known.positions:
                add(own, row * own_row, dim, x, (first + row + known.positions) * dim)


@exact
def dense(x: Array, rows: int, weights: PackedLinear, out: Array) -> None:
    """Apply a linear layer; x and out have a multiple of ROWS rows."""
    for first in range(0, rows, BLOCK):
        linear(x, first, min(BLOCK, rows - first), weights, ORIGIN, out, first, False)


@exact
def read_row(
    context: Array, inner: Inner, output: PackedOutput, values: Integers, stream: Stream, centring: Centring,
    first: int, last: int, memory: RowMemory,
) -> None:  # fmt: skip
    """Read the values [B, L] of a row of the examples first .. last - 1, position after position, from a stream."""
    count, logits, ordinal = output.ordinal.num_values, memory.logits, output.ordinal
    start_row(last - first, inner.heads, memory.cell, memory.hidden)
    for i in range(context.shape[1]):
        position_logits(context, first, last - first, i, inner, output, values, memory)
        for b in range(first, last):
            if ordinal.mixtures:
                centre = centre_of(centring, b, i, count)
                value = read_mixture(logits, b - first, ordinal, centre, stream, memory.mixture)
                values[b, i] = keep_value(centring, b, i, value, centre, count)
                continue
            if not fixed_points(logits, (b - first) * logits.shape[1], count, memory.numbers):
                stream.state[2] = NOT_FINITE
            values[b, i] = read_value(memory.numbers, count, stream)


@exact
def known_rows(
    context: Array, inner: Inner, output: PackedOutput, known: Known, first: int, last: int, memory: RowMemory
) -> None:  # fmt: skip
    """Write what is asked of the known values of rows of positions.

    All positions of a row go through a layer at once, as rows of x. An LSTM goes from position to position.
    """
    examples, length, dim, x, normed = last - first, context.shape[1], context.shape[2], memory.x, memory.normed
    if not inner.heads:
        start_row(examples, inner.heads, memory.cell, memory.hidden)
        for i in range(length):
            position_logits(context, first, examples, i, inner, output, known.values, memory)
            for b in range(first, last):
                take_known(known, b, i, output.ordinal, memory.logits, b - first, memory.numbers, memory.mixture)
        return
    for i in range(length):
        enter_position(context, first, examples, i, output.embedding, known.values, x, i, length)
    rows = examples * length
    transform(x, rows, inner.blocks, inner.heads, memory.lines, ORIGIN, memory.cache, ORIGIN, memory.scratch)
    for start in range(0, rows, BLOCK):
        count = min(BLOCK, rows - start)
        normalise_rows(x, start, count, output.norm, ORIGIN, dim, normed)
        linear(normed, ORIGIN, count, output.head, ORIGIN, memory.logits, ORIGIN, False)
        for row in range(count):
            b, i = divmod(start + row, length)
            take_known(known, first + b, i, output.ordinal, memory.logits, row, memory.numbers, memory.mixture)


@exact_part
def take_known(
    known: Known, b: int, i: int, ordinal: Ordinal, logits: Array, row: int, numbers: NDArray[np.int32],
    mixture: MixtureMemory,
) -> None:  # fmt: skip
    """Write what is asked of the value of row b at position i, by one row of logits; the last two are memory."""
    not_inlined()
    at, value, nats, intervals = row * logits.shape[1], known.values[b, i], known.nats, known.intervals
    count = ordinal.num_values
    if ordinal.mixtures:
        centre = value // count if ordinal.centred else np.int64((count - 1) // 2)
        value %= count
        if nats.size:
            nats[b, i] = nats_of_mixture(logits, row, ordinal, value, centre, mixture)
        if intervals.size:
            intervals[b, i, 0], intervals[b, i, 1] = 0, 0
            if prepare(logits, row, ordinal, mixture):
                start = counts_below(value, centre, logits, row, ordinal, mixture.precisions, mixture.shares)
                end = counts_below(value + 1, centre, logits, row, ordinal, mixture.precisions, mixture.shares)
                intervals[b, i, 0], intervals[b, i, 1] = start, end - start
        return
    if nats.size:
        nats[b, i] = nats_of(logits, at, count, value)
    if intervals.size:
        intervals[b, i, 0], intervals[b, i, 1] = 0, 0
        if fixed_points(logits, at, count, numbers):
            intervals[b, i, 0], intervals[b, i, 1] = interval(numbers, count, value)


@exact_part
def start_row(rows: int, heads: int, cell: Array, hidden: Array) -> None:
    """Clear the state of an LSTM. Blocks need nothing: their caches are overwritten."""
    if not heads:
        for row in range(rows):
            for j in range(cell.shape[1]):
                cell[row, j] = 0
                hidden[row, j] = 0


@exact_part
def position_logits(
    context: Array, first: int, rows: int, i: int, inner: Inner, output: PackedOutput, values: Integers,
    memory: RowMemory,
) -> None:  # fmt: skip
    """Write the logits of position i, given the value before, to the first rows of memory.logits."""
    x, normed = memory.x, memory.normed
    enter_position(context, first, rows, i, output.embedding, values, x, ORIGIN, ORIGIN + 1)
    if inner.heads:
        transform(x, rows, inner.blocks, inner.heads, memory.lines, i, memory.cache, ORIGIN, memory.scratch)
    else:
        lstm_step(x, rows, inner.lstm, normed, memory.of_input, memory.of_hidden, memory.cell, memory.hidden)
    normalise_rows(x, ORIGIN, rows, output.norm, ORIGIN, context.shape[2], normed)
    linear(normed, ORIGIN, rows, output.head, ORIGIN, memory.logits, ORIGIN, False)


@exact_part
def enter_position(
    context: Array, first: int, examples: int, i: int, embedding: Embedding, values: Integers, x: Array, row: int,
    step: int,
) -> None:  # fmt: skip
    """Write context of position i + the embedding of the value before, to rows of x from `row` on, `step` apart."""
    not_inlined()
    _, length, dim = context.shape
    for b in range(first, first + examples):
        at = row * x.shape[1]
        copy(context, (b * length + i) * dim, dim, x, at)
        if i:
            add_embedding(embedding, values[b, i - 1], dim, x, at)
        row += step


@exact_part
def add_embedding(embedding: Embedding, code: int, dim: int, x: Array, at: int) -> None:
    """Add the embedding of a value, or code, to `dim` numbers of x; x goes on up to a multiple of LANES."""
    not_inlined()
    if embedding.table.size:
        add(embedding.table, code * dim, dim, x, at)
        return
    values, differences = embedding.values, embedding.differences
    count, value = len(values), code % len(values)
    width, of_difference = values.shape[1], differences.shape[1]
    row = (value - code // count + count - 1) * of_difference
    weight, bias = embedding.weight, embedding.bias
    add_linear(values, value * width, width, differences, row, of_difference, weight, bias, bias.shape[0], x, at)


@compiled
def sample_row(
    context: Array, inner: Inner, output: PackedOutput, choice: RowSampling, centring: Centring,
    values: Integers, first: int, last: int, memory: RowMemory,
) -> None:  # fmt: skip
    """Sample values, or codes, [B, L] of the examples first .. last - 1."""
    rows, count, ordinal = last - first, output.ordinal.num_values, output.ordinal
    start_row(rows, inner.heads, memory.cell, memory.hidden)
    logits, width = memory.logits.reshape(-1), memory.logits.shape[1]
    for i in range(context.shape[1]):
        position_logits(context, first, rows, i, inner, output, values, memory)
        for row in range(rows):
            b, at = first + row, row * width
            if ordinal.mixtures:
                centre = centre_of(centring, b, i, count)
                value = choice.known[b, i]
                if value < 0:
                    precisions_of(
                        memory.logits, at, ordinal.mixtures, ordinal.max_log_precision, memory.mixture.precisions
                    )
                    value = choose_ordinal(
                        logits[at : at + 2 * ordinal.mixtures], memory.mixture.precisions, ordinal, centre,
                        choice.uniforms[b, i], choice.temperature,
                    )  # fmt: skip
                values[b, i] = keep_value(centring, b, i, value, centre, count)
                continue
            if choice.known[b, i] >= 0:
                values[b, i] = choice.known[b, i]
                continue
            here = logits[at : at + count]
            least = least_allowed(here, choice.temperature, choice.top_k, choice.top_p)
            if choice.uniforms.size:
                values[b, i] = choose_by_uniform(here, choice.uniforms[b, i], choice.temperature, least)
            else:
                values[b, i] = choose_value(here, choice.noise[b, i], choice.temperature, least)


@part
def choose_ordinal(
    outputs: Array, precisions: Array, ordinal: Ordinal, centre: int, uniform: float, temperature: np.float32
) -> int:
    """Return the value that a number from 0 to 1 chooses: first a component, then its quantile; in float64.

    The temperature divides the logarithms of weights, and multiplies the spread of each component. At 0, it is the mean
    of the component with the largest weight.
    """
    count = ordinal.mixtures
    chosen = int(np.argmax(outputs[:count]))
    found = float(centre) + 0.5
    if temperature > 0:
        powers = np.exp((outputs[:count].astype(np.float64) - outputs[chosen]) / temperature)
        rest = uniform * powers.sum()
        for k in range(count):
            if powers[k] > 0:
                chosen = k
                if rest < powers[k]:
                    break
                rest -= powers[k]
        quantile = min(max(rest / powers[chosen], 2.0**-53), 1 - 2.0**-53)
        found += temperature * np.log(quantile / (1 - quantile)) / precisions[chosen]
    found += float(ordinal.unit) * outputs[count + chosen]
    if not found >= 0:  # or not a number, of weights that overflow: a value must stay an index
        return 0
    return int(min(np.floor(found), ordinal.num_values - 1.0))


@part
def choose_by_uniform(logits: Array, uniform: float, temperature: np.float32, least: np.float32) -> int:
    """Return the value that a number from 0 to 1 chooses, among those with logits of at least `least`; in float64."""
    best = int(np.argmax(logits))
    if temperature == 0:
        return best
    powers = np.zeros(len(logits), np.float64)
    for j in range(len(logits)):
        if logits[j] >= least:
            powers[j] = np.exp((float(logits[j]) - logits[best]) / temperature)
    rest, chosen = uniform * powers.sum(), best
    for j in range(len(logits)):
        if powers[j] > 0:
            chosen = j
            if rest < powers[j]:
                break
            rest -= powers[j]
    return chosen


@part
def least_allowed(logits: Array, temperature: np.float32, top_k: int, top_p: np.float32) -> np.float32:
    """Return the least logit of the values that top_k and top_p allow."""
    least = -np.float32(np.inf)
    if top_k < len(logits):
        least = np.sort(logits)[len(logits) - top_k]
    if top_p < 1 and temperature > 0:
        least = max(least, nucleus(logits, temperature, top_p))
    return least


@part
def choose_value(logits: Array, noise: Array, temperature: np.float32, least: np.float32) -> int:
    """Return argmax(logits + temperature * noise) of one position, among logits of at least `least`."""
    best = -np.float32(np.inf)
    for j in range(len(logits)):
        logits[j] = logits[j] + temperature * noise[j] if logits[j] >= least else -np.float32(np.inf)
        best = max(best, logits[j])
    for j in range(len(logits)):
        if logits[j] == best:
            return j
    return 0


@part
def nucleus(logits: Array, temperature: np.float32, top_p: np.float32) -> np.float32:
    """Return the least logit of the fewest most likely values that together reach probability top_p."""
    ordered = np.sort(logits)[::-1]
    powers = np.empty_like(logits)
    total = np.float32(0)
    for j in range(len(powers)):
        powers[j] = exp((ordered[j] - ordered[0]) / temperature)
        total += powers[j]
    reached = np.float32(0)
    for j in range(len(powers)):
        reached += powers[j]
        if reached >= top_p * total:
            return ordered[j]
    return ordered[-1]
