"""Attention along short lines, forward and backward: LANES lines beside each other.

The places of a line that is shorter than a vector would leave the most of it empty, where they lie beside each other as
in `line_attention`. One head of LANES lines is one piece of work: it is read once, and stays in a core's cache. Tensors
are float32, or bfloat16 as int16 bits.
"""

from typing import Any

import numpy as np

from axial_transformers.kernels.compilation import compiled, part
from axial_transformers.kernels.lanes import gather, products, scatter, softmax, softmax_backward
from axial_transformers.kernels.line_layout import Sizes
from axial_transformers.kernels.llvm import LANES, Array, Integers
from axial_transformers.kernels.register_tiles import HIGH, round_up
from axial_transformers.kernels.staging import ONE, zeros


@compiled
def forward(q: Any, k: Any, v: Any, out: Any, strides: Any, sizes: Sizes, causal: bool, first: int, last: int) -> None:
    """out = softmax(q k^T / sqrt(K)) v, for the pieces `first` to `last`.

    Args:
        q, k, v, out, strides: as of `line_attention.forward`.
        sizes: with widths that are multiples of LANES. Here a piece is LANES lines of one head.
    """
    heads, length, width, value_width = sizes.heads, sizes.length, sizes.width, sizes.value_width
    padded = round_up(length, HIGH)
    queries, keys = zeros(length * width * LANES), zeros(padded * width * LANES)
    values, attended = zeros(length * value_width * LANES), zeros(value_width * LANES)
    scores, starts = zeros(padded * LANES), np.empty((4, LANES), np.int64)
    scale = np.float32(1 / np.sqrt(width))
    for p in range(first, last):
        find_starts(p // heads * LANES, p % heads, strides, sizes, starts)
        load_lines(q, starts[0], strides[0].place, length, width, scale, queries)
        load_lines(k, starts[1], strides[1].place, length, width, ONE, keys)
        load_lines(v, starts[2], strides[2].place, length, value_width, ONE, values)
        for i in range(length):
            reach = i + 1 if causal else length
            score(queries, i, width, keys, reach, scores, 0)
            softmax(scores, 0, reach)
            combine(scores, 0, 1, reach, values, 0, value_width, attended)
            store_place(attended, value_width, ONE, out, starts[3], i * strides[3].place)


@compiled
def backward(
    q: Any, k: Any, v: Any, grad: Any, dq: Any, dk: Any, dv: Any, strides: Any, sizes: Sizes, causal: bool,
    first: int, last: int,
) -> None:  # fmt: skip
    """The gradients of `forward`'s arguments from that of its result; the attention weights are computed again.

    The equations and `strides` are those of `line_attention.backward`.
    """
    heads, length, width, value_width = sizes.heads, sizes.length, sizes.width, sizes.value_width
    padded, widest = round_up(length, HIGH), max(width, value_width)
    queries, keys = zeros(length * width * LANES), zeros(padded * width * LANES)
    values, grads = zeros(padded * value_width * LANES), zeros(length * value_width * LANES)
    weights, d_scores = zeros(length * padded * LANES), zeros(length * padded * LANES)
    combined, starts = zeros(widest * LANES), np.empty((7, LANES), np.int64)
    scale = np.float32(1 / np.sqrt(width))
    for p in range(first, last):
        find_starts(p // heads * LANES, p % heads, strides, sizes, starts)
        load_lines(q, starts[0], strides[0].place, length, width, scale, queries)
        load_lines(k, starts[1], strides[1].place, length, width, ONE, keys)
        load_lines(v, starts[2], strides[2].place, length, value_width, ONE, values)
        load_lines(grad, starts[3], strides[3].place, length, value_width, ONE, grads)
        for i in range(length):
            at, reach = i * padded, i + 1 if causal else length
            score(queries, i, width, keys, reach, weights, at)
            score(grads, i, value_width, values, reach, d_scores, at)
            softmax(weights, at, reach)
            softmax_backward(weights, d_scores, at, reach)
            combine(d_scores, at, 1, reach, keys, 0, width, combined)
            store_place(combined, width, scale, dq, starts[4], i * strides[4].place)
        for key in range(length):
            i = key if causal else 0
            at, left = i * padded + key, length - i
            combine(d_scores, at, padded, left, queries, i, width, combined)
            store_place(combined, width, ONE, dk, starts[5], key * strides[5].place)
            combine(weights, at, padded, left, grads, i, value_width, combined)
            store_place(combined, value_width, ONE, dv, starts[6], key * strides[6].place)


@part
def find_starts(line: int, head: int, strides: Any, sizes: Sizes, starts: Integers) -> None:
    """The offsets of one head of LANES successive lines in each tensor; past the last line, those of the last."""
    inner = sizes.inner
    for lane in range(LANES):
        m = min(line + lane, sizes.outer * inner - 1)
        outer, inside = m // inner, m % inner
        for x in range(len(starts)):
            starts[x, lane] = outer * strides[x].outer + inside * strides[x].inner + head * strides[x].head


@part
def load_lines(x: Any, starts: Integers, stride: int, length: int, width: int, scale: np.float32, out: Array) -> None:
    """The lines from `starts` on, times `scale`, to out: vectors [length, width]."""
    for place in range(length):
        for j in range(0, width, LANES):
            gather(x, starts, place * stride + j, scale, out, (place * width + j) * LANES)


@part
def store_place(x: Array, width: int, scale: np.float32, out: Any, starts: Integers, more: int) -> None:
    """Vectors x [width], times `scale`, to the place of each line that is `more` behind its start."""
    for j in range(0, width, LANES):
        scatter(x, j * LANES, scale, out, starts, more + j)


@part
def score(x: Array, i: int, width: int, rows: Array, count: int, out: Array, out_at: int) -> None:
    """out[out_at + r] = sum over j of x[i, j] rows[r, j], vectors, for r < count and up to HIGH - 1 more."""
    for r in range(0, count, HIGH):
        products(x, i * width, 1, width, rows, r * width, width, 1, out, out_at + r)


@part
def combine(weights: Array, at: int, step: int, count: int, rows: Array, row: int, width: int, out: Array) -> None:
    """out[j] = sum over s of weights[at + s step] rows[row + s, j], vectors, for s < count and j < width."""
    for j in range(0, width, HIGH):
        products(weights, at, step, count, rows, row * width + j, 1, width, out, j)
