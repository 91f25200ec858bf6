"""Some heads of a line in a core's cache: read, turned by rotary positions, written.

They become float32, padded with zeros to whole vectors.

Successive positions of a line may be far apart in memory, often by a power of two. Then they share a few sets of a
cache, and evict each other before the next head is read. So each position is visited once for several heads, which lie
beside each other.
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
"""Positions that are on their way from memory: with strides of a power of two, a cache holds few more."""


@part
def zeros(count: int) -> Array:
    """Return zeros that begin with a vector in memory: vectors that cross a cache line take longer."""
    x = np.zeros(count + LANES, np.float32)
    return x[-(np.int64(x.ctypes.data) // 4) % LANES :]


@part
def start(m: int, strides: Strides, sizes: Sizes) -> int:
    """Return the offset of piece `m`: heads count fastest, then inner, then outer."""
    heads, inner = sizes.heads, sizes.inner
    return m // heads // inner * strides.outer + m // heads % inner * strides.inner + m % heads * strides.head


@part
def sizes_of_groups(sizes: Sizes) -> Sizes:
    """Return the sizes of keys and values, which the heads of a group share."""
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
    """Copy the heads that are loaded together, of pieces m, m + 1, .., times `scale`, to [.., padded, wide]."""
    at = start(m, strides, sizes)
    for row in range(sizes.length):
        for head in range(sizes.at_once):
            from_x, to = at + row * strides.position + head * strides.head, (head * padded + row) * wide
            if width == wide:
                for j in range(0, width, LANES):
                    prefetch(x, from_x + AHEAD * strides.position + j, LANES)
                    widen(x, from_x + j, LANES, scale, out, to + j)
            else:
                prefetch(x, from_x + AHEAD * strides.position, width)
                widen(x, from_x, width, scale, out, to)


@part
def store_heads(
    x: Array, padded: int, wide: int, out: Any, m: int, strides: Strides, sizes: Sizes, width: int,
    scale: np.float32,
) -> None:  # fmt: skip
    """Copy x [.., padded, wide], times `scale`, to the heads of pieces m, m + 1, .. of out."""
    at = start(m, strides, sizes)
    for row in range(sizes.length):
        for head in range(sizes.at_once):
            to = at + row * strides.position + head * strides.head
            prefetch(out, to + AHEAD * strides.position, width)
            narrow(x, (head * padded + row) * wide, width, scale, out, to)


@part
def store_normalised(
    x: Array, padded: int, wide: int, out: Any, m: int, strides: Strides, sizes: Sizes, width: int, sums: Array
) -> None:  # fmt: skip
    """`store_heads`, each row times its first number in sums [pieces times L, 2]."""
    at = start(m, strides, sizes)
    for row in range(sizes.length):
        for head in range(sizes.at_once):
            to = at + row * strides.position + head * strides.head
            prefetch(out, to + AHEAD * strides.position, width)
            narrow(x, (head * padded + row) * wide, width, sums[(m + head) * sizes.length + row, 0], out, to)


@part
def rotate_rows(x: Array, at: int, step: int, rotations: Array, sign: np.float32) -> None:
    """Rotate rows of K numbers, `step` apart, by rotations [L or 0, K]: cosines, then sines; `sign` -1 rotates back."""
    width, table = rotations.shape[1], rotations.reshape(-1)
    for position in range(len(rotations)):
        rotate(x, at + position * step, width // 2, table, position * width, sign)


@part
def rotate_heads(x: Array, heads: int, padded: int, wide: int, rotations: Array) -> None:
    """Rotate position p of each head by row p of `rotations`."""
    for head in range(heads):
        rotate_rows(x, head * padded * wide, wide, rotations, ONE)


@part
def rotate_heads_back(x: Array, heads: int, padded: int, wide: int, rotations: Array) -> None:
    """Undo `rotate_heads`. Its inverse is its transpose: it turns gradients behind it into gradients before it."""
    for head in range(heads):
        rotate_rows(x, head * padded * wide, wide, rotations, -ONE)


@part
def rotate_words(x: Array, heads: int, padded: int, wide: int, rotations: Array) -> None:
    """`rotate_heads` of bfloat16 numbers, two in a word."""
    width, table = rotations.shape[1], rotations.reshape(-1)
    for head in range(heads):
        for position in range(len(rotations)):
            rotate_bits(x, (head * padded + position) * wide, width // 2, table, position * width, ONE)


@intrinsic
def rotate(typing_context: Any, x: Any, at: Any, half: Any, table: Any, table_at: Any, sign: Any) -> Any:
    """Rotate the 2 `half` numbers of a head: numbers j and j + `half` are a vector of the plane.

    Cosines are at `table_at` of the table, and sines behind them.
    """
    return types.void(x, at, half, table, table_at, sign), _generator(types.float32)


@intrinsic
def rotate_bits(typing_context: Any, x: Any, at: Any, half: Any, table: Any, table_at: Any, sign: Any) -> Any:
    """`rotate` of bfloat16 numbers."""
    return types.void(x, at, half, table, table_at, sign), _generator(types.int16)


def _generator(dtype: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        x, at, half, table, table_at, sign = unpacked(context, builder, signature, arguments)
        if dtype == types.int16:
            x = builder.bitcast(x, ir.IntType(16).as_pointer())

        def work(j: Any, lanes: int) -> None:
            beyond = builder.add(j, half)
            a, b = (widened(builder, load(builder, x, builder.add(at, k), lanes)) for k in (j, beyond))
            cos, sin = (load(builder, table, builder.add(table_at, k), lanes) for k in (j, beyond))
            sin = builder.fmul(sin, splat(builder, sign, lanes))
            first = fused_multiply_add(builder, a, cos, builder.fneg(builder.fmul(b, sin)))
            second = fused_multiply_add(builder, b, cos, builder.fmul(a, sin))
            store(builder, narrowed(builder, first, dtype), x, builder.add(at, j))
            store(builder, narrowed(builder, second, dtype), x, builder.add(at, beyond))

        in_vectors(builder, half, work)
        return context.get_dummy_value()

    return generate
