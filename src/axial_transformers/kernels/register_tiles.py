"""Products and transposes of small matrices that stay in registers.

A matrix is a flat array, the offset of its first number and the distance of its rows, so that a part of one is one too.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types

from axial_transformers.kernels.compilation import compiled
from axial_transformers.kernels.llvm import (
    LANES,
    Array,
    cgutils,
    constant,
    fused_multiply_add,
    intrinsic,
    load,
    shuffle,
    splat,
    store,
    unpacked,
)

ROWS, PANEL = 4, 2 * LANES
"""Rows and columns of a product: eight vectors of sums keep the arithmetic units of a core busy, in 16 registers."""
TALL = 6
"""Rows of a product where there are many: twelve vectors of sums, and fewer loads for each."""


@intrinsic
def multiply(
    typing_context: Any, x: Any, x_at: Any, x_row: Any, x_step: Any, count: Any, w: Any, w_at: Any, w_row: Any,
    out: Any, out_at: Any, out_row: Any,
) -> Any:  # fmt: skip
    """out[r, c] = sum over s of x[r, s] w[s, c], for ROWS rows, PANEL columns and `count` steps s.

    x[r, s] is x[x_at + r x_row + s x_step], so that x may be transposed; w[s, c] is w[w_at + s w_row + c]. Loading w
    takes as long as multiplying four rows by it: fewer rows would take the same time.
    """
    return types.void(x, x_at, x_row, x_step, count, w, w_at, w_row, out, out_at, out_row), _product(ROWS, add=False)


@intrinsic
def multiply_add(
    typing_context: Any, x: Any, x_at: Any, x_row: Any, x_step: Any, count: Any, w: Any, w_at: Any, w_row: Any,
    out: Any, out_at: Any, out_row: Any,
) -> Any:  # fmt: skip
    """`multiply`, added to out."""
    return types.void(x, x_at, x_row, x_step, count, w, w_at, w_row, out, out_at, out_row), _product(ROWS, add=True)


@intrinsic
def multiply_add_tall(
    typing_context: Any, x: Any, x_at: Any, x_row: Any, x_step: Any, count: Any, w: Any, w_at: Any, w_row: Any,
    out: Any, out_at: Any, out_row: Any,
) -> Any:  # fmt: skip
    """`multiply_add` of TALL rows."""
    return types.void(x, x_at, x_row, x_step, count, w, w_at, w_row, out, out_at, out_row), _product(TALL, add=True)


def _product(height: int, add: bool) -> Callable[..., Any]:
    """The code of a product of `height` rows."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        x, x_at, x_row, x_step, count, w, w_at, w_row, out, out_at, out_row = unpacked(
            context, builder, signature, arguments
        )

        def offset(start: Any, distance: Any, times: Any, more: int = 0) -> Any:
            return builder.add(builder.add(start, builder.mul(distance, times)), count.type(more))

        columns = range(0, PANEL, LANES)
        outs = [offset(out_at, out_row, count.type(row), c) for row in range(height) for c in columns]
        zero = constant(ir.VectorType(ir.FloatType(), LANES), 0.0)
        sums = [cgutils.alloca_once_value(builder, load(builder, out, at) if add else zero) for at in outs]
        rows = [offset(x_at, x_row, count.type(row)) for row in range(height)]
        with cgutils.for_range(builder, count) as loop:
            panel = [load(builder, w, offset(w_at, w_row, loop.index, c)) for c in columns]
            for row, start in enumerate(rows):
                number = splat(builder, load(builder, x, offset(start, x_step, loop.index), 1), LANES)
                for total, weights in zip(sums[row * len(panel) :], panel):
                    builder.store(fused_multiply_add(builder, number, weights, builder.load(total)), total)
        for total, at in zip(sums, outs):
            store(builder, builder.load(total), out, at)
        return context.get_dummy_value()

    return generate


@intrinsic
def transpose_tile(typing_context: Any, x: Any, x_at: Any, x_row: Any, out: Any, out_at: Any, out_row: Any) -> Any:
    """out = x^T, LANES rows and LANES columns: halves of rows are exchanged, then quarters, and so on."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        x, x_at, x_row, out, out_at, out_row = unpacked(context, builder, signature, arguments)

        def offset(start: Any, distance: Any, i: int) -> Any:
            return builder.add(start, builder.mul(distance, start.type(i)))

        rows = [load(builder, x, offset(x_at, x_row, i)) for i in range(LANES)]
        half = LANES // 2
        while half:
            upper = [lane if not lane & half else LANES + lane - half for lane in range(LANES)]
            lower = [lane + half if not lane & half else LANES + lane for lane in range(LANES)]
            for i in (i for i in range(LANES) if not i & half):
                a, b = rows[i], rows[i + half]
                rows[i], rows[i + half] = shuffle(builder, a, b, upper), shuffle(builder, a, b, lower)
            half //= 2
        for i, row in enumerate(rows):
            store(builder, row, out, offset(out_at, out_row, i))
        return context.get_dummy_value()

    return types.void(x, x_at, x_row, out, out_at, out_row), generate


@compiled
def transpose(x: Array, rows: int, columns: int, out: Array) -> None:
    """[rows, columns] -> [columns, rows], both multiples of LANES."""
    for r in range(0, rows, LANES):
        for c in range(0, columns, LANES):
            transpose_tile(x, r * columns + c, columns, out, c * rows + r, rows)


@compiled
def round_up(size: int, multiple: int) -> int:
    """The least multiple that is not below `size`."""
    return (size + multiple - 1) // multiple * multiple
