"""Position-sensitive attention along lines (Wang et al. 2020, equation 4), forward and backward.

    out_o = sum_p softmax_p(q_o . k_p + q_o . rq_{p-o} + k_p . rk_{p-o}) (v_p + rv_{p-o}),   |p - o| <= R

Each query o has three kinds of scores for each key p, and two of them need the encoding of the offset p - o. So the
scores of a block of queries stand in a band, by query and offset: `relative_tiles` draws it. A table that covers the
whole line is a wide band. Memory holds one band at a time, never the scores of a whole line.

As in `line_attention`, one head of one line is one piece of work. All is float32.

Rows of a band, one for each query, are grouped by AT_ONCE = 4 in the softmax (`weigh_band`). To find the largest score
of a row, to sum its exponentials, and to compute one exponential, each step waits for the step before. Four rows in
turns use that time. They share one loop, so their rows must lie at equal distances, with numbers of keys that change
evenly:

    o = 0      .  .  k  k  k
    o = 1      .  k  k  k  k      the first key is one column further left than in the row before; one key more
    o = 2      k  k  k  k  k      so it is here
    o = 3      k  k  k  k  k      the same column, and as many keys

Where that does not hold for four rows, as for o = 0 .. 3 here, they are taken one by one. So are the last ones of a
block.
"""

from typing import Any, NamedTuple

import numpy as np

from axial_transformers.kernels.compilation import compiled, part
from axial_transformers.kernels.line_copies import ONE, load_heads, store_heads, store_normalised, zeros
from axial_transformers.kernels.line_layout import Sizes
from axial_transformers.kernels.llvm import LANES, Array, Integers
from axial_transformers.kernels.register_tiles import (
    HIGH,
    LARGE,
    PANEL,
    multiply_add_high,
    multiply_add_large,
    multiply_high,
    multiply_large,
    round_up,
    transpose_part,
)
from axial_transformers.kernels.relative_tiles import (
    BESIDE,
    BLOCK,
    MARGIN,
    Band,
    add_both_products,
    add_product,
    band_at,
    index_in_band,
    isolate,
    keys_by_offsets,
    keys_by_queries,
    keys_of,
    line_products,
    line_scores,
    offsets,
    offsets_by_keys,
    offsets_by_queries,
    pairs_of,
    queries_by_keys,
    queries_by_offsets,
    relative_scores,
    row_of_band,
)
from axial_transformers.kernels.softmaxes import AT_ONCE, exponentials, exponentials_of_rows, softmax_backward
from axial_transformers.kernels.vectors import clear

BEFORE = LANES + MARGIN
"""Columns before the first key in transposed keys: tiles of scores read them."""
FIRST = PANEL
"""The column of offset -R in a transposed table: tiles of scores read those before it."""


class Tables(NamedTuple):
    """The encodings of the offsets -R .. R, all flat; those of keys are multiplied by the scale of scores.

    In rows, they are [tables, 2R + 1, width], widths padded with zeros to a multiple of LANES. Transposed, they are
    [tables, width, `transposed_columns`].
    """

    query: Array
    key: Array
    value: Array
    query_transposed: Array
    key_transposed: Array
    value_transposed: Array


@compiled
def forward(
    q: Any, k: Any, v: Any, out: Any, strides: Any, sizes: Sizes, causal: bool, scale: np.float32,
    tables: Tables, sums: Array, first: int, last: int,
) -> None:  # fmt: skip
    """Write equation 4 for the pieces first .. last - 1.

    Args:
        q, k, v, out, strides, sums: see `line_attention.forward`.
        sizes: with radius and tables; no groups of heads.
        scale: of scores: q is multiplied by it here, the table of keys has been.
    """
    length, width, value_width = sizes.length, sizes.width, sizes.value_width
    radius, loaded = sizes.radius, sizes.at_once
    wide, value_wide = round_up(width, LANES), round_up(value_width, LANES)
    padded = round_up(length + HIGH, LANES)
    row, distance = BEFORE + padded + LANES, row_of_band(length, radius)
    queries, keys = zeros((loaded * padded + PANEL) * wide), zeros(loaded * padded * wide)
    values, attended = zeros(loaded * padded * value_wide), zeros(loaded * padded * value_wide)
    keys_transposed, weights = zeros(wide * row), zeros((BLOCK + 2 * MARGIN) * distance)
    everywhere = radius == length - 1
    for m in range(first, last):
        head = m % loaded
        if head == 0:
            load_heads(q, m, strides[0], sizes, width, scale, queries, padded, wide)
            load_heads(k, m, strides[1], sizes, width, ONE, keys, padded, wide)
            load_heads(v, m, strides[2], sizes, value_width, ONE, values, padded, value_wide)
            clear(attended, 0, loaded * padded * value_wide)
        at, value_at = head * padded * wide, head * padded * value_wide
        transpose_part(keys, at, wide, round_up(length, LANES), wide, keys_transposed, BEFORE, row)
        table = m % sizes.heads % sizes.tables
        value_table = (table * (2 * radius + 1) + radius) * value_wide
        for b in range(0, length, BLOCK):
            band = band_at(b, length, radius, causal)
            score_band(queries, at, wide, width, keys_transposed, row, tables, table, radius, band, weights, distance)
            weigh_band(weights, band, distance, sums, m * length)
            of_keys, of_offsets = queries_by_keys(band, distance), queries_by_offsets(band, distance)
            to = value_at + b * value_wide
            add_both_products(
                weights, of_keys, of_offsets, values, value_at, tables.value, value_table, b, 1, everywhere, attended,
                to, value_wide,
            )  # fmt: skip
        if head == loaded - 1:
            store_normalised(attended, padded, value_wide, out, m - head, strides[3], sizes, value_width, sums)


@compiled
def backward(
    q: Any, k: Any, v: Any, grad: Any, dq: Any, dk: Any, dv: Any, strides: Any, sizes: Sizes, causal: bool,
    scale: np.float32, tables: Tables, sums: Array, d_query: Any, d_key: Any, d_value: Any, bounds: Integers,
    first: int, last: int,
) -> None:  # fmt: skip
    """Write the gradients of `forward`'s arguments; the attention weights are computed again.

    Queries of all lines add to the gradient of a table. To keep threads apart, the pieces are divided into parts, and
    each part has sums of its own. The number of parts does not depend on the number of threads, so neither do the sums.

    Args:
        strides: of q, k, v, grad, dq, dk and dv.
        d_query, d_key, d_value: row i of each is written by part i: the gradients of a table, flat
            [tables, 2R + 1 + HIGH, padded width]. Tiles write HIGH rows beyond the last.
        bounds: part i has the pieces bounds[i] .. bounds[i + 1] - 1: at least one, and whole groups of heads that are
            loaded together.
        first, last: the parts to compute, the last one excluded.
    """
    length, width, value_width = sizes.length, sizes.width, sizes.value_width
    radius, loaded = sizes.radius, sizes.at_once
    wide, value_wide = round_up(width, LANES), round_up(value_width, LANES)
    padded = round_up(length + HIGH, LANES)
    row, distance = BEFORE + padded + LANES, row_of_band(length, radius)
    size, value_size = loaded * padded * wide, loaded * padded * value_wide
    queries, keys, values = zeros(size + PANEL * wide), zeros(size), zeros(value_size)
    grads = zeros(value_size + PANEL * value_wide)
    d_queries, d_keys, d_values = zeros(size), zeros(size), zeros(value_size)
    keys_transposed, values_transposed = zeros(wide * row), zeros(value_wide * row)
    weights, d_scores = zeros((BLOCK + 2 * MARGIN) * distance), zeros((BLOCK + 2 * MARGIN) * distance)
    everywhere = radius == length - 1
    i = first
    for m in range(bounds[first], bounds[last]):
        if m == bounds[i + 1]:
            i += 1
        head = m % loaded
        if head == 0:
            load_heads(q, m, strides[0], sizes, width, scale, queries, padded, wide)
            load_heads(k, m, strides[1], sizes, width, ONE, keys, padded, wide)
            load_heads(v, m, strides[2], sizes, value_width, ONE, values, padded, value_wide)
            load_heads(grad, m, strides[3], sizes, value_width, ONE, grads, padded, value_wide)
            clear(d_queries, 0, size)
            clear(d_keys, 0, size)
            clear(d_values, 0, value_size)
        at, value_at = head * padded * wide, head * padded * value_wide
        transpose_part(keys, at, wide, round_up(length, LANES), wide, keys_transposed, BEFORE, row)
        transpose_part(
            values, value_at, value_wide, round_up(length, LANES), value_wide, values_transposed, BEFORE, row
        )
        table = m % sizes.heads % sizes.tables
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
            of_queries, by_queries = keys_by_queries(band, distance), offsets_by_queries(band, distance)
            add_product(weights, of_queries, grads, value_at, d_values, value_at, value_wide)
            add_product(weights, by_queries, grads, value_at, d_value[i], d_centre * value_wide, value_wide)
            of_keys, of_offsets, to = queries_by_keys(band, distance), queries_by_offsets(band, distance), at + b * wide
            add_both_products(
                d_scores, of_keys, of_offsets, keys, at, tables.query, centre * wide, b, 1, everywhere, d_queries, to,
                wide,
            )  # fmt: skip
            of_offsets = keys_by_offsets(band, distance)
            add_both_products(
                d_scores, of_queries, of_offsets, queries, at, tables.key, centre * wide, 0, -1, everywhere, d_keys, at,
                wide,
            )  # fmt: skip
            add_product(d_scores, by_queries, queries, at, d_query[i], d_centre * wide, wide)
            add_product(d_scores, offsets_by_keys(band, distance), keys, at, d_key[i], d_centre * wide, wide)
        if head == loaded - 1:
            store_heads(d_queries, padded, wide, dq, m - head, strides[4], sizes, width, scale)
            store_heads(d_keys, padded, wide, dk, m - head, strides[5], sizes, width, ONE)
            store_heads(d_values, padded, value_wide, dv, m - head, strides[6], sizes, value_width, ONE)


@compiled
def transposed_columns(radius: int) -> int:
    """Return the columns of a transposed table of the offsets -R .. R: tiles read PANEL columns beyond each end."""
    return round_up(FIRST + 2 * radius + 1 + PANEL, LANES)


@part
def score_band(
    queries: Array, at: int, wide: int, width: int, keys_transposed: Array, row: int, tables: Tables, table: int,
    radius: int, band: Band, scores: Array, distance: int,
) -> None:  # fmt: skip
    """Write the scores of a band: three terms. Where there is no key, they are of any value.

    Offsets, or keys, are the outer loop: what tiles read of the tables stays in cache for all queries. With an encoding
    for every offset, tiles are made of keys. On short lines, tiles of offsets would compute half as much again.
    """
    columns = transposed_columns(radius)
    if radius == band.length - 1:
        multiply_lines(
            queries, at, wide, width, keys_transposed, row, tables.query_transposed, tables.key_transposed,
            table * wide * columns + FIRST + radius, columns, band, True, scores, distance,
        )  # fmt: skip
        return
    for c in range(0, band.high - band.low + 1, LANES):
        for o in range(band.first, band.first + band.rows, HIGH):
            low, high = offsets(band, o)
            d = low + c
            if d <= high:
                relative_scores(
                    queries, at + o * wide, wide, width, keys_transposed, BEFORE + o + d, row, tables.query_transposed,
                    tables.key_transposed, table * wide * columns + FIRST + radius + d, columns, scores,
                    index_in_band(distance, band, o, d), distance,
                )  # fmt: skip


@part
def multiply_lines(
    x: Array, at: int, wide: int, width: int, keys: Array, row: int, of_queries: Array, of_keys: Array, table_at: int,
    columns: int, band: Band, scores: bool, out: Array, distance: int,
) -> None:  # fmt: skip
    """Run `line_scores`, or `line_products` unless `scores`, for all queries and keys of a band."""
    count, last = keys_of(band)[1], band.first + band.rows
    for key in range(0, count, PANEL):
        for first in range(band.first, last, PANEL):
            for r in range(first, min(first + LANES, last), BESIDE):
                from_x, from_table, to = at + r * wide, table_at + key - r, index_in_band(distance, band, r, key - r)
                if scores:
                    line_scores(
                        x, from_x, wide, width, keys, BEFORE + key, row, of_queries, of_keys, from_table, columns, out,
                        to, distance - 1,
                    )  # fmt: skip
                else:
                    line_products(
                        x, from_x, wide, width, keys, BEFORE + key, row, of_queries, of_keys, from_table, columns, out,
                        to, distance - 1,
                    )  # fmt: skip


@part
def multiply_band(
    grads: Array, at: int, wide: int, width: int, values_transposed: Array, row: int, tables: Tables, table: int,
    radius: int, band: Band, out: Array, distance: int,
) -> None:  # fmt: skip
    """Write grad_o . v_p + grad_o . rv_{p-o} in a band, of any value where there is no key; see `score_band`.

    In a product with keys, the next query's columns are those of the same keys: its row begins `distance - 1` further.
    """
    columns, value = transposed_columns(radius), tables.value_transposed
    if radius == band.length - 1:
        multiply_lines(
            grads, at, wide, width, values_transposed, row, value, value, table * wide * columns + FIRST + radius,
            columns, band, False, out, distance,
        )  # fmt: skip
        return
    for o in range(band.first, band.first + band.rows, HIGH):
        last = min(band.length - 1, o + HIGH - 1 + band.high)
        for p in range(max(0, o + band.low), last + 1, PANEL):
            from_grads, to = at + o * wide, index_in_band(distance, band, o, p - o)
            if last - p < LANES:
                multiply_high(
                    grads, from_grads, wide, 1, width, values_transposed, BEFORE + p, row, out, to, distance - 1
                )
            else:
                for r in range(0, HIGH, LARGE):
                    multiply_large(
                        grads, from_grads + r * wide, wide, 1, width, values_transposed, BEFORE + p, row, out,
                        to + r * (distance - 1), distance - 1,
                    )  # fmt: skip
    for c in range(0, band.high - band.low + 1, PANEL):
        for o in range(band.first, band.first + band.rows, HIGH):
            low, high = offsets(band, o)
            d = low + c
            from_grads, to = at + o * wide, index_in_band(distance, band, o, d)
            from_table = table * wide * columns + FIRST + radius + d
            if high - LANES < d <= high:
                multiply_add_high(grads, from_grads, wide, 1, width, value, from_table, columns, out, to, distance)
            elif d <= high:
                for r in range(0, HIGH, LARGE):
                    multiply_add_large(
                        grads, from_grads + r * wide, wide, 1, width, value, from_table, columns, out,
                        to + r * distance, distance,
                    )  # fmt: skip


@part
def weigh_band(weights: Array, band: Band, distance: int, sums: Array, at: int) -> None:
    """Turn the scores of a band into exponentials, with zeros around each row's keys.

    Four rows are taken in turns where they lie evenly, see the top of this file.

    Args:
        sums: written from row `at` on: the reciprocal of each sum, and the largest score.
    """
    o, end = band.first, band.first + band.rows
    while o < end:
        to, present = pairs_of(band, o, distance)
        row = more = rows = 0
        if o + AT_ONCE <= end:
            second, of_second = pairs_of(band, o + 1, distance)
            last, of_last = pairs_of(band, o + AT_ONCE - 1, distance)
            row, more = second - to, of_second - present
            rows = AT_ONCE if last - to == (AT_ONCE - 1) * row and of_last - present == (AT_ONCE - 1) * more else 1
        if rows == AT_ONCE:
            count = round_up(max(present, present + (AT_ONCE - 1) * more), LANES)
            exponentials_of_rows(weights, to, row, count, present, more, sums, 2 * (at + o))
        else:
            rows = 1
            exponentials(weights, to, round_up(present, LANES), present, sums, 2 * (at + o))
        for i in range(rows):
            sums[at + o + i, 0] = ONE / sums[at + o + i, 0]
            isolate(weights, to + i * row, present + i * more)
        o += rows
