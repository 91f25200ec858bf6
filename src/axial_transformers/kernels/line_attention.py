"""Attention along lines, forward and backward: the scores of a few queries at a time, and no copy of the tensors.

Queries, keys and values are read where a linear layer left them, along any axis. One head of one line is one piece of
work: it is converted to float32, padded with zeros to whole tiles, and stays in a core's cache. Tensors are float32, or
bfloat16 as int16 bits.
"""

from typing import Any

import numpy as np

from axial_transformers.kernels.compilation import compiled, part
from axial_transformers.kernels.llvm import LANES, Array, Integers
from axial_transformers.kernels.register_tiles import PANEL, ROWS, multiply_add_wide, multiply_wide, round_up, transpose
from axial_transformers.kernels.vectors import (
    TOGETHER,
    add,
    exponentials_together,
    narrow,
    prefetch,
    softmax_backward,
    widen,
)

ONE = np.float32(1)
assert TOGETHER == ROWS


@compiled
def forward(
    q: Any, k: Any, v: Any, out: Any, strides: Integers, sizes: Integers, causal: bool, key_mask: Any, bias: Array,
    sums: Array, first: int, last: int,
) -> None:  # fmt: skip
    """out = softmax(q k^T / sqrt(K) + bias) v, for the pieces `first` to `last`.

    Args:
        q, k, v, out: flat; element (o, i, head, place, j) lies at (o, i, head, place) . (its row of `strides`) + j.
        strides: int64 [4, 4], a row each for q, k, v, out.
        sizes: outer, inner, heads, length L, key width K, value width W, lines to a bias, heads to a group. A piece is
            one (o, i, head), the head counted fastest; with a bias, slowest, so that successive pieces have the same
            one in cache. The heads of a group have the same keys and values; `first` and `last` are whole groups, and
            with a bias a group is one head.
        key_mask: uint8, flat [outer, inner, L], 0 where a key is absent; of size 0 if all are present.
        bias: flat [heads, outer inner / lines to a bias, L, L], or of size 0.
        sums: [pieces times L, 2], written: the reciprocal of each softmax's denominator (zero if the query attends to
            nothing), and the largest score, which is subtracted before the exponential.
    """
    length, width, value_width = sizes[3], sizes[4], sizes[5]
    padded, wide, value_wide = round_up(length, LANES), round_up(width, LANES), round_up(value_width, LANES)
    queries, keys = np.zeros(padded * wide, np.float32), np.zeros(padded * wide, np.float32)
    keys_transposed = np.zeros(wide * padded, np.float32)
    values = np.zeros(padded * value_wide, np.float32)
    scores, attended = np.zeros(ROWS * padded, np.float32), np.zeros(ROWS * value_wide, np.float32)
    sums_of_rows, more = np.empty(2 * ROWS, np.float32), int(causal)
    scale = np.float32(1 / np.sqrt(width))
    group, of_groups = sizes[7], sizes.copy()
    of_groups[2] //= group
    for p in range(first, last):
        m, following = piece(p, sizes, bias), piece(p + 1, sizes, bias)
        line, bias_at = m // sizes[2], p // sizes[6] * length * length
        load_rows(q, start(m, strides[0], sizes), strides[0, 3], length, width, scale, queries, wide)
        if m % group == 0:
            at, to = start(m // group, strides[1], of_groups), start(m // group, strides[2], of_groups)
            load_rows(k, at, strides[1, 3], length, width, ONE, keys, wide)
            load_rows(v, to, strides[2, 3], length, value_width, ONE, values, value_wide)
            transpose(keys, padded, wide, keys_transposed)
        if p + 1 < last:
            prefetch_rows(q, following, strides[0], sizes, width)
            prefetch_rows(k, following // group, strides[1], of_groups, width)
            prefetch_rows(v, following // group, strides[2], of_groups, value_width)
        out_start = start(m, strides[3], sizes)
        for r in range(0, length, ROWS):
            reach = min(length, r + ROWS) if causal else length
            columns = round_up(reach, LANES)
            multiply_wide(queries, r * wide, wide, 1, width, keys_transposed, 0, padded, scores, 0, padded, columns)
            rows = min(ROWS, length - r)
            for row in range(rows):
                present = r + row + 1 if causal else length
                if bias.size:
                    add(bias, bias_at + (r + row) * length, present, scores, row * padded)
                if key_mask.size:
                    mask_scores(scores, row * padded, present, key_mask, line * length)
            present = r + 1 if causal else length
            exponentials_together(scores, 0, padded, columns, present, more, sums_of_rows, 0)
            multiply_wide(scores, 0, padded, 1, reach, values, 0, value_wide, attended, 0, value_wide, value_wide)
            for row in range(rows):
                of_row = m * length + r + row
                sums[of_row, 0], sums[of_row, 1] = sums_of_rows[2 * row], sums_of_rows[2 * row + 1]
                inverse = invert_sum(sums, of_row)
                narrow(attended, row * value_wide, value_width, inverse, out, out_start + (r + row) * strides[3, 3])


@compiled
def backward(
    q: Any, k: Any, v: Any, grad: Any, dq: Any, dk: Any, dv: Any, strides: Integers, sizes: Integers, causal: bool,
    key_mask: Any, bias: Array, d_bias: Array, sums: Array, first: int, last: int,
) -> None:  # fmt: skip
    """The gradients of `forward`'s arguments from that of its result; the attention weights are computed again.

    `strides` is [7, 4]: a row each for q, k, v, grad, dq, dk, dv. With weights P and their gradient dP = grad v^T:
    dv = P^T grad, dS = P (dP - sum(P dP)), dq = dS k / sqrt(K), dk = dS^T q / sqrt(K). Unless d_bias is of
    size 0, the pieces must have the same bias, and d_bias, flat [L, L], becomes the sum of dS over them and itself.
    """
    length, width, value_width = sizes[3], sizes[4], sizes[5]
    padded, wide, value_wide = round_up(length, LANES), round_up(width, LANES), round_up(value_width, LANES)
    queries, keys = np.zeros(padded * wide, np.float32), np.zeros(padded * wide, np.float32)
    values, grads = np.zeros(padded * value_wide, np.float32), np.zeros(padded * value_wide, np.float32)
    keys_transposed = np.zeros(wide * padded, np.float32)
    values_transposed = np.zeros(value_wide * padded, np.float32)
    weights, d_scores = np.zeros(PANEL * padded, np.float32), np.zeros(PANEL * padded, np.float32)
    d_queries = np.zeros(ROWS * wide, np.float32)
    d_keys, d_values = np.empty(padded * wide, np.float32), np.empty(padded * value_wide, np.float32)
    scale = np.float32(1 / np.sqrt(width))
    group, of_groups = sizes[7], sizes.copy()
    of_groups[2] //= group
    for p in range(first, last):
        m, following = piece(p, sizes, bias), piece(p + 1, sizes, bias)
        line, bias_at = m // sizes[2], p // sizes[6] * length * length
        load_rows(q, start(m, strides[0], sizes), strides[0, 3], length, width, scale, queries, wide)
        load_rows(grad, start(m, strides[3], sizes), strides[3, 3], length, value_width, ONE, grads, value_wide)
        if m % group == 0:
            at, to = start(m // group, strides[1], of_groups), start(m // group, strides[2], of_groups)
            load_rows(k, at, strides[1, 3], length, width, ONE, keys, wide)
            load_rows(v, to, strides[2, 3], length, value_width, ONE, values, value_wide)
            transpose(keys, padded, wide, keys_transposed)
            transpose(values, padded, value_wide, values_transposed)
            d_keys[:] = 0
            d_values[:] = 0
        if p + 1 < last:
            prefetch_rows(q, following, strides[0], sizes, width)
            prefetch_rows(k, following // group, strides[1], of_groups, width)
            prefetch_rows(v, following // group, strides[2], of_groups, value_width)
            prefetch_rows(grad, following, strides[3], sizes, value_width)
        dq_start = start(m, strides[4], sizes)
        for b in range(0, length, PANEL):
            rows = min(PANEL, length - b)
            reach = b + rows if causal else length
            columns = round_up(reach, LANES)
            for r in range(0, rows, ROWS):
                at, to = (b + r) * wide, r * padded
                multiply_wide(queries, at, wide, 1, width, keys_transposed, 0, padded, weights, to, padded, columns)
                at = (b + r) * value_wide
                multiply_wide(
                    grads, at, value_wide, 1, value_width, values_transposed, 0, padded, d_scores, to, padded, columns
                )
            for row in range(rows):
                present = b + row + 1 if causal else length
                if bias.size:
                    add(bias, bias_at + (b + row) * length, present, weights, row * padded)
                if key_mask.size:
                    mask_scores(weights, row * padded, present, key_mask, line * length)
                at, of_row = row * padded, m * length + b + row
                softmax_backward(weights, at, columns, present, sums, 2 * of_row, d_scores, at)
                if d_bias.size:
                    add(d_scores, at, present, d_bias, (b + row) * length)
            for r in range(0, rows, ROWS):
                multiply_wide(d_scores, r * padded, padded, 1, reach, keys, 0, wide, d_queries, 0, wide, wide)
                count, to = min(ROWS, rows - r), dq_start + (b + r) * strides[4, 3]
                store_rows(d_queries, wide, count, width, scale, dq, to, strides[4, 3])
            for key in range(0, reach, ROWS):
                at, to = b * wide, key * wide
                multiply_add_wide(d_scores, key, 1, padded, rows, queries, at, wide, d_keys, to, wide, wide)
                at, to = b * value_wide, key * value_wide
                multiply_add_wide(
                    weights, key, 1, padded, rows, grads, at, value_wide, d_values, to, value_wide, value_wide
                )
        if (m + 1) % group == 0:
            at, to = start(m // group, strides[5], of_groups), start(m // group, strides[6], of_groups)
            store_rows(d_keys, wide, length, width, ONE, dk, at, strides[5, 3])
            store_rows(d_values, value_wide, length, value_width, ONE, dv, to, strides[6, 3])


@part
def start(m: int, strides: Integers, sizes: Integers) -> int:
    """The offset of piece `m`: heads are counted fastest, then inner, then outer."""
    heads, inner = sizes[2], sizes[1]
    return m // heads // inner * strides[0] + m // heads % inner * strides[1] + m % heads * strides[2]


@part
def load_rows(x: Any, at: int, stride: int, rows: int, width: int, scale: np.float32, out: Array, wide: int) -> None:
    """Rows of x, `stride` apart, times `scale`, into rows of out, `wide` apart."""
    for row in range(rows):
        widen(x, at + row * stride, width, scale, out, row * wide)


@part
def store_rows(x: Array, wide: int, rows: int, width: int, scale: np.float32, out: Any, at: int, stride: int) -> None:
    """Rows of x, `wide` apart, times `scale`, into rows of out, `stride` apart."""
    for row in range(rows):
        narrow(x, row * wide, width, scale, out, at + row * stride)


@part
def prefetch_rows(x: Any, m: int, strides: Integers, sizes: Integers, width: int) -> None:
    """Prefetch of piece `m` of x."""
    at = start(m, strides, sizes)
    for row in range(sizes[3]):
        prefetch(x, at + row * strides[3], width)


@part
def mask_scores(scores: Array, at: int, count: int, key_mask: Any, line: int) -> None:
    """The scores of absent keys become minus infinity."""
    for j in range(count):
        if not key_mask[line + j]:
            scores[at + j] = -np.float32(np.inf)


@part
def piece(p: int, sizes: Integers, bias: Array) -> int:
    """The number of the piece that comes at place `p`: with a bias, all lines of a head come before the next head."""
    lines = sizes[0] * sizes[1]
    return p % lines * sizes[2] + p // lines if bias.size else p


@part
def invert_sum(sums: Array, row: int) -> np.float32:
    """Replaces a row's sum by its reciprocal; zero stays zero."""
    total = sums[row, 0]
    sums[row, 0] = ONE / total if total > 0 else total
    return sums[row, 0]
