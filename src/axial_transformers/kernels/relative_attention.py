"""Position-sensitive attention along lines (Wang et al. 2020, equation 4), forward and backward.

The scores of a block of queries stand in a band: a row for each query o, a column for each offset d = p - o from it to
a key p. A global table is a wide band. In a band, keys and values of successive queries start one column later, which
a product takes as the distance of its rows or steps; so all sums over the band, those of places as those of table rows,
are one function of register tiles, `add_product`. A band is a few rows of numbers: no line's scores are held.

As in `line_attention`, one head of one line is one piece of work. float32 throughout.
"""

from typing import Any, NamedTuple

import numpy as np

from axial_transformers.kernels.compilation import compiled, part
from axial_transformers.kernels.llvm import LANES, Array, Integers
from axial_transformers.kernels.register_tiles import (
    HIGH,
    PANEL,
    ROWS,
    multiply_add,
    multiply_add_high,
    relative_products,
    relative_scores,
    round_up,
    transpose_part,
)
from axial_transformers.kernels.softmaxes import exponentials, softmax_backward
from axial_transformers.kernels.staging import ONE, load_heads, store_heads, store_normalised, zeros
from axial_transformers.kernels.vectors import clear

BLOCK = 32
"""Queries of a band: many enough that a sum over them is seldom stored, few enough for a band to stay in cache."""
MARGIN = max(LANES, HIGH)
"""Zeros before and behind the numbers of a query, and queries of zeros: tiles read them."""
BEFORE = LANES + MARGIN
"""Places before the first of transposed keys: tiles of scores read them."""


class Tables(NamedTuple):
    """The encodings of the offsets -R .. R, all flat.

    Rows are [tables, 2R + 1, width], widths padded with zeros to a multiple of LANES; transposed, they are
    [tables, width, `transposed_columns`].
    """

    query: Array
    key: Array
    value: Array
    query_transposed: Array
    key_transposed: Array
    value_transposed: Array


class Band(NamedTuple):
    """The pairs of the queries first .. first + rows - 1 of a line of `length` places with keys at low .. high."""

    first: int
    rows: int
    low: int
    high: int
    length: int


class Product(NamedTuple):
    """The numbers x[i, s] of a band in sums over s, for the rows first <= i < last, some at a time.

    x[i, s] is number x_at + i x_row + s x_step. The steps of row i are the larger of `least` and
    least_of_row + sign i, up to the smaller of `most` and most_of_row + sign i; all rows of a tile take the steps of
    any of them, and what they read is zero where there is no pair.
    """

    x_at: int
    x_row: int
    x_step: int
    first: int
    last: int
    least: int
    least_of_row: int
    most: int
    most_of_row: int
    sign: int


@compiled
def forward(
    q: Any, k: Any, v: Any, out: Any, strides: Integers, sizes: Integers, causal: bool, scale: np.float32,
    tables: Tables, sums: Array, first: int, last: int,
) -> None:  # fmt: skip
    """out_o = sum_p softmax_p(scale q_o . k_p + scale q_o . rq_{p-o} + k_p . rk_{p-o}) (v_p + rv_{p-o}).

    Args:
        q, k, v, out, strides, sums, first, last: see `line_attention.forward`.
        sizes: outer, inner, heads, length L, key width K, value width W, R < L, tables (1, or one a head), and heads
            that are loaded together, a divisor of all; `first` and `last` are multiples of it.
        scale: of queries; the table of keys is scaled already.
    """
    length, width, value_width, radius, together = sizes[3], sizes[4], sizes[5], sizes[6], sizes[8]
    wide, value_wide = round_up(width, LANES), round_up(value_width, LANES)
    padded = round_up(length + HIGH, LANES)
    row, distance = BEFORE + padded + LANES, row_of_band(length, radius)
    queries, keys = zeros(together * padded * wide), zeros(together * padded * wide)
    values, attended = zeros(together * padded * value_wide), zeros(together * padded * value_wide)
    keys_transposed, weights = zeros(wide * row), zeros((BLOCK + 2 * MARGIN) * distance)
    for m in range(first, last):
        head = m % together
        if head == 0:
            load_heads(q, m, strides[0], sizes, width, scale, queries, padded, wide)
            load_heads(k, m, strides[1], sizes, width, ONE, keys, padded, wide)
            load_heads(v, m, strides[2], sizes, value_width, ONE, values, padded, value_wide)
            clear(attended, 0, together * padded * value_wide)
        at, value_at = head * padded * wide, head * padded * value_wide
        transpose_part(keys, at, wide, padded, wide, keys_transposed, BEFORE, row)
        table = m % sizes[2] % sizes[7]
        value_table = (table * (2 * radius + 1) + radius) * value_wide
        for b in range(0, length, BLOCK):
            band = band_at(b, length, radius, causal)
            score_band(queries, at, wide, width, keys_transposed, row, tables, table, radius, band, weights, distance)
            for o in range(b, b + band.rows):
                to, present = pairs_of(band, o, distance)
                exponentials(weights, to, round_up(present, LANES), present, sums, 2 * (m * length + o))
                sums[m * length + o, 0] = ONE / sums[m * length + o, 0]
                isolate(weights, to, present)
            of_keys, of_offsets = queries_by_keys(band, distance), queries_by_offsets(band, distance)
            to = value_at + b * value_wide
            add_product(weights, of_keys, values, value_at, attended, to, value_wide)
            add_product(weights, of_offsets, tables.value, value_table, attended, to, value_wide)
        if head == together - 1:
            store_normalised(attended, padded, value_wide, out, m - head, strides[3], sizes, value_width, sums)


@compiled
def backward(
    q: Any, k: Any, v: Any, grad: Any, dq: Any, dk: Any, dv: Any, strides: Integers, sizes: Integers, causal: bool,
    scale: np.float32, tables: Tables, sums: Array, d_query: Any, d_key: Any, d_value: Any, bounds: Integers,
    first: int, last: int,
) -> None:  # fmt: skip
    """The gradients of `forward`'s arguments from that of its result; the attention weights are computed again.

    `strides` is [7, 4]: a row each for q, k, v, grad, dq, dk, dv. `first` and `last` count parts: pieces bounds[i] to
    bounds[i + 1] are part i, and add the gradients of the tables' rows, flat [tables, 2R + 1 + HIGH, padded width], to
    rows i of d_query, d_key and d_value. No part is empty, and each has all heads of a line that are loaded together.
    """
    length, width, value_width, radius, together = sizes[3], sizes[4], sizes[5], sizes[6], sizes[8]
    wide, value_wide = round_up(width, LANES), round_up(value_width, LANES)
    padded = round_up(length + HIGH, LANES)
    row, distance = BEFORE + padded + LANES, row_of_band(length, radius)
    size, value_size = together * padded * wide, together * padded * value_wide
    queries, keys, values, grads = zeros(size), zeros(size), zeros(value_size), zeros(value_size)
    d_queries, d_keys, d_values = zeros(size), zeros(size), zeros(value_size)
    keys_transposed, values_transposed = zeros(wide * row), zeros(value_wide * row)
    weights, d_scores = zeros((BLOCK + 2 * MARGIN) * distance), zeros((BLOCK + 2 * MARGIN) * distance)
    i = first
    for m in range(bounds[first], bounds[last]):
        if m == bounds[i + 1]:
            i += 1
        head = m % together
        if head == 0:
            load_heads(q, m, strides[0], sizes, width, scale, queries, padded, wide)
            load_heads(k, m, strides[1], sizes, width, ONE, keys, padded, wide)
            load_heads(v, m, strides[2], sizes, value_width, ONE, values, padded, value_wide)
            load_heads(grad, m, strides[3], sizes, value_width, ONE, grads, padded, value_wide)
            clear(d_queries, 0, size)
            clear(d_keys, 0, size)
            clear(d_values, 0, value_size)
        at, value_at = head * padded * wide, head * padded * value_wide
        transpose_part(keys, at, wide, padded, wide, keys_transposed, BEFORE, row)
        transpose_part(values, value_at, value_wide, padded, value_wide, values_transposed, BEFORE, row)
        table = m % sizes[2] % sizes[7]
        centre, d_centre = table * (2 * radius + 1) + radius, table * (2 * radius + 1 + HIGH) + radius
        for b in range(0, length, BLOCK):
            band = band_at(b, length, radius, causal)
            score_band(queries, at, wide, width, keys_transposed, row, tables, table, radius, band, weights, distance)
            multiply_band(
                grads, value_at, value_wide, value_width, values_transposed, row, tables, table, radius, band, d_scores,
                distance,
            )  # fmt: skip
            for o in range(b, b + band.rows):
                to, present = pairs_of(band, o, distance)
                count, of_row = round_up(present, LANES), 2 * (m * length + o)
                softmax_backward(weights, to, count, present, sums, of_row, d_scores, to)
                isolate(weights, to, present)
                isolate(d_scores, to, present)
            if band.rows < BLOCK:
                rest = (MARGIN + band.rows) * distance
                clear(weights, rest, MARGIN * distance)
                clear(d_scores, rest, MARGIN * distance)
            of_keys, of_offsets, to = queries_by_keys(band, distance), queries_by_offsets(band, distance), at + b * wide
            add_product(d_scores, of_keys, keys, at, d_queries, to, wide)
            add_product(d_scores, of_offsets, tables.query, centre * wide, d_queries, to, wide)
            of_queries = keys_by_queries(band, distance)
            add_product(weights, of_queries, grads, value_at, d_values, value_at, value_wide)
            add_product(d_scores, of_queries, queries, at, d_keys, at, wide)
            of_queries = offsets_by_queries(band, distance)
            add_product(weights, of_queries, grads, value_at, d_value[i], d_centre * value_wide, value_wide)
            add_product(d_scores, of_queries, queries, at, d_query[i], d_centre * wide, wide)
            add_product(d_scores, keys_by_offsets(band, distance), tables.key, centre * wide, d_keys, at, wide)
            add_product(d_scores, offsets_by_keys(band, distance), keys, at, d_key[i], d_centre * wide, wide)
        if head == together - 1:
            store_heads(d_queries, padded, wide, dq, m - head, strides[4], sizes, width, scale)
            store_heads(d_keys, padded, wide, dk, m - head, strides[5], sizes, width, ONE)
            store_heads(d_values, padded, value_wide, dv, m - head, strides[6], sizes, value_width, ONE)


@compiled
def transposed_columns(radius: int) -> int:
    """Columns of a transposed table of the offsets -R .. R: whole vectors are read from any of them on."""
    return round_up(2 * radius + 1 + LANES, LANES)


@part
def band_at(first: int, length: int, radius: int, causal: bool) -> Band:
    """The band of the block of queries from `first` on; its lowest offset is that of a whole block."""
    high = min(0 if causal else radius, length - 1 - first)
    return Band(first, min(BLOCK, length - first), max(-radius, -(first + BLOCK - 1)), high, length)


@part
def row_of_band(length: int, radius: int) -> int:
    """Distance of the rows of a band: margins, and the whole vectors that the softmax writes from any offset on."""
    return 2 * MARGIN + LANES + round_up(min(2 * radius + 1, length + BLOCK), LANES)


@part
def place_in_band(distance: int, band: Band, o: int, d: int) -> int:
    """The index of query o and offset d. MARGIN rows before the first and behind the last stay zero."""
    return (MARGIN + o - band.first) * distance + MARGIN + d - band.low


@part
def score_band(
    queries: Array, at: int, wide: int, width: int, keys_transposed: Array, row: int, tables: Tables, table: int,
    radius: int, band: Band, scores: Array, distance: int,
) -> None:  # fmt: skip
    """The three terms of the scores of a band, of any value where there is no key.

    Offsets are the outer loop: what tiles read of the tables stays in cache for all queries.
    """
    columns = transposed_columns(radius)
    for c in range(0, band.high - band.low + 1, LANES):
        for o in range(band.first, band.first + band.rows, HIGH):
            low, high = offsets(band, o)
            d = low + c
            if d <= high:
                relative_scores(
                    queries, at + o * wide, wide, width, keys_transposed, BEFORE + o + d, row, tables.query_transposed,
                    tables.key_transposed, table * wide * columns + radius + d, columns, scores,
                    place_in_band(distance, band, o, d), distance,
                )  # fmt: skip


@part
def multiply_band(
    grads: Array, at: int, wide: int, width: int, values_transposed: Array, row: int, tables: Tables, table: int,
    radius: int, band: Band, out: Array, distance: int,
) -> None:  # fmt: skip
    """grad_o . (v_p + rv_{p-o}) in a band, of any value where there is no key; see `score_band`."""
    columns = transposed_columns(radius)
    for c in range(0, band.high - band.low + 1, LANES):
        for o in range(band.first, band.first + band.rows, HIGH):
            low, high = offsets(band, o)
            d = low + c
            if d <= high:
                relative_products(
                    grads, at + o * wide, wide, width, values_transposed, BEFORE + o + d, row, tables.value_transposed,
                    table * wide * columns + radius + d, columns, out, place_in_band(distance, band, o, d), distance,
                )  # fmt: skip


@part
def offsets(band: Band, o: int) -> tuple[int, int]:
    """Lowest and highest offset that leads HIGH queries from o on to a key."""
    return max(band.low, -(o + HIGH - 1)), min(band.high, band.length - 1 - o)


@part
def pairs_of(band: Band, o: int, distance: int) -> tuple[int, int]:
    """The place of query o and its first key, and its number of keys."""
    low = max(band.low, -o)
    return place_in_band(distance, band, o, low), min(band.high, band.length - 1 - o) - low + 1


@part
def isolate(x: Array, at: int, present: int) -> None:
    """Zeros before and behind the whole vectors of a query: what is there need not be a number."""
    clear(x, at - MARGIN, MARGIN)
    clear(x, at + round_up(present, LANES), MARGIN)


@part
def queries_by_keys(band: Band, distance: int) -> Product:
    """out_o += sum_p x_{o,p-o} w_p; queries and their rows of `out` count from the first of the band."""
    at, first = place_in_band(distance, band, band.first, -band.first), band.first
    return Product(at, distance - 1, 1, 0, band.rows, 0, first + band.low, band.length - 1, first + band.high, 1)


@part
def queries_by_offsets(band: Band, distance: int) -> Product:
    """out_o += sum_d x_{o,d} w_d; queries and their rows of `out` count from the first of the band."""
    at = place_in_band(distance, band, band.first, 0)
    return Product(
        at, distance, 1, 0, band.rows, band.low, -band.first, band.high, band.length - 1 - band.first, -1
    )  # fmt: skip


@part
def keys_by_queries(band: Band, distance: int) -> Product:
    """out_p += sum_o x_{o,p-o} w_o."""
    at, (first, last), end = place_in_band(distance, band, 0, 0), keys_of(band), band.first + band.rows - 1
    return Product(at, 1, distance - 1, first, last, band.first, -band.high, end, -band.low, 1)


@part
def keys_by_offsets(band: Band, distance: int) -> Product:
    """out_p += sum_d x_{p-d,d} w_d."""
    at, (first, last), end = place_in_band(distance, band, 0, 0), keys_of(band), band.first + band.rows - 1
    return Product(at, distance, 1 - distance, first, last, band.low, -end, band.high, -band.first, 1)


@part
def offsets_by_queries(band: Band, distance: int) -> Product:
    """out_d += sum_o x_{o,d} w_o."""
    at, end = place_in_band(distance, band, 0, 0), band.first + band.rows - 1
    return Product(at, 1, distance, band.low, band.high + 1, band.first, 0, end, band.length - 1, -1)


@part
def offsets_by_keys(band: Band, distance: int) -> Product:
    """out_d += sum_p x_{p-d,d} w_p."""
    at, end = place_in_band(distance, band, 0, 0), band.first + band.rows - 1
    return Product(at, 1 - distance, distance, band.low, band.high + 1, 0, band.first, band.length - 1, end, 1)


@part
def keys_of(band: Band) -> tuple[int, int]:
    """The first key that a query of the band may attend to, and the one behind the last."""
    return max(0, band.first + band.low), min(band.length, band.first + band.rows + band.high)


@part
def add_product(x: Array, product: Product, w: Array, w_at: int, out: Array, out_at: int, wide: int) -> None:
    """out[i] += sum over s of x[i, s] w[s], each `wide` numbers: w[s] at w_at + s wide, out[i] at out_at + i wide."""
    for c in range(0, wide, PANEL):
        rows = ROWS if c + PANEL <= wide else HIGH
        for i in range(product.first, product.last, rows):
            end = i + rows - 1
            low, high = (i, end) if product.sign > 0 else (-end, -i)
            s = max(product.least, product.least_of_row + low)
            count = min(product.most, product.most_of_row + high) - s + 1
            at, from_w, to = product.x_at + i * product.x_row + s * product.x_step, w_at + s * wide, out_at + i * wide
            if count > 0 and rows == ROWS:
                multiply_add(x, at, product.x_row, product.x_step, count, w, from_w + c, wide, out, to + c, wide)
            elif count > 0:
                multiply_add_high(x, at, product.x_row, product.x_step, count, w, from_w + c, wide, out, to + c, wide)
