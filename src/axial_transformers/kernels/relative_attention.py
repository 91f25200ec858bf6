"""Position-sensitive attention along lines (Wang et al. 2020, equation 4), forward and backward.

The scores of a block of queries stand in a band: a row for each query o, a column for each offset d = p - o from it to
a key p. A global table is a wide band. In a band, keys and values of successive queries start one column later, which
a product takes as the distance of its rows or steps; so all sums over the band, those of places as those of table rows,
are one function of register tiles, `add_product`. A band is a few rows of numbers: no line's scores are held.

As in `line_attention`, one head of one line is one piece of work, and is read where it lies. float32 throughout.
"""

from typing import Any, NamedTuple

import numpy as np

from axial_transformers.kernels.compilation import compiled, part
from axial_transformers.kernels.line_attention import ONE, invert_sum, load_rows, prefetch_rows, start, store_rows
from axial_transformers.kernels.llvm import LANES, Array, Integers
from axial_transformers.kernels.register_tiles import (
    PANEL,
    ROWS,
    multiply_add,
    multiply_add_narrow,
    multiply_add_wide,
    relative_scores,
    round_up,
    transpose_tile,
)
from axial_transformers.kernels.vectors import clear, exponentials, narrow, softmax_backward

BLOCK = 32
"""Queries of a band: many enough that a sum over them is seldom stored, few enough for a band to stay in cache."""
ORIGIN = np.int64(0)
"""Zero of a type that numba does not compile a function of its own for."""


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
    """The numbers x[i, s] of a band in sums over s, for the rows first <= i < last, ROWS at a time.

    x[i, s] is number x_at + i x_row + s x_step. The steps of row i are the larger of `least` and
    least_of_row + sign i, up to the smaller of `most` and most_of_row + sign i; the rows after it in a tile take the
    same steps, and what they read is zero where there is no pair.
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
        sizes: outer, inner, heads, length L, key width K, value width W, R < L, and tables: 1, or one a head.
        scale: of queries; the table of keys is scaled already.
    """
    length, width, value_width = sizes[3], sizes[4], sizes[5]
    wide, value_wide = round_up(width, LANES), round_up(value_width, LANES)
    padded, row = round_up(length + ROWS, LANES), 3 * LANES + round_up(length + ROWS, LANES)
    queries, keys = np.zeros(padded * wide, np.float32), np.zeros(padded * wide, np.float32)
    values, keys_transposed = np.zeros(padded * value_wide, np.float32), np.zeros(wide * row, np.float32)
    attended = np.empty((BLOCK + ROWS) * value_wide, np.float32)
    distance = row_of_band(length, sizes[6])
    weights = np.zeros((BLOCK + 2 * ROWS) * distance, np.float32)
    for m in range(first, last):
        load_rows(q, start(m, strides[0], sizes), strides[0, 3], length, width, scale, queries, wide)
        load_rows(k, start(m, strides[1], sizes), strides[1, 3], length, width, ONE, keys, wide)
        load_rows(v, start(m, strides[2], sizes), strides[2, 3], length, value_width, ONE, values, value_wide)
        transpose_behind_zeros(keys, padded, wide, keys_transposed, row)
        if m + 1 < last:
            prefetch_rows(q, m + 1, strides[0], sizes, width)
            prefetch_rows(k, m + 1, strides[1], sizes, width)
            prefetch_rows(v, m + 1, strides[2], sizes, value_width)
        table = m % sizes[2] % sizes[7]
        value_table = (table * (2 * sizes[6] + 1) + sizes[6]) * value_wide
        out_start = start(m, strides[3], sizes)
        for b in range(0, length, BLOCK):
            band = band_at(b, length, sizes[6], causal)
            score_band(queries, wide, width, keys_transposed, row, tables, table, sizes[6], band, weights, distance)
            for o in range(b, b + band.rows):
                at, present = pairs_of(band, o, distance)
                isolate(weights, at, present)
                exponentials(weights, at, round_up(present, LANES), present, sums, 2 * (m * length + o))
            clear(attended, 0, len(attended))
            of_keys, of_offsets = queries_by_keys(band, distance), queries_by_offsets(band, distance)
            add_product(weights, of_keys, values, ORIGIN, attended, ORIGIN, value_wide)
            add_product(weights, of_offsets, tables.value, value_table, attended, ORIGIN, value_wide)
            for o in range(b, b + band.rows):
                inverse = invert_sum(sums, m * length + o)
                narrow(attended, (o - b) * value_wide, value_width, inverse, out, out_start + o * strides[3, 3])


@compiled
def backward(
    q: Any, k: Any, v: Any, grad: Any, dq: Any, dk: Any, dv: Any, strides: Integers, sizes: Integers, causal: bool,
    scale: np.float32, tables: Tables, sums: Array, d_query: Array, d_key: Array, d_value: Array, first: int, last: int,
) -> None:  # fmt: skip
    """The gradients of `forward`'s arguments from that of its result; the attention weights are computed again.

    `strides` is [7, 4]: a row each for q, k, v, grad, dq, dk, dv. The gradients of the tables' rows, flat
    [tables, 2R + 1 + ROWS, padded width], are added to d_query, d_key and d_value.
    """
    length, width, value_width, radius = sizes[3], sizes[4], sizes[5], sizes[6]
    wide, value_wide = round_up(width, LANES), round_up(value_width, LANES)
    padded, row = round_up(length + ROWS, LANES), 3 * LANES + round_up(length + ROWS, LANES)
    queries, keys = np.zeros(padded * wide, np.float32), np.zeros(padded * wide, np.float32)
    values, grads = np.zeros(padded * value_wide, np.float32), np.zeros(padded * value_wide, np.float32)
    keys_transposed, values_transposed = np.zeros(wide * row, np.float32), np.zeros(value_wide * row, np.float32)
    distance = row_of_band(length, radius)
    weights = np.zeros((BLOCK + 2 * ROWS) * distance, np.float32)
    d_scores = np.zeros((BLOCK + 2 * ROWS) * distance, np.float32)
    d_queries = np.empty((BLOCK + ROWS) * wide, np.float32)
    d_keys, d_values = np.empty(padded * wide, np.float32), np.empty(padded * value_wide, np.float32)
    for m in range(first, last):
        load_rows(q, start(m, strides[0], sizes), strides[0, 3], length, width, scale, queries, wide)
        load_rows(k, start(m, strides[1], sizes), strides[1, 3], length, width, ONE, keys, wide)
        load_rows(v, start(m, strides[2], sizes), strides[2, 3], length, value_width, ONE, values, value_wide)
        load_rows(grad, start(m, strides[3], sizes), strides[3, 3], length, value_width, ONE, grads, value_wide)
        transpose_behind_zeros(keys, padded, wide, keys_transposed, row)
        transpose_behind_zeros(values, padded, value_wide, values_transposed, row)
        if m + 1 < last:
            prefetch_rows(q, m + 1, strides[0], sizes, width)
            prefetch_rows(k, m + 1, strides[1], sizes, width)
            prefetch_rows(v, m + 1, strides[2], sizes, value_width)
            prefetch_rows(grad, m + 1, strides[3], sizes, value_width)
        table = m % sizes[2] % sizes[7]
        centre, d_centre = table * (2 * radius + 1) + radius, table * (2 * radius + 1 + ROWS) + radius
        clear(d_keys, 0, len(d_keys))
        clear(d_values, 0, len(d_values))
        dq_start = start(m, strides[4], sizes)
        for b in range(0, length, BLOCK):
            band = band_at(b, length, radius, causal)
            score_band(queries, wide, width, keys_transposed, row, tables, table, radius, band, weights, distance)
            multiply_band(
                grads, value_wide, value_width, values_transposed, row, tables, table, radius, band, d_scores, distance
            )
            for o in range(b, b + band.rows):
                at, present = pairs_of(band, o, distance)
                isolate(weights, at, present)
                isolate(d_scores, at, present)
                count, of_row = round_up(present, LANES), 2 * (m * length + o)
                softmax_backward(weights, at, count, present, sums, of_row, d_scores, at)
            if band.rows < BLOCK:
                rest = (ROWS + band.rows) * distance
                clear(weights, rest, ROWS * distance)
                clear(d_scores, rest, ROWS * distance)
            clear(d_queries, 0, len(d_queries))
            of_keys, of_offsets = queries_by_keys(band, distance), queries_by_offsets(band, distance)
            add_product(d_scores, of_keys, keys, ORIGIN, d_queries, ORIGIN, wide)
            add_product(d_scores, of_offsets, tables.query, centre * wide, d_queries, ORIGIN, wide)
            store_rows(d_queries, wide, band.rows, width, scale, dq, dq_start + b * strides[4, 3], strides[4, 3])
            of_queries = keys_by_queries(band, distance)
            add_product(weights, of_queries, grads, ORIGIN, d_values, ORIGIN, value_wide)
            add_product(d_scores, of_queries, queries, ORIGIN, d_keys, ORIGIN, wide)
            of_queries = offsets_by_queries(band, distance)
            add_product(weights, of_queries, grads, ORIGIN, d_value, d_centre * value_wide, value_wide)
            add_product(d_scores, of_queries, queries, ORIGIN, d_query, d_centre * wide, wide)
            add_product(d_scores, keys_by_offsets(band, distance), tables.key, centre * wide, d_keys, ORIGIN, wide)
            add_product(d_scores, offsets_by_keys(band, distance), keys, ORIGIN, d_key, d_centre * wide, wide)
        store_rows(d_keys, wide, length, width, ONE, dk, start(m, strides[5], sizes), strides[5, 3])
        store_rows(d_values, value_wide, length, value_width, ONE, dv, start(m, strides[6], sizes), strides[6, 3])


@compiled
def transposed_columns(radius: int) -> int:
    """Columns of a transposed table of the offsets -R .. R: whole tiles are read from any of them on."""
    return round_up(2 * radius + 1 + ROWS, LANES) + PANEL


@part
def band_at(first: int, length: int, radius: int, causal: bool) -> Band:
    """The band of the block of queries from `first` on; its lowest offset is that of a whole block."""
    high = min(0 if causal else radius, length - 1 - first)
    return Band(first, min(BLOCK, length - first), max(-radius, -(first + BLOCK - 1)), high, length)


@part
def row_of_band(length: int, radius: int) -> int:
    """Distance of the rows of a band: what tiles write behind the last offset, and zeros before the first, fit in."""
    return 2 * LANES + round_up(min(2 * radius + 1, length + BLOCK) + ROWS, LANES)


@part
def offsets(band: Band, r: int) -> tuple[int, int]:
    """Lowest and highest offset that leads ROWS queries from row r on to a key."""
    o = band.first + r
    return max(band.low, -(o + ROWS - 1)), min(band.high, band.length - 1 - o)


@part
def place_in_band(distance: int, band: Band, o: int, d: int) -> int:
    """The index of query o and offset d. ROWS rows before the first and behind the last stay zero."""
    return (ROWS + o - band.first) * distance + LANES + d - band.low


@part
def score_band(
    queries: Array, wide: int, width: int, keys_transposed: Array, row: int, tables: Tables, table: int, radius: int,
    band: Band, scores: Array, distance: int,
) -> None:  # fmt: skip
    """The three terms of the scores of a band, of any value where there is no key."""
    columns = transposed_columns(radius)
    for r in range(0, band.rows, ROWS):
        o = band.first + r
        low, high = offsets(band, r)
        at, table_at = place_in_band(distance, band, o, low), table * wide * columns + radius + low
        for c in range(0, high - low + 1, LANES):
            relative_scores(
                queries, o * wide, wide, width, keys_transposed, LANES + o + low + c, row,
                tables.query_transposed, tables.key_transposed, table_at + c, columns, scores, at + c, distance,
            )  # fmt: skip


@part
def multiply_band(
    grads: Array, wide: int, width: int, values_transposed: Array, row: int, tables: Tables, table: int, radius: int,
    band: Band, out: Array, distance: int,
) -> None:  # fmt: skip
    """grad_o . (v_p + rv_{p-o}) in a band, of any value where there is no key."""
    columns = transposed_columns(radius)
    for r in range(0, band.rows, ROWS):
        o = band.first + r
        low, high = offsets(band, r)
        at, count = place_in_band(distance, band, o, low), round_up(high - low + 1, LANES)
        for i in range(ROWS):
            clear(out, at + i * distance, count)
        table_at = table * wide * columns + radius + low
        multiply_add_wide(
            grads, o * wide, wide, 1, width, tables.value_transposed, table_at, columns, out, at, distance, count
        )
        p, last = max(0, o + low), min(band.length - 1, o + ROWS - 1 + high)
        multiply_add_wide(
            grads, o * wide, wide, 1, width, values_transposed, LANES + p, row, out, at + p - o - low, distance - 1,
            round_up(last - p + 1, LANES),
        )  # fmt: skip


@part
def pairs_of(band: Band, o: int, distance: int) -> tuple[int, int]:
    """The place of query o and its first key, and its number of keys."""
    low = max(band.low, -o)
    return place_in_band(distance, band, o, low), min(band.high, band.length - 1 - o) - low + 1


@part
def isolate(x: Array, at: int, present: int) -> None:
    """Zeros before and behind the numbers of a query: tiles read them, and what is there need not be a number."""
    clear(x, at - LANES, LANES)
    clear(x, at + present, LANES)


@part
def queries_by_keys(band: Band, distance: int) -> Product:
    """out_o += sum_p x_{o,p-o} w_p; queries and their rows of `out` count from the first of the band."""
    first = band.first
    at = place_in_band(distance, band, first, -first)
    least, most = first + band.low, first + ROWS - 1 + band.high
    return Product(at, distance - 1, 1, 0, band.rows, 0, least, band.length - 1, most, 1)


@part
def queries_by_offsets(band: Band, distance: int) -> Product:
    """out_o += sum_d x_{o,d} w_d; queries and their rows of `out` count from the first of the band."""
    first = band.first
    at = place_in_band(distance, band, first, ORIGIN)
    least, most = -(first + ROWS - 1), band.length - 1 - first
    return Product(at, distance, 1, 0, band.rows, band.low, least, band.high, most, -1)


@part
def keys_by_queries(band: Band, distance: int) -> Product:
    """out_p += sum_o x_{o,p-o} w_o."""
    at, (first, last) = place_in_band(distance, band, ORIGIN, ORIGIN), keys_of(band)
    least, most = -band.high, ROWS - 1 - band.low
    return Product(at, 1, distance - 1, first, last, band.first, least, band.first + band.rows - 1, most, 1)


@part
def keys_by_offsets(band: Band, distance: int) -> Product:
    """out_p += sum_d x_{p-d,d} w_d."""
    at, (first, last) = place_in_band(distance, band, ORIGIN, ORIGIN), keys_of(band)
    least, most = -(band.first + band.rows - 1), ROWS - 1 - band.first
    return Product(at, distance, 1 - distance, first, last, band.low, least, band.high, most, 1)


@part
def offsets_by_queries(band: Band, distance: int) -> Product:
    """out_d += sum_o x_{o,d} w_o."""
    at, last = place_in_band(distance, band, ORIGIN, ORIGIN), band.first + band.rows - 1
    return Product(at, 1, distance, band.low, band.high + 1, band.first, -(ROWS - 1), last, band.length - 1, -1)


@part
def offsets_by_keys(band: Band, distance: int) -> Product:
    """out_d += sum_p x_{p-d,d} w_p."""
    at, most = place_in_band(distance, band, ORIGIN, ORIGIN), band.first + band.rows - 1 + ROWS - 1
    return Product(at, 1 - distance, distance, band.low, band.high + 1, 0, band.first, band.length - 1, most, 1)


@part
def keys_of(band: Band) -> tuple[int, int]:
    """The first key that a query of the band may attend to, and the one behind the last."""
    return max(0, band.first + band.low), min(band.length, band.first + band.rows + band.high)


@part
def add_product(x: Array, product: Product, w: Array, w_at: int, out: Array, out_at: int, wide: int) -> None:
    """out[i] += sum over s of x[i, s] w[s], each `wide` numbers: w[s] at w_at + s wide, out[i] at out_at + i wide."""
    for c in range(0, wide, PANEL):
        for i in range(product.first, product.last, ROWS):
            s = max(product.least, product.least_of_row + product.sign * i)
            count = min(product.most, product.most_of_row + product.sign * i) - s + 1
            at, from_w, to = (
                product.x_at + i * product.x_row + s * product.x_step,
                w_at + s * wide + c,
                out_at + i * wide + c,
            )
            if count > 0 and c + PANEL <= wide:
                multiply_add(x, at, product.x_row, product.x_step, count, w, from_w, wide, out, to, wide)
            elif count > 0:
                multiply_add_narrow(x, at, product.x_row, product.x_step, count, w, from_w, wide, out, to, wide)


@part
def transpose_behind_zeros(x: Array, rows: int, columns: int, out: Array, out_row: int) -> None:
    """[rows, columns] -> [columns, LANES + rows ..], rows of `out_row` numbers; both sizes are multiples of LANES."""
    for r in range(0, rows, LANES):
        for c in range(0, columns, LANES):
            transpose_tile(x, r * columns + c, columns, out, c * out_row + LANES + r, out_row)
