"""Products of places with others at an offset, and with the encodings of offsets, by tiles that stay in registers."""

from typing import Any

from llvmlite import ir
from numba import types

from axial_transformers.kernels.llvm import (
    LANES,
    cgutils,
    constant,
    fused_multiply_add,
    intrinsic,
    load,
    opaque,
    splat,
    store,
    unpacked,
)
from axial_transformers.kernels.register_tiles import HIGH

BESIDE = 4 if LANES == 16 else 2
"""Successive places of `line_scores`: with as many LANES further, two vectors of sums each fill the registers."""
FEWER = BESIDE // 2
"""Successive places of `wide_line_scores`."""


def _product_of_lines(beside: int, vectors: int, scores: bool) -> Any:
    """The intrinsic `line_scores` of so many places and vectors, or `line_products`, which lacks the table of keys."""

    @intrinsic
    def product(
        typing_context: Any, x: Any, x_at: Any, x_row: Any, count: Any, keys: Any, keys_at: Any, keys_row: Any,
        of_queries: Any, of_keys: Any, table_at: Any, table_row: Any, out: Any, out_at: Any, out_row: Any,
    ) -> Any:  # fmt: skip
        kind = types.void(
            x, x_at, x_row, count, keys, keys_at, keys_row, of_queries, of_keys, table_at, table_row, out, out_at,
            out_row,
        )  # fmt: skip
        return kind, generate

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        x, x_at, x_row, count, keys, keys_at, keys_row, *tables, table_at, table_row, out, out_at, out_row = unpacked(
            context, builder, signature, arguments
        )

        def offset(start: Any, distance: Any, times: Any, more: int = 0) -> Any:
            return builder.add(builder.add(start, builder.mul(distance, times)), count.type(more))

        zero = constant(ir.VectorType(ir.FloatType(), LANES), 0.0)
        places = [(group, row) for row in range(beside) for group in range(2)]
        sums = {(*place, i): cgutils.alloca_once_value(builder, zero) for place in places for i in range(vectors)}
        rows = {(group, row): builder.mul(x_row, count.type(group * LANES + row)) for group, row in places}
        with cgutils.for_range(builder, count) as loop:
            of_places = [load(builder, keys, offset(keys_at, keys_row, loop.index, i * LANES)) for i in range(vectors)]
            first = opaque(builder, builder.gep(x, [builder.add(x_at, loop.index)]))
            for row in range(beside):
                of_offsets = [
                    [
                        load(builder, table, offset(table_at, table_row, loop.index, i * LANES - row))
                        for i in range(-1, vectors)
                    ]
                    for table in tables[: 1 + scores]
                ]
                for group in range(2):
                    number = splat(builder, load(builder, first, rows[group, row], 1), LANES)
                    for i, key in enumerate(of_places):
                        of_query, *of_key = (windows[1 + i - group] for windows in of_offsets)
                        factor = builder.fadd(number, of_key[0]) if scores else number
                        total = sums[group, row, i]
                        for a, b in ((number, of_query), (key, factor)):
                            builder.store(fused_multiply_add(builder, a, b, builder.load(total)), total)
        for (group, row, i), total in sums.items():
            at = offset(out_at, out_row, count.type(group * LANES + row), i * LANES)
            store(builder, builder.load(total), out, at)
        return context.get_dummy_value()

    return product


line_scores = _product_of_lines(BESIDE, 2, scores=True)
"""out[r, j] = sum over s of keys[s, j] (x[r, s] + of_keys[s, j - r]) + x[r, s] of_queries[s, j - r].

For BESIDE successive rows r, as many that are LANES further, two vectors of successive keys j, and `count` steps s.
x[r, s] is x[x_at + r x_row + s], keys[s, j] is keys[keys_at + s keys_row + j]; the tables and out are alike.
Vectors of a table begin anywhere in a cache line, which takes two loads, but three of them serve four sums.
"""
wide_line_scores = _product_of_lines(FEWER, 4, scores=True)
"""`line_scores` of FEWER rows and four vectors of keys: five vectors of a table serve eight sums."""
line_products = _product_of_lines(BESIDE, 2, scores=False)
"""`line_scores` without of_keys: out[r, j] = sum over s of x[r, s] (keys[s, j] + of_queries[s, j - r])."""


@intrinsic
def relative_scores(
    typing_context: Any, x: Any, x_at: Any, x_row: Any, count: Any, keys: Any, keys_at: Any, keys_row: Any,
    of_queries: Any, of_keys: Any, table_at: Any, table_row: Any, out: Any, out_at: Any, out_row: Any,
) -> Any:  # fmt: skip
    """out[r, c] = sum over s of keys[s, r + c] (x[r, s] + of_keys[s, c]) + x[r, s] of_queries[s, c].

    HIGH successive places, LANES successive offsets and `count` steps: place r, with offset c, is beside key r + c.
    x[r, s] is x[x_at + r x_row + s]; keys[s, j] is keys[keys_at + s keys_row + j], and so are both tables.
    """
    kind = types.void(
        x, x_at, x_row, count, keys, keys_at, keys_row, of_queries, of_keys, table_at, table_row, out, out_at, out_row
    )

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        x, x_at, x_row, count, keys, keys_at, keys_row, *tables, table_at, table_row, out, out_at, out_row = unpacked(
            context, builder, signature, arguments
        )

        def offset(start: Any, distance: Any, times: Any, more: int = 0) -> Any:
            return builder.add(builder.add(start, builder.mul(distance, times)), count.type(more))

        zero = constant(ir.VectorType(ir.FloatType(), LANES), 0.0)
        sums = [cgutils.alloca_once_value(builder, zero) for _ in range(HIGH)]
        rows = [offset(x_at, x_row, count.type(row)) for row in range(HIGH)]
        with cgutils.for_range(builder, count) as loop:
            of_queries, of_keys = (load(builder, table, offset(table_at, table_row, loop.index)) for table in tables)
            for row, (start, total) in enumerate(zip(rows, sums)):
                number = splat(builder, load(builder, x, builder.add(start, loop.index), 1), LANES)
                key = load(builder, keys, offset(keys_at, keys_row, loop.index, row))
                for a, b in ((number, of_queries), (key, builder.fadd(number, of_keys))):
                    builder.store(fused_multiply_add(builder, a, b, builder.load(total)), total)
        for row, total in enumerate(sums):
            store(builder, builder.load(total), out, offset(out_at, out_row, count.type(row)))
        return context.get_dummy_value()

    return kind, generate
