"""Heads of a line, copied to a core's cache, rotated, and back.

Positions a power of two apart evict each other, so one visit serves several heads.
"""

from typing import Any

import numpy as np

from axial_transformers.kernels.compilation import part
from axial_transformers.kernels.line_layout import Sizes, Strides
from axial_transformers.kernels.llvm import (
    LANES,
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
from axial_transformers.kernels.vectors import in_vectors, narrow, narrowed, prefetch, widen, widened

ONE = np.float32(1)
AHEAD = 8


@part
def zeros(count: int) -> Array:
    """Return zeros aligned to a vector."""
    x = np.zeros(count + LANES, np.float32)
    return x[-(np.int64(x.ctypes.data) // 4) % LANES :]


@part
def start(m: int, strides: Strides, sizes: Sizes) -> int:
    """Return the offset of piece `m`."""
    heads, inner = sizes.heads, sizes.inner
    return m // heads // inner * strides.outer + m // heads % inner * strides.inner + m % heads * strides.head


@part
def sizes_of_groups(sizes: Sizes) -> Sizes:
    """Return the sizes of keys and values."""
    return Sizes(
        sizes.outer, sizes.inner, sizes.heads // sizes.group, sizes.length, sizes.width, sizes.value_width,
        sizes.lines_to_bias, 1, sizes.at_once // sizes.group, sizes.radius, sizes.tables,
    )  # fmt: skip


@part
def load_heads(
    x: Any,
    m: int,
    strides: Strides,
    sizes: Sizes,
    width: int,
    scale: np.float32,
    out: Array,
    padded: int,
    wide: int,
) -> None:
    """Copy heads, times `scale`, to [.., padded, wide]."""
    at = start(m, strides, sizes)
    for row in range(sizes.length):
        for head in range(sizes.at_once):
            from_x, to = at + row * strides.place + head * strides.head, (head * padded + row) * wide
            if width == wide:
                for j in range(0, width, LANES):
                    prefetch(x, from_x + AHEAD * strides.place + j, LANES)
                    widen(x, from_x + j, LANES, scale, out, to + j)
            else:
                prefetch(x, from_x + AHEAD * strides.place, width)
                widen(x, from_x, width, scale, out, to)


@part
def store_heads(
    x: Array, padded: int, wide: int, out: Any, m: int, strides: Strides, sizes: Sizes, width: int,
    scale: np.float32,
) -> None:  # fmt: skip
    """Copy x, times `scale`, to heads."""
    at = start(m, strides, sizes)
    for row in range(sizes.length):
        for head in range(sizes.at_once):
            to = at + row * strides.place + head * strides.head
            prefetch(out, to + AHEAD * strides.place, width)
            narrow(x, (head * padded + row) * wide, width, scale, out, to)


@part
def store_normalised(
    x: Array, padded: int, wide: int, out: Any, m: int, strides: Strides, sizes: Sizes, width: int, sums: Array
) -> None:  # fmt: skip
    """`store_heads`, each row times its first number in sums."""
    at = start(m, strides, sizes)
    for row in range(sizes.length):
        for head in range(sizes.at_once):
            to = at + row * strides.place + head * strides.head
            prefetch(out, to + AHEAD * strides.place, width)
            narrow(x, (head * padded + row) * wide, width, sums[(m + head) * sizes.length + row, 0], out, to)


@part
def rotate_rows(x: Array, at: int, step: int, rotations: Array, sign: np.float32) -> None:
    """Rotate rows, `step` apart; `sign` -1 rotates back."""
    width, table = rotations.shape[1], rotations.reshape(-1)
    for place in range(len(rotations)):
        rotate(x, at + place * step, width // 2, table, place * width, sign)


@part
def rotate_heads(x: Array, heads: int, padded: int, wide: int, rotations: Array) -> None:
    """Rotate position p of each head by row p of `rotations`."""
    for head in range(heads):
        rotate_rows(x, head * padded * wide, wide, rotations, ONE)


@part
def rotate_heads_back(x: Array, heads: int, padded: int, wide: int, rotations: Array) -> None:
    """Rotate gradients: the transpose."""
    for head in range(heads):
        rotate_rows(x, head * padded * wide, wide, rotations, -ONE)


@part
def rotate_words(x: Array, heads: int, padded: int, wide: int, rotations: Array) -> None:
    """`rotate_heads` of bfloat16 words."""
    width, table = rotations.shape[1], rotations.reshape(-1)
    for head in range(heads):
        for place in range(len(rotations)):
            rotate_bits(x, (head * padded + place) * wide, width // 2, table, place * width, ONE)


@intrinsic
def rotate(typing_context: Any, x: Any, at: Any, half: Any, table: Any, place: Any, sign: Any) -> Any:
    """Rotate numbers j and j + `half`."""
    return types.void(x, at, half, table, place, sign), _generator(types.float32)


@intrinsic
def rotate_bits(typing_context: Any, x: Any, at: Any, half: Any, table: Any, place: Any, sign: Any) -> Any:
    """`rotate` of bfloat16 numbers."""
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
