"""`line_attention` of bfloat16 tensors where vectors hold pairs of factors: functions of the same arguments.

Rounding is that of `tile_attention`; `pair_tiles` has the products, `matrix_tiles` the words in rows and in pairs.
"""

from typing import Any

import numpy as np

from axial_transformers.kernels.compilation import compiled, part
from axial_transformers.kernels.line_attention import padded_length, piece
from axial_transformers.kernels.line_layout import Sizes
from axial_transformers.kernels.llvm import LANES, Array
from axial_transformers.kernels.matrix_tiles import BLOCK, pair_rows
from axial_transformers.kernels.pair_tiles import multiply_add_pairs, multiply_pairs
from axial_transformers.kernels.register_tiles import PANEL, round_up, transpose_part
from axial_transformers.kernels.rotated_lines import rotate_heads_back, rotate_words
from axial_transformers.kernels.softmaxes import column_gradients, column_weights
from axial_transformers.kernels.staging import ONE, sizes_of_groups, store_heads, store_normalised, zeros
from axial_transformers.kernels.tile_attention import finish_scores, load_sums, load_words
from axial_transformers.kernels.vectors import add, clear


@compiled
def forward(
    q: Any, k: Any, v: Any, out: Any, strides: Any, sizes: Sizes, causal: bool, key_mask: Any, bias: Array,
    rotations: Array, sums: Array, first: int, last: int,
) -> None:  # fmt: skip
    """See `line_attention.forward`."""
    length, width, value_width = sizes.length, sizes.width, sizes.value_width
    group, together = sizes.group, sizes.together
    padded, wide, value_wide = padded_length(length), round_up(width, BLOCK), round_up(value_width, BLOCK)
    shared, words, value_words = together // group, wide // 2, value_wide // 2
    queries, keys = zeros(together * padded * words), zeros(shared * padded * words)
    values, value_pairs = zeros(shared * padded * value_words), zeros(shared * padded * value_words)
    queries_transposed, scores, weights = zeros(words * PANEL), zeros(padded * PANEL), zeros(padded // 2 * PANEL)
    attended, inverses, largest = zeros(together * padded * value_wide), zeros(PANEL), zeros(PANEL)
    of_groups = sizes_of_groups(sizes)
    for p in range(first, last):
        m, bias_at = piece(p, sizes, bias), p // sizes.lines_to_bias * length * length
        head, mask_at = m % together, m // sizes.heads * length
        if head == 0:
            load_words(q, m, strides[0], sizes, width, queries, padded, wide)
            load_words(k, m // group, strides[1], of_groups, width, keys, padded, wide)
            rotate_words(queries, together, padded, wide, rotations)
            rotate_words(keys, shared, padded, wide, rotations)
            load_words(v, m // group, strides[2], of_groups, value_width, values, padded, value_wide)
            pair_rows(values, shared * padded, value_wide, value_pairs)
        row, key_row = head * padded, head // group * padded
        for b in range(0, length, PANEL):
            rows, columns = min(PANEL, length - b), min(PANEL, padded - b)
            reach = b + rows if causal else length
            transpose_part(queries, (row + b) * words, words, columns, words, queries_transposed, 0, PANEL)
            multiply_columns(keys, key_row * words, words, width, queries_transposed, reach, columns, scores)
            scale = finish_scores(b, reach, width, causal, key_mask, mask_at, bias, bias_at, length, scores)
            column_weights(scores, round_up(reach, 2), columns, scale, weights, inverses, largest)
            for o in range(rows):
                sums[m * length + b + o, 0] = inverses[o]
                sums[m * length + b + o, 1] = largest[o]
            multiply_pairs(
                weights, 0, 1, PANEL, pairs(reach), value_pairs, key_row * value_words, value_wide, attended,
                (row + b) * value_wide, value_wide, rows, round_up(value_width, LANES),
            )  # fmt: skip
        if head == together - 1:
            store_normalised(attended, padded, value_wide, out, m - head, strides[3], sizes, value_width, sums)


@compiled
def backward(
    q: Any, k: Any, v: Any, grad: Any, dq: Any, dk: Any, dv: Any, strides: Any, sizes: Sizes, causal: bool,
    key_mask: Any, bias: Array, rotations: Array, d_bias: Array, sums: Array, first: int, last: int,
) -> None:  # fmt: skip
    """See `line_attention.backward`."""
    length, width, value_width = sizes.length, sizes.width, sizes.value_width
    group, together = sizes.group, sizes.together
    padded, wide, value_wide = padded_length(length), round_up(width, BLOCK), round_up(value_width, BLOCK)
    shared, words, value_words = together // group, wide // 2, value_wide // 2
    size, value_size = shared * padded * words, shared * padded * value_words
    own, own_values = together * padded * words, together * padded * value_words
    queries, query_pairs, grads, grad_pairs = zeros(own), zeros(own), zeros(own_values), zeros(own_values)
    keys, key_pairs, values = zeros(size), zeros(size), zeros(value_size)
    d_queries, d_keys, d_values = zeros(2 * own), zeros(2 * size), zeros(2 * value_size)
    queries_transposed, grads_transposed = zeros(words * PANEL), zeros(value_words * PANEL)
    scores, d_scores, d_pairs = zeros(padded * PANEL), zeros(padded * PANEL), zeros(padded // 2 * PANEL)
    weight_rows, d_rows = zeros(padded * PANEL // 2), zeros(padded * PANEL // 2)
    inverses, largest = zeros(PANEL), zeros(PANEL)
    of_groups = sizes_of_groups(sizes)
    factor = np.float32(1 / np.sqrt(width))
    for p in range(first, last):
        m, bias_at = piece(p, sizes, bias), p // sizes.lines_to_bias * length * length
        head, mask_at = m % together, m // sizes.heads * length
        if head == 0:
            load_words(q, m, strides[0], sizes, width, queries, padded, wide)
            load_words(k, m // group, strides[1], of_groups, width, keys, padded, wide)
            rotate_words(queries, together, padded, wide, rotations)
            rotate_words(keys, shared, padded, wide, rotations)
            load_words(v, m // group, strides[2], of_groups, value_width, values, padded, value_wide)
            load_words(grad, m, strides[3], sizes, value_width, grads, padded, value_wide)
            pair_rows(queries, together * padded, wide, query_pairs)
            pair_rows(keys, shared * padded, wide, key_pairs)
            pair_rows(grads, together * padded, value_wide, grad_pairs)
            clear(d_keys, 0, 2 * size)
            clear(d_values, 0, 2 * value_size)
        row, key_row = head * padded, head // group * padded
        for b in range(0, length, PANEL):
            rows, columns = min(PANEL, length - b), min(PANEL, padded - b)
            reach = b + rows if causal else length
            at, value_at = (row + b) * words, (row + b) * value_words
            transpose_part(queries, at, words, columns, words, queries_transposed, 0, PANEL)
            transpose_part(grads, value_at, value_words, columns, value_words, grads_transposed, 0, PANEL)
            multiply_columns(keys, key_row * words, words, width, queries_transposed, reach, columns, scores)
            scale = finish_scores(b, reach, width, causal, key_mask, mask_at, bias, bias_at, length, scores)
            multiply_columns(
                values, key_row * value_words, value_words, value_width, grads_transposed, reach, columns, d_scores
            )
            load_sums(sums, m * length + b, rows, inverses, largest)
            column_gradients(
                scores, round_up(reach, 2), columns, scale, inverses, largest, d_scores, weight_rows, d_rows, d_pairs
            )
            if d_bias.size:
                for key in range(reach):
                    add(d_scores, key * PANEL, rows, d_bias, key * length + b)
            multiply_pairs(
                d_pairs, 0, 1, PANEL, pairs(reach), key_pairs, key_row * words, wide, d_queries, (row + b) * wide, wide,
                rows, round_up(width, LANES),
            )  # fmt: skip
            multiply_add_pairs(
                d_rows, 0, PANEL // 2, 1, pairs(rows), query_pairs, at, wide, d_keys, key_row * wide, wide, reach,
                round_up(width, LANES),
            )  # fmt: skip
            multiply_add_pairs(
                weight_rows, 0, PANEL // 2, 1, pairs(rows), grad_pairs, value_at, value_wide, d_values,
                key_row * value_wide, value_wide, reach, round_up(value_width, LANES),
            )  # fmt: skip
        if head == together - 1:
            at = m - head
            rotate_heads_back(d_queries, together, padded, wide, rotations)
            rotate_heads_back(d_keys, shared, padded, wide, rotations)
            store_heads(d_queries, padded, wide, dq, at, strides[4], sizes, width, factor)
            store_heads(d_keys, padded, wide, dk, at // group, strides[5], of_groups, width, factor)
            store_heads(d_values, padded, value_wide, dv, at // group, strides[6], of_groups, value_width, ONE)


@part
def pairs(count: int) -> int:
    """Words of `count` numbers."""
    return (count + 1) // 2


@part
def multiply_columns(
    x: Array, at: int, words: int, width: int, transposed: Array, rows: int, columns: int, out: Array
) -> None:  # fmt: skip
    """The products of rows of x, `width` numbers in `words` words, with columns of words: rows of PANEL numbers."""
    multiply_pairs(x, at, words, 1, pairs(width), transposed, 0, PANEL, out, 0, PANEL, rows, columns)
