"""Attention along lines, a few queries at a time.

A piece of work is one head of one line, in a core's cache. Scores are columns: narrow heads fill vectors too.
"""

from typing import Any

import numpy as np

from axial_transformers.kernels.compilation import compiled, part
from axial_transformers.kernels.line_copies import (
    ONE,
    load_heads,
    rotate_heads,
    rotate_heads_back,
    sizes_of_groups,
    store_heads,
    store_normalised,
    zeros,
)
from axial_transformers.kernels.line_layout import Sizes
from axial_transformers.kernels.llvm import LANES, Array
from axial_transformers.kernels.register_tiles import (
    HIGH,
    PANEL,
    ROWS,
    multiply_add_rows,
    multiply_add_wide,
    multiply_rows,
    multiply_wide,
    round_up,
    transpose_part,
)
from axial_transformers.kernels.softmaxes import column_exponentials, column_softmax_backward
from axial_transformers.kernels.vectors import add, clear

STEPS = 256
"""Keys of a product at a time: their weights stay in a core's first cache."""


@compiled
def forward(
    q: Any, k: Any, v: Any, out: Any, strides: Any, sizes: Sizes, causal: bool, key_mask: Any, bias: Array,
    rotations: Array, sums: Array, first: int, last: int,
) -> None:  # fmt: skip
    """out = softmax(q k^T / sqrt(K) + bias) v, for the pieces `first` to `last`.

    Args:
        q, k, v, out: flat tensors. Number j of a position lies j behind the start that `strides` gives it.
        strides: `Strides` of q, k, v and out.
        sizes: `first` and `last` are multiples of `at_once`. With a bias, `at_once` is 1, and successive pieces share a
            bias, which stays in the cache.
        key_mask: uint8, flat [outer, inner, L], 0 where a key is absent; empty if all are present.
        bias: flat [heads, outer inner / lines to a bias, L, L], keys before queries; or empty.
        rotations: of queries and keys, [L or 0, K]: cosines, then sines; see `line_copies.rotate_heads`.
        sums: [pieces times L, 2], written: the reciprocal of each softmax's denominator (zero without keys), and the
            largest score, which is subtracted before the exponential. `backward` reads them.
    """
    length, width, value_width = sizes.length, sizes.width, sizes.value_width
    group, loaded = sizes.group, sizes.at_once
    padded, wide, value_wide = padded_length(length), round_up(width, LANES), round_up(value_width, LANES)
    shared = loaded // group
    queries, keys = zeros(loaded * padded * wide), zeros((shared * padded + ROWS) * wide)
    values, attended = zeros(shared * padded * value_wide), zeros((loaded * padded + ROWS) * value_wide)
    queries_transposed, scores = zeros(wide * PANEL), zeros((padded + HIGH) * PANEL)
    inverses, largest = zeros(PANEL), zeros(PANEL)
    scale = np.float32(1 / np.sqrt(width))
    of_groups = sizes_of_groups(sizes)
    for p in range(first, last):
        m, bias_at = piece(p, sizes, bias), p // sizes.lines_to_bias * length * length
        head, mask_at = m % loaded, m // sizes.heads * length
        if head == 0:
            load_heads(q, m, strides[0], sizes, width, scale, queries, padded, wide)
            load_heads(k, m // group, strides[1], of_groups, width, ONE, keys, padded, wide)
            rotate_heads(queries, loaded, padded, wide, rotations)
            rotate_heads(keys, shared, padded, wide, rotations)
            load_heads(v, m // group, strides[2], of_groups, value_width, ONE, values, padded, value_wide)
        at, value_at = head // group * padded * wide, head // group * padded * value_wide
        for b in range(0, length, PANEL):
            rows, columns = min(PANEL, length - b), min(PANEL, padded - b)
            reach = b + rows if causal else length
            transpose_part(queries, (head * padded + b) * wide, wide, columns, wide, queries_transposed, 0, PANEL)
            score_columns(
                keys, at, wide, width, queries_transposed, b, columns, reach, causal, key_mask, mask_at, bias, bias_at,
                length, scores,
            )  # fmt: skip
            column_exponentials(scores, reach, columns, ONE, inverses, largest)
            for o in range(rows):
                sums[m * length + b + o, 0] = inverses[o]
                sums[m * length + b + o, 1] = largest[o]
            to = (head * padded + b) * value_wide
            multiply_rows(
                scores, 0, 1, PANEL, reach, values, value_at, value_wide, attended, to, value_wide, rows, value_wide
            )
        if head == loaded - 1:
            store_normalised(attended, padded, value_wide, out, m - head, strides[3], sizes, value_width, sums)


@compiled
def backward(
    q: Any, k: Any, v: Any, grad: Any, dq: Any, dk: Any, dv: Any, strides: Any, sizes: Sizes, causal: bool,
    key_mask: Any, bias: Array, rotations: Array, d_bias: Array, sums: Array, first: int, last: int,
) -> None:  # fmt: skip
    """Write the gradients of `forward`'s arguments, from that of its result.

    The attention weights P are computed again, from the sums that `forward` kept. `strides` are those of q, k, v, grad,
    dq, dk and dv. With dP = grad v^T: dv = P^T grad, dS = P (dP - sum(P dP)), dq = dS k / sqrt(K), dk = dS^T q /
    sqrt(K); d_bias gains the sum of dS.
    """
    length, width, value_width = sizes.length, sizes.width, sizes.value_width
    group, loaded = sizes.group, sizes.at_once
    padded, wide, value_wide = padded_length(length), round_up(width, LANES), round_up(value_width, LANES)
    shared = loaded // group
    size, value_size = (shared * padded + ROWS) * wide, shared * padded * value_wide
    queries, grads = zeros(loaded * padded * wide), zeros(loaded * padded * value_wide)
    keys, values, d_keys, d_values = zeros(size), zeros(value_size), zeros(size), zeros(value_size)
    d_queries, d_queries_transposed = zeros(loaded * padded * wide), zeros(wide * PANEL)
    queries_transposed, grads_transposed = zeros(wide * PANEL), zeros(value_wide * PANEL)
    weights, d_scores = zeros((padded + HIGH) * PANEL), zeros((padded + HIGH) * PANEL)
    inverses, largest = zeros(PANEL), zeros(PANEL)
    scale = np.float32(1 / np.sqrt(width))
    of_groups = sizes_of_groups(sizes)
    for p in range(first, last):
        m, bias_at = piece(p, sizes, bias), p // sizes.lines_to_bias * length * length
        head, mask_at = m % loaded, m // sizes.heads * length
        if head == 0:
            load_heads(q, m, strides[0], sizes, width, scale, queries, padded, wide)
            load_heads(k, m // group, strides[1], of_groups, width, ONE, keys, padded, wide)
            rotate_heads(queries, loaded, padded, wide, rotations)
            rotate_heads(keys, shared, padded, wide, rotations)
            load_heads(v, m // group, strides[2], of_groups, value_width, ONE, values, padded, value_wide)
            load_heads(grad, m, strides[3], sizes, value_width, ONE, grads, padded, value_wide)
            clear(d_keys, 0, size)
            clear(d_values, 0, value_size)
        at, value_at = head // group * padded * wide, head // group * padded * value_wide
        for b in range(0, length, PANEL):
            rows, columns = min(PANEL, length - b), min(PANEL, padded - b)
            reach = b + rows if causal else length
            from_queries, from_grads = (head * padded + b) * wide, (head * padded + b) * value_wide
            transpose_part(queries, from_queries, wide, columns, wide, queries_transposed, 0, PANEL)
            transpose_part(grads, from_grads, value_wide, columns, value_wide, grads_transposed, 0, PANEL)
            score_columns(
                keys, at, wide, width, queries_transposed, b, columns, reach, causal, key_mask, mask_at, bias, bias_at,
                length, weights,
            )  # fmt: skip
            for key in range(0, reach, ROWS):
                from_values, to = value_at + key * value_wide, key * PANEL
                multiply_wide(
                    values, from_values, value_wide, 1, value_width, grads_transposed, 0, PANEL, d_scores, to, PANEL,
                    columns,
                )  # fmt: skip
            clear(inverses, 0, PANEL)  # behind the last query
            for o in range(rows):
                inverses[o] = sums[m * length + b + o, 0]
                largest[o] = sums[m * length + b + o, 1]
            column_softmax_backward(weights, reach, columns, inverses, largest, d_scores)
            clear(weights, reach * PANEL, HIGH * PANEL)  # tiles read more keys
            clear(d_scores, reach * PANEL, HIGH * PANEL)
            if d_bias.size:
                for key in range(reach):
                    add(d_scores, key * PANEL, rows, d_bias, key * length + b)
            combine(keys, at, wide, width, d_scores, reach, columns, d_queries_transposed)
            transpose_part(d_queries_transposed, 0, PANEL, wide, columns, d_queries, from_queries, wide)
            multiply_add_rows(d_scores, 0, PANEL, 1, rows, queries, from_queries, wide, d_keys, at, wide, reach, wide)
            multiply_add_rows(
                weights, 0, PANEL, 1, rows, grads, from_grads, value_wide, d_values, value_at, value_wide, reach,
                value_wide,
            )  # fmt: skip
        if head == loaded - 1:
            at = m - head
            rotate_heads_back(d_queries, loaded, padded, wide, rotations)
            rotate_heads_back(d_keys, shared, padded, wide, rotations)
            store_heads(d_queries, padded, wide, dq, at, strides[4], sizes, width, scale)
            store_heads(d_keys, padded, wide, dk, at // group, strides[5], of_groups, width, ONE)
            store_heads(d_values, padded, value_wide, dv, at // group, strides[6], of_groups, value_width, ONE)


@part
def padded_length(length: int) -> int:
    """Return the positions of a line, padded to whole vectors and whole tiles."""
    return round_up(length, max(LANES, HIGH))


@part
def score_columns(
    keys: Array, at: int, wide: int, width: int, queries_transposed: Array, b: int, columns: int,
    reach: int, causal: bool, key_mask: Any, mask_at: int, bias: Array, bias_at: int, length: int, scores: Array,
) -> None:  # fmt: skip
    """Write the scores [reach, PANEL] of the queries from b on; hidden keys have minus infinity."""
    multiply_rows(keys, at, wide, 1, width, queries_transposed, 0, PANEL, scores, 0, PANEL, reach, columns)
    if bias.size:
        for key in range(reach):
            add(bias, bias_at + key * length + b, min(PANEL, length - b), scores, key * PANEL)
    hide_columns(b, reach, causal, key_mask, mask_at, scores)


@part
def hide_columns(b: int, reach: int, causal: bool, key_mask: Any, mask_at: int, scores: Array) -> None:
    """Write minus infinity for the keys that a query from b on does not attend to."""
    if causal:
        hide_later(b, reach, scores)
    if key_mask.size:
        for key in range(reach):
            if not key_mask[mask_at + key]:
                scores[key * PANEL : (key + 1) * PANEL] = -np.float32(np.inf)


@part
def hide_later(b: int, reach: int, scores: Array) -> None:
    """Write minus infinity for the keys that are later than the query."""
    for key in range(b + 1, reach):
        for o in range(key - b):
            scores[key * PANEL + o] = -np.float32(np.inf)


@part
def combine(
    x: Array, at: int, wide: int, width: int, weights: Array, keys: int, columns: int, out: Array
) -> None:  # fmt: skip
    """out = x^T weights, rows of PANEL."""
    clear(out, 0, wide * PANEL)
    for key in range(0, keys, STEPS):
        for j in range(0, width, ROWS):
            multiply_add_wide(
                x, at + key * wide + j, 1, wide, min(STEPS, keys - key), weights, key * PANEL, PANEL, out, j * PANEL,
                PANEL, columns,
            )  # fmt: skip


@part
def piece(p: int, sizes: Sizes, bias: Array) -> int:
    """Return the piece at `p`; with a bias, lines before heads."""
    lines = sizes.outer * sizes.inner
    return p % lines * sizes.heads + p // lines if bias.size else p
