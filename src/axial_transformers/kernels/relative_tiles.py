"""Products of places with others at an offset, and with the encodings of offsets, by tiles that stay in registers."""

from typing import Any

from axial_transformers.kernels.llvm import (
    LANES,
    cgutils,
    constant,
    fused_multiply_add,
    intrinsic,
    ir,
    load,
    opaque,
    splat,
    store,
    types,
    unpacked,
)
from axial_transformers.kernels.register_tiles import HIGH

BESIDE = 4 if LANES == 16 else 2
"""Successive places of `line_scores`: with as many LANES further, two vectors of sums each fill the registers."""
GROUPS = VECTORS = 2


def _product_of_lines(scores: bool) -> Any:
    """The intrinsic `line_scores`, or `line_products`, which lacks the table of keys."""

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
        places = [(group, row) for row in range(BESIDE) for group in range(GROUPS)]
        sums = {(*place, i): cgutils.alloca_once_value(builder, zero) for place in places for i in range(VECTORS)}
        rows = {(group, row): builder.mul(x_row, count.type(group * LANES + row)) for group, row in places}
        with cgutils.for_range(builder, count) as loop:
            of_places = [load(builder, keys, offset(keys_at, keys_row, loop.index, i * LANES)) for i in range(VECTORS)]
            first = opaque(builder, builder.gep(x, [builder.add(x_at, loop.index)]))
            for row in range(BESIDE):
                of_offsets = [
                    [
                        load(builder, table, offset(table_at, table_row, loop.index, i * LANES - row))
                        for i in range(1 - GROUPS, VECTORS)
                    ]
                    for table in tables[: 1 + scores]
                ]
                for group in range(GROUPS):
                    number = splat(builder, load(builder, first, rows[group, row], 1), LANES)
                    for i, key in enumerate(of_places):
                        of_query, *of_key = (windows[GROUPS - 1 + i - group] for windows in of_offsets)
                        total = sums[group, row, i]
                        terms = [(number, builder.fadd(key, of_query))]
                        if scores:
                            terms = [(number, of_query), (key, builder.fadd(number, of_key[0]))]
                        for a, b in terms:
                            builder.store(fused_multiply_add(builder, a, b, builder.load(total)), total)
        for (group, row, i), total in sums.items():
            at = offset(out_at, out_row, count.type(group * LANES + row), i * LANES)
            store(builder, builder.load(total), out, at)
        return context.get_dummy_value()

    return product


line_scores = _product_of_lines(scores=True)
"""out[r, j] = sum over s of keys[s, j] (x[r, s] + of_keys[s, j - r]) + x[r, s] of_queries[s, j - r].

For BESIDE successive rows r, as many that are LANES further, two vectors of successive keys j, and `count` steps s.
x[r, s] is x[x_at + r x_row + s], keys[s, j] is keys[keys_at + s keys_row + j]; the tables and out are alike.
Vectors of a table begin anywhere in a cache line, which takes two loads, but three of them serve four sums.
"""
line_products = _product_of_lines(scores=False)
"""`line_scores` without of_keys: out[r, j] = sum over s of x[r, s] (keys[s, j] + of_queries[s, j - r])."""
LANES_OF_ENCODED = 16
"""Lanes of processors that have the registers for `add_encoded`: 32."""


@intrinsic
def add_encoded(
    typing_context: Any, x: Any, x_at: Any, x_row: Any, x_step: Any, count: Any, w: Any, w_at: Any, w_row: Any,
    table: Any, table_at: Any, table_row: Any, out: Any, out_at: Any, out_row: Any,
) -> Any:  # fmt: skip
    """out[r, c] += sum over s of x[r, s] (w[s, c] + table[s - r, c]): HIGH rows, LANES columns and `count` steps s.

    x[r, s] is x[x_at + r x_row + s x_step], w[s, c] is w[w_at + s w_row + c]; the table and out are alike. A vector of
    the table is loaded once for all rows: HIGH steps at a time hand them on in registers. Additions, for which some
    processors (AMD's) have units of their own, take the place of half of the multiplications.
    """
    kind = types.void(x, x_at, x_row, x_step, count, w, w_at, w_row, table, table_at, table_row, out, out_at, out_row)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        x, x_at, x_row, x_step, count, w, w_at, w_row, table, table_at, table_row, out, out_at, out_row = unpacked(
            context, builder, signature, arguments
        )

        def row_of(data: Any, start: Any, distance: Any, times: Any) -> Any:
            return load(builder, data, builder.add(start, builder.mul(distance, times)))

        def kept(values: list[Any]) -> list[Any]:
            return [cgutils.alloca_once_value(builder, value) for value in values]

        sums = kept([row_of(out, out_at, out_row, count.type(row)) for row in range(HIGH)])
        before = kept([row_of(table, table_at, table_row, count.type(-row)) for row in range(1, HIGH)])
        rows = [builder.mul(x_row, count.type(row)) for row in range(HIGH)]

        def add_steps(first: Any, steps: int) -> None:
            encodings = [builder.load(place) for place in before]
            for i in range(steps):
                step = builder.add(first, count.type(i))
                encodings = [row_of(table, table_at, table_row, step), *encodings]
                of_step = row_of(w, w_at, w_row, step)
                start = opaque(builder, builder.gep(x, [builder.add(x_at, builder.mul(x_step, step))]))
                for beside, total, encoding in zip(rows, sums, encodings):
                    number = splat(builder, load(builder, start, beside, 1), LANES)
                    factor = builder.fadd(of_step, encoding)
                    builder.store(fused_multiply_add(builder, number, factor, builder.load(total)), total)
            for place, encoding in zip(before, encodings):
                builder.store(encoding, place)

        whole = builder.and_(count, count.type(-HIGH))
        with cgutils.for_range_slice(builder, count.type(0), whole, count.type(HIGH)) as (step, _):
            add_steps(step, HIGH)
        with cgutils.for_range_slice(builder, whole, count, count.type(1)) as (step, _):
            add_steps(step, 1)
        for row, total in enumerate(sums):
            at = builder.add(out_at, builder.mul(out_row, count.type(row)))
            store(builder, builder.load(total), out, at)
        return context.get_dummy_value()

    return kind, generate


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
