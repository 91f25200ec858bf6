"""Products and transposes of small matrices that stay in registers.

A matrix is a flat array, the offset of its first number, and the distance of its rows. So a part of a matrix is one
too.
"""

from collections.abc import Callable
from typing import Any

from axial_transformers.kernels.compilation import part
from axial_transformers.kernels.llvm import (
    LANES,
    Array,
    cgutils,
    constant,
    fused_multiply_add,
    hide_origin,
    instructions,
    ir,
    load,
    splat,
    store,
    transposed,
)

ROWS, PANEL = 4, 2 * LANES
"""Rows and columns of a product: eight vectors of sums keep a core's arithmetic units busy, in 16 registers."""
HIGH = 2 * ROWS
"""Rows of a product of LANES columns: eight vectors of sums, too."""
LARGE = HIGH if LANES == 16 else ROWS
"""Rows of a product whose sums stay in registers: AVX-512 has 32 of them."""
TALL = 12 if LANES == 16 else 6
"""Rows of the product whose sums fill most registers: it reads each row of w most seldom."""


def product_tile(height: int, width: int, add: bool, combine: Callable[..., Any] = fused_multiply_add) -> Any:
    """Return the intrinsic of a product of `height` rows and `width` columns: `multiply`, or `multiply_add` if `add`.

    With few sums, every second step has sums of its own: additions to one sum would wait for each other.

    Args:
        combine: combine(builder, a, b, c) writes the code of a b + c for vectors.
    """

    @instructions
    def product(
        builder: Any, x: Any, x_at: Any, x_row: Any, x_step: Any, count: Any, w: Any, w_at: Any, w_row: Any, out: Any,
        out_at: Any, out_row: Any,
    ) -> None:  # fmt: skip
        def offset(start: Any, distance: Any, times: Any, more: int = 0) -> Any:
            return builder.add(builder.add(start, builder.mul(distance, times)), count.type(more))

        columns = range(0, width, LANES)
        outs = [offset(out_at, out_row, count.type(row), c) for row in range(height) for c in columns]
        zero = constant(ir.VectorType(ir.FloatType(), LANES), 0.0)
        sums = [cgutils.alloca_once_value(builder, load(builder, out, at) if add else zero) for at in outs]
        rows = [builder.mul(x_row, count.type(row)) for row in range(height)]

        def add_step(step: Any, sums: list[Any]) -> None:
            panel = [load(builder, w, offset(w_at, w_row, step, c)) for c in columns]
            first = hide_origin(builder, builder.gep(x, [offset(x_at, x_step, step)]))
            for row, beside in enumerate(rows):
                number = splat(builder, load(builder, first, beside, 1), LANES)
                for total, weights in zip(sums[row * len(panel) :], panel):
                    builder.store(combine(builder, number, weights, builder.load(total)), total)

        if len(sums) > ROWS:
            with cgutils.for_range(builder, count) as loop:
                add_step(loop.index, sums)
        else:
            more, pairs = [cgutils.alloca_once_value(builder, zero) for _ in sums], builder.and_(count, count.type(-2))
            with cgutils.for_range_slice(builder, count.type(0), pairs, count.type(2)) as (step, _):
                add_step(step, sums)
                add_step(builder.add(step, count.type(1)), more)
            with cgutils.for_range_slice(builder, pairs, count, count.type(1)) as (step, _):
                add_step(step, sums)
            for total, other in zip(sums, more):
                builder.store(builder.fadd(builder.load(total), builder.load(other)), total)
        for total, at in zip(sums, outs):
            store(builder, builder.load(total), out, at)

    return product


multiply = product_tile(ROWS, PANEL, add=False)
"""out[r, c] = sum_s x[r, s] w[s, c]: ROWS rows, PANEL columns and `count` steps s.

x[r, s] is x[x_at + r x_row + s x_step], so that x may be transposed; w[s, c] is w[w_at + s w_row + c]. To load w takes
as long as to multiply four rows by it: fewer rows would take the same time.
"""
multiply_add = product_tile(ROWS, PANEL, add=True)
"""`multiply`, added to out."""
multiply_narrow, multiply_add_narrow = (product_tile(ROWS, LANES, add) for add in (False, True))
multiply_high, multiply_add_high = (product_tile(HIGH, LANES, add) for add in (False, True))
multiply_large, multiply_add_large = (product_tile(LARGE, PANEL, add) for add in (False, True))
multiply_tall = product_tile(TALL, PANEL, add=False)


@part
def multiply_wide(
    x: Array, x_at: int, x_row: int, x_step: int, count: int, w: Array, w_at: int, w_row: int, out: Array, out_at: int,
    out_row: int, columns: int,
) -> None:  # fmt: skip
    """`multiply` of any number of columns, a multiple of LANES."""
    for c in range(0, columns - LANES, PANEL):
        multiply(x, x_at, x_row, x_step, count, w, w_at + c, w_row, out, out_at + c, out_row)
    if columns % PANEL:
        c = columns - LANES
        multiply_narrow(x, x_at, x_row, x_step, count, w, w_at + c, w_row, out, out_at + c, out_row)


@part
def multiply_add_wide(
    x: Array, x_at: int, x_row: int, x_step: int, count: int, w: Array, w_at: int, w_row: int, out: Array, out_at: int,
    out_row: int, columns: int,
) -> None:  # fmt: skip
    """`multiply_add` of any number of columns, a multiple of LANES; nothing if `count` is below 1."""
    if count > 0:
        for c in range(0, columns - LANES, PANEL):
            multiply_add(x, x_at, x_row, x_step, count, w, w_at + c, w_row, out, out_at + c, out_row)
        if columns % PANEL:
            c = columns - LANES
            multiply_add_narrow(x, x_at, x_row, x_step, count, w, w_at + c, w_row, out, out_at + c, out_row)


@part
def multiply_rows(
    x: Array, x_at: int, x_row: int, x_step: int, count: int, w: Array, w_at: int, w_row: int, out: Array, out_at: int,
    out_row: int, rows: int, columns: int,
) -> None:  # fmt: skip
    """`multiply` of any number of rows, and of columns, a multiple of LANES; it touches up to ROWS - 1 rows more."""
    tall = rows // TALL * TALL
    for c in range(0, columns - LANES, PANEL):
        for r in range(0, tall, TALL):
            at, to = x_at + r * x_row, out_at + r * out_row + c
            multiply_tall(x, at, x_row, x_step, count, w, w_at + c, w_row, out, to, out_row)
        for r in range(tall, rows, ROWS):
            at, to = x_at + r * x_row, out_at + r * out_row + c
            multiply(x, at, x_row, x_step, count, w, w_at + c, w_row, out, to, out_row)
    if columns % PANEL:
        c = columns - LANES
        for r in range(0, rows, ROWS):
            at, to = x_at + r * x_row, out_at + r * out_row + c
            multiply_narrow(x, at, x_row, x_step, count, w, w_at + c, w_row, out, to, out_row)


@part
def multiply_add_rows(
    x: Array, x_at: int, x_row: int, x_step: int, count: int, w: Array, w_at: int, w_row: int, out: Array, out_at: int,
    out_row: int, rows: int, columns: int,
) -> None:  # fmt: skip
    """`multiply_add` of any number of rows, and of columns, a multiple of LANES; it reads up to HIGH - 1 rows more."""
    for c in range(0, columns - LANES, PANEL):
        for r in range(0, rows, ROWS):
            at, to = x_at + r * x_row, out_at + r * out_row + c
            multiply_add(x, at, x_row, x_step, count, w, w_at + c, w_row, out, to, out_row)
    if columns % PANEL:
        c = columns - LANES
        for r in range(0, rows, HIGH):
            at, to = x_at + r * x_row, out_at + r * out_row + c
            multiply_add_high(x, at, x_row, x_step, count, w, w_at + c, w_row, out, to, out_row)


@instructions
def transpose_tile(builder: Any, x: Any, x_at: Any, x_row: Any, out: Any, out_at: Any, out_row: Any) -> None:
    """out = x^T, LANES rows and LANES columns."""

    def offset(start: Any, distance: Any, i: int) -> Any:
        return builder.add(start, builder.mul(distance, start.type(i)))

    rows = [load(builder, x, offset(x_at, x_row, i)) for i in range(LANES)]
    for i, row in enumerate(transposed(builder, rows)):
        store(builder, row, out, offset(out_at, out_row, i))


@part
def transpose_part(
    x: Array, x_at: int, x_row: int, rows: int, columns: int, out: Array, out_at: int, out_row: int
) -> None:  # fmt: skip
    """out = x^T: [rows, columns] -> [columns, rows], both multiples of LANES."""
    for r in range(0, rows, LANES):
        for c in range(0, columns, LANES):
            transpose_tile(x, x_at + r * x_row + c, x_row, out, out_at + c * out_row + r, out_row)


@part
def round_up(size: int, multiple: int) -> int:
    """Return the least multiple that is not below `size`."""
    return (size + multiple - 1) // multiple * multiple
