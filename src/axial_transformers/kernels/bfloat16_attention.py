"""`line_attention` of bfloat16 tensors, on processors that multiply bfloat16 numbers.

Products take bfloat16 numbers as they are, and attention weights and gradients of scores rounded to it. Sums and the
softmax are float32. `bfloat16_tiles` says what words in rows and in pairs are.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from axial_transformers.kernels.bfloat16_tiles import BLOCK, CONFIGURATION, Products, copy_bits, pair_rows
from axial_transformers.kernels.compilation import compiled, part
from axial_transformers.kernels.line_attention import hide_columns, piece
from axial_transformers.kernels.line_copies import (
    AHEAD,
    ONE,
    rotate_heads_back,
    rotate_words,
    sizes_of_groups,
    start,
    store_heads,
    store_normalised,
    zeros,
)
from axial_transformers.kernels.line_layout import Sizes, Strides
from axial_transformers.kernels.llvm import LANES, Array
from axial_transformers.kernels.register_tiles import PANEL, round_up, transpose_part
from axial_transformers.kernels.softmaxes import column_gradients, column_weights
from axial_transformers.kernels.vectors import add, clear, prefetch, widen

Bits = NDArray[np.int16]
"""bfloat16 numbers, flat."""


class Forward(Protocol):
    """See `line_attention.forward`."""

    def __call__(
        self, q: Bits, k: Bits, v: Bits, out: Bits, strides: Sequence[Strides], sizes: Sizes, causal: bool,
        key_mask: NDArray[np.uint8], bias: Array, rotations: Array, sums: Array, first: int, last: int, /,
    ) -> None:  # fmt: skip
        """Write out and sums for the pieces first .. last - 1."""
        ...


class Backward(Protocol):
    """See `line_attention.backward`."""

    def __call__(
        self, q: Bits, k: Bits, v: Bits, grad: Bits, dq: Bits, dk: Bits, dv: Bits, strides: Sequence[Strides],
        sizes: Sizes, causal: bool, key_mask: NDArray[np.uint8], bias: Array, rotations: Array, d_bias: Array,
        sums: Array, first: int, last: int, /,
    ) -> None:  # fmt: skip
        """Write dq, dk, dv and d_bias for the pieces first .. last - 1."""
        ...


class Kernels(NamedTuple):
    """Attention along lines, and its gradient."""

    forward: Forward
    backward: Backward


@cache
def attention_by(products: Products) -> Kernels:
    """Return kernels that multiply by these products."""
    multiple, exchange, multiply_columns, combine, add_combined = products

    @compiled
    def forward(
        q: Any, k: Any, v: Any, out: Any, strides: Any, sizes: Sizes, causal: bool, key_mask: Any, bias: Array,
        rotations: Array, sums: Array, first: int, last: int,
    ) -> None:  # fmt: skip
        length, width, value_width = sizes.length, sizes.width, sizes.value_width
        group, loaded = sizes.group, sizes.at_once
        padded, wide, value_wide = round_up(length, multiple), round_up(width, BLOCK), round_up(value_width, BLOCK)
        shared, words, value_words = loaded // group, wide // 2, value_wide // 2
        queries, keys = zeros(loaded * padded * words), zeros(shared * padded * words)
        values, value_pairs = zeros(shared * padded * value_words), zeros(shared * padded * value_words)
        queries_transposed, scores, weights = zeros(words * PANEL), zeros(padded * PANEL), zeros(padded // 2 * PANEL)
        attended, inverses, largest = zeros(loaded * padded * value_wide), zeros(PANEL), zeros(PANEL)
        of_groups = sizes_of_groups(sizes)
        configuration = np.empty_like(CONFIGURATION)
        exchange(CONFIGURATION, configuration)
        for p in range(first, last):
            m, bias_at = piece(p, sizes, bias), p // sizes.lines_to_bias * length * length
            head, mask_at = m % loaded, m // sizes.heads * length
            if head == 0:
                load_words(q, m, strides[0], sizes, width, queries, padded, wide)
                load_words(k, m // group, strides[1], of_groups, width, keys, padded, wide)
                rotate_words(queries, loaded, padded, wide, rotations)
                rotate_words(keys, shared, padded, wide, rotations)
                load_words(v, m // group, strides[2], of_groups, value_width, values, padded, value_wide)
                pair_rows(values, shared * padded, value_wide, value_pairs)
            row, key_row = head * padded, head // group * padded
            for b in range(0, length, PANEL):
                rows, columns = min(PANEL, length - b), min(PANEL, padded - b, round_up(length, LANES))
                reach = b + rows if causal else length
                transpose_part(queries, (row + b) * words, words, columns, words, queries_transposed, 0, PANEL)
                multiply_columns(keys, key_row * words, words, width, queries_transposed, reach, columns, scores)
                scale = finish_scores(b, reach, width, causal, key_mask, mask_at, bias, bias_at, length, scores)
                column_weights(scores, round_up(reach, 2), columns, scale, weights, inverses, largest)
                for o in range(rows):
                    sums[m * length + b + o, 0] = inverses[o]
                    sums[m * length + b + o, 1] = largest[o]
                combine(
                    weights, reach, value_pairs, key_row * value_words, value_wide, value_width, attended,
                    (row + b) * value_wide, rows, scores,
                )  # fmt: skip
            if head == loaded - 1:
                store_normalised(attended, padded, value_wide, out, m - head, strides[3], sizes, value_width, sums)
        exchange(configuration, np.empty_like(CONFIGURATION))

    @compiled
    def backward(
        q: Any, k: Any, v: Any, grad: Any, dq: Any, dk: Any, dv: Any, strides: Any, sizes: Sizes, causal: bool,
        key_mask: Any, bias: Array, rotations: Array, d_bias: Array, sums: Array, first: int, last: int,
    ) -> None:  # fmt: skip
        length, width, value_width = sizes.length, sizes.width, sizes.value_width
        group, loaded = sizes.group, sizes.at_once
        padded, wide, value_wide = round_up(length, multiple), round_up(width, BLOCK), round_up(value_width, BLOCK)
        shared, words, value_words = loaded // group, wide // 2, value_wide // 2
        size, value_size = shared * padded * words, shared * padded * value_words
        own, own_values = loaded * padded * words, loaded * padded * value_words
        queries, query_pairs, grads, grad_pairs = zeros(own), zeros(own), zeros(own_values), zeros(own_values)
        keys, key_pairs, values = zeros(size), zeros(size), zeros(value_size)
        d_queries, d_keys, d_values = zeros(2 * own), zeros(2 * size), zeros(2 * value_size)
        queries_transposed, grads_transposed = zeros(words * PANEL), zeros(value_words * PANEL)
        scores, d_scores, d_pairs = zeros(padded * PANEL), zeros(padded * PANEL), zeros(padded // 2 * PANEL)
        weight_rows, d_rows = zeros(padded * PANEL // 2), zeros(padded * PANEL // 2)
        inverses, largest = zeros(PANEL), zeros(PANEL)
        of_groups = sizes_of_groups(sizes)
        factor = np.float32(1 / np.sqrt(width))
        configuration = np.empty_like(CONFIGURATION)
        exchange(CONFIGURATION, configuration)
        for p in range(first, last):
            m, bias_at = piece(p, sizes, bias), p // sizes.lines_to_bias * length * length
            head, mask_at = m % loaded, m // sizes.heads * length
            if head == 0:
                load_words(q, m, strides[0], sizes, width, queries, padded, wide)
                load_words(k, m // group, strides[1], of_groups, width, keys, padded, wide)
                rotate_words(queries, loaded, padded, wide, rotations)
                rotate_words(keys, shared, padded, wide, rotations)
                load_words(v, m // group, strides[2], of_groups, value_width, values, padded, value_wide)
                load_words(grad, m, strides[3], sizes, value_width, grads, padded, value_wide)
                pair_rows(queries, loaded * padded, wide, query_pairs)
                pair_rows(keys, shared * padded, wide, key_pairs)
                pair_rows(grads, loaded * padded, value_wide, grad_pairs)
                clear(d_keys, 0, 2 * size)
                clear(d_values, 0, 2 * value_size)
            row, key_row = head * padded, head // group * padded
            for b in range(0, length, PANEL):
                rows, columns = min(PANEL, length - b), min(PANEL, padded - b, round_up(length, LANES))
                reach = b + rows if causal else length
                at, value_at = (row + b) * words, (row + b) * value_words
                key_at, key_value_at = key_row * words, key_row * value_words
                transpose_part(queries, at, words, columns, words, queries_transposed, 0, PANEL)
                transpose_part(grads, value_at, value_words, columns, value_words, grads_transposed, 0, PANEL)
                multiply_columns(keys, key_at, words, width, queries_transposed, reach, columns, scores)
                scale = finish_scores(b, reach, width, causal, key_mask, mask_at, bias, bias_at, length, scores)
                multiply_columns(
                    values, key_value_at, value_words, value_width, grads_transposed, reach, columns, d_scores
                )
                load_sums(sums, m * length + b, rows, inverses, largest)
                column_gradients(
                    scores,
                    round_up(reach, 2),
                    columns,
                    scale,
                    inverses,
                    largest,
                    d_scores,
                    weight_rows,
                    d_rows,
                    d_pairs,
                )
                if d_bias.size:
                    for key in range(reach):
                        add(d_scores, key * PANEL, rows, d_bias, key * length + b)
                combine(d_pairs, reach, key_pairs, key_at, wide, width, d_queries, 2 * at, rows, scores)
                add_combined(d_rows, reach, rows, query_pairs, at, wide, width, d_keys, 2 * key_at)
                add_combined(
                    weight_rows, reach, rows, grad_pairs, value_at, value_wide, value_width, d_values, 2 * key_value_at
                )
            if head == loaded - 1:
                at = m - head
                rotate_heads_back(d_queries, loaded, padded, wide, rotations)
                rotate_heads_back(d_keys, shared, padded, wide, rotations)
                store_heads(d_queries, padded, wide, dq, at, strides[4], sizes, width, factor)
                store_heads(d_keys, padded, wide, dk, at // group, strides[5], of_groups, width, factor)
                store_heads(d_values, padded, value_wide, dv, at // group, strides[6], of_groups, value_width, ONE)
        exchange(configuration, np.empty_like(CONFIGURATION))

    return Kernels(forward, backward)


@part
def load_words(
    x: Any, m: int, strides: Strides, sizes: Sizes, width: int, out: Array, padded: int, wide: int
) -> None:  # fmt: skip
    """Copy the heads that are loaded together, of pieces m, m + 1, .., to words in rows [.., padded, wide / 2]."""
    at = start(m, strides, sizes)
    for row in range(sizes.length):
        for head in range(sizes.at_once):
            from_x = at + row * strides.position + head * strides.head
            prefetch(x, from_x + AHEAD * strides.position, width)
            copy_bits(x, from_x, width, out, (head * padded + row) * wide)


@part
def finish_scores(
    b: int, reach: int, width: int, causal: bool, key_mask: Any, mask_at: int, bias: Array, bias_at: int, length: int,
    scores: Array,
) -> np.float32:  # fmt: skip
    """Turn products of queries and keys into scores, minus infinity for hidden keys; return the factor that they lack.

    If their number of rows is odd, a row of minus infinity follows, since words in pairs hold two.
    """
    scale = np.float32(1 / np.sqrt(width))
    if bias.size:
        for key in range(reach):
            widen(scores, key * PANEL, PANEL, scale, scores, key * PANEL)
            add(bias, bias_at + key * length + b, min(PANEL, length - b), scores, key * PANEL)
        scale = ONE
    hide_columns(b, reach, causal, key_mask, mask_at, scores)
    if reach % 2:
        scores[reach * PANEL : (reach + 1) * PANEL] = -np.float32(np.inf)
    return scale


@part
def load_sums(sums: Array, at: int, rows: int, inverses: Array, largest: Array) -> None:
    """Load the sums that the forward pass kept of successive queries; zeros behind the last."""
    clear(inverses, 0, PANEL)
    clear(largest, 0, PANEL)
    for o in range(rows):
        inverses[o] = sums[at + o, 0]
        largest[o] = sums[at + o, 1]
