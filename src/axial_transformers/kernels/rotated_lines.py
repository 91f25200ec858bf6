"""Rotary positions: heads of lines, in a core's cache, rotated by the place of their site along the axis."""

from typing import Any

import numpy as np

from axial_transformers.kernels.compilation import part
from axial_transformers.kernels.llvm import (
    Array,
    fused_multiply_add,
    intrinsic,
    ir,
    load,
    splat,
    store,
    types,
    unpacked,
)
from axial_transformers.kernels.staging import ONE
from axial_transformers.kernels.vectors import in_vectors, narrowed, widened


@part
def rotate_rows(x: Array, at: int, step: int, rotations: Array, sign: np.float32) -> None:
    """Rows of K numbers, `step` apart from `at` on, by those of `rotations`, [L or 0, K], cosines and then sines.

    The sines are multiplied by `sign`, 1 or, to rotate back, -1.
    """
    width, table = rotations.shape[1], rotations.reshape(-1)
    for place in range(len(rotations)):
        rotate(x, at + place * step, width // 2, table, place * width, sign)


@part
def rotate_heads(x: Array, heads: int, padded: int, wide: int, rotations: Array) -> None:
    """x [heads, padded, wide] float32, in place: place p of each head by row p of `rotations`, see `rotate_rows`."""
    for head in range(heads):
        rotate_rows(x, head * padded * wide, wide, rotations, ONE)


@part
def rotate_heads_back(x: Array, heads: int, padded: int, wide: int, rotations: Array) -> None:
    """The inverse of `rotate_heads`, which is its transpose: gradients before it from those behind it."""
    for head in range(heads):
        rotate_rows(x, head * padded * wide, wide, rotations, -ONE)


@part
def rotate_words(x: Array, heads: int, padded: int, wide: int, rotations: Array) -> None:
    """`rotate_heads` of bfloat16 numbers, two in a word: see `bfloat16_tiles`."""
    width, table = rotations.shape[1], rotations.reshape(-1)
    for head in range(heads):
        for place in range(len(rotations)):
            rotate_bits(x, (head * padded + place) * wide, width // 2, table, place * width, ONE)


@intrinsic
def rotate(typing_context: Any, x: Any, at: Any, half: Any, table: Any, place: Any, sign: Any) -> Any:
    """The 2 `half` numbers of a head, by the cosines at `place` of the table and the sines behind them, times `sign`.

    The numbers j and j + `half` are a vector of the plane.
    """
    return types.void(x, at, half, table, place, sign), _generator(types.float32)


@intrinsic
def rotate_bits(typing_context: Any, x: Any, at: Any, half: Any, table: Any, place: Any, sign: Any) -> Any:
    """`rotate` of bfloat16 numbers, counted from the start of x."""
    return types.void(x, at, half, table, place, sign), _generator(types.int16)


def _generator(dtype: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        x, at, half, table, place, sign = unpacked(context, builder, signature, arguments)
        if dtype == types.int16:
            x = builder.bitcast(x, ir.IntType(16).as_pointer())

        def work(j: Any, lanes: int) -> None:
            beyond = builder.add(j, half)
            a, b = (widened(builder, load(builder, x, builder.add(at, k), lanes)) for k in (j, beyond))
            cos, sin = (load(builder, table, builder.add(place, k), lanes) for k in (j, beyond))
            sin = builder.fmul(sin, splat(builder, sign, lanes))
            first = fused_multiply_add(builder, a, cos, builder.fneg(builder.fmul(b, sin)))
            second = fused_multiply_add(builder, b, cos, builder.fmul(a, sin))
            store(builder, narrowed(builder, first, dtype), x, builder.add(at, j))
            store(builder, narrowed(builder, second, dtype), x, builder.add(at, beyond))

        in_vectors(builder, half, work)
        return context.get_dummy_value()

    return generate
