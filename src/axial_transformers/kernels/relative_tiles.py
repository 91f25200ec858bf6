"""The sums of position-sensitive attention, computed in tiles that stay in registers.

`relative_attention` runs them. It computes equation 4 of Axial-DeepLab (Wang et al. 2020), and its gradients:

    out_o = sum_p softmax_p(q_o . k_p + q_o . rq_{p-o} + k_p . rk_{p-o}) (v_p + rv_{p-o})

The tables rq, rk and rv hold an encoding for each offset. A band holds a number x for each pair of a query o and a key
p that it attends to: a score, a weight or a gradient. It has a row for each of BLOCK successive queries, and a column
for each offset d = p - o. A line of 6 positions with radius 2:

    d         -2   -1    0    1    2
            +-------------------------
    o = 0   |  .    .    0    1    2       in the band: the key p = o + d
    o = 1   |  .    0    1    2    3       . no key: zero in a weight or a gradient
    o = 2   |  0    1    2    3    4
    o = 3   |  1    2    3    4    5
    o = 4   |  2    3    4    5    .
    o = 5   |  3    4    5    .    .

In memory, MARGIN numbers lie before and behind each row, and MARGIN rows above and below: tiles read them, and they are
zero. Rows are `distance` numbers apart. So three steps lead through the band:

    the next key of a query            one column right                    1
    the next query of an offset        one row down                        distance
    the next query of a key            one row down, one column left       distance - 1

Follow key 3 in the drawing for the last one. Six kinds of sums run over the pairs of a band. They differ only in what a
row i of the result is, what is summed over (step s), and in the distances between both. So one function, `add_product`,
computes out[i] += sum_s x[i, s] w[s], and a `Product` says where x[i, s] lies:

    Product                row i     step s     used for
    queries_by_keys        query     key        out += weights v,      dq += d_scores k
    queries_by_offsets     query     offset     out += weights rv,     dq += d_scores rq
    keys_by_queries        key       query      dv += weights grad,    dk += d_scores q
    keys_by_offsets        key       offset     dk += d_scores rk
    offsets_by_queries     offset    query      drv += weights grad,   drq += d_scores q
    offsets_by_keys        offset    key        drk += d_scores k

The numbers in a band are sums, too: over the numbers of a head. The tables decide which tiles compute them:

    tables                     scores               gradients of weights
    of the whole line          line_scores          line_products
    of a window                relative_scores      products of `register_tiles`
"""

from typing import Any, NamedTuple

from axial_transformers.kernels.compilation import part
from axial_transformers.kernels.llvm import (
    LANES,
    Array,
    cgutils,
    constant,
    fused_multiply_add,
    hide_origin,
    intrinsic,
    ir,
    load,
    splat,
    store,
    types,
    unpacked,
)
from axial_transformers.kernels.register_tiles import (
    HIGH,
    LARGE,
    PANEL,
    multiply_add_high,
    multiply_add_large,
    round_up,
)
from axial_transformers.kernels.vectors import clear

BESIDE = 4 if LANES == 16 else 2
"""Successive rows in a group of rows of `line_scores`."""
GROUPS = VECTORS = 2
"""Groups of rows, LANES rows apart, and vectors of columns of a tile of `line_scores`: its sums fill the registers."""


def _product_of_lines(scores: bool) -> Any:
    """Return the intrinsic `line_scores`, or `line_products`, which has no table of keys."""

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
        cells = [(group, row) for row in range(BESIDE) for group in range(GROUPS)]
        sums = {(*cell, i): cgutils.alloca_once_value(builder, zero) for cell in cells for i in range(VECTORS)}
        rows = {(group, row): builder.mul(x_row, count.type(group * LANES + row)) for group, row in cells}
        with cgutils.for_range(builder, count) as loop:
            of_keys = [load(builder, keys, offset(keys_at, keys_row, loop.index, i * LANES)) for i in range(VECTORS)]
            first = hide_origin(builder, builder.gep(x, [builder.add(x_at, loop.index)]))
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
                    for i, key in enumerate(of_keys):
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
"""out[r, j] = sum_s keys[s, j] (x[r, s] + of_keys[s, j - r]) + x[r, s] of_queries[s, j - r].

Row r is a query, column j a key, and step s one of the `count` numbers of a head. A tile has the rows 0 .. BESIDE - 1
and LANES .. LANES + BESIDE - 1, and two vectors of columns. x[r, s] is x[x_at + r x_row + s]. keys[s, j] is
keys[keys_at + s keys_row + j]; tables and out are alike.

A vector of a table begins anywhere in a cache line, which takes two loads. But a row LANES further needs the vector
before: three vectors of a table serve four sums.
"""
line_products = _product_of_lines(scores=False)
"""out[r, j] = sum_s x[r, s] (keys[s, j] + of_queries[s, j - r]): `line_scores` without of_keys.

The gradient of weights is such a sum: x is the gradient of the result, keys are values, of_queries is rv.
"""
LANES_OF_ENCODED = 16
"""Lanes of the processors that have 32 vector registers, as `add_encoded` needs."""


@intrinsic
def add_encoded(
    typing_context: Any, x: Any, x_at: Any, x_row: Any, x_step: Any, count: Any, w: Any, w_at: Any, w_row: Any,
    table: Any, table_at: Any, table_row: Any, out: Any, out_at: Any, out_row: Any,
) -> Any:  # fmt: skip
    """out[r, c] += sum_s x[r, s] (w[s, c] + table[s - r, c]): HIGH rows r, LANES columns c, `count` steps s.

    x[r, s] is x[x_at + r x_row + s x_step], w[s, c] is w[w_at + s w_row + c]; table and out are alike. A vector of the
    table is loaded once for all rows: HIGH steps at a time hand it on in registers. Additions take the place of half of
    the multiplications. AMD's processors have units of their own for them.
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
            encodings = [builder.load(slot) for slot in before]
            for i in range(steps):
                step = builder.add(first, count.type(i))
                encodings = [row_of(table, table_at, table_row, step), *encodings]
                of_step = row_of(w, w_at, w_row, step)
                start = hide_origin(builder, builder.gep(x, [builder.add(x_at, builder.mul(x_step, step))]))
                for beside, total, encoding in zip(rows, sums, encodings):
                    number = splat(builder, load(builder, start, beside, 1), LANES)
                    factor = builder.fadd(of_step, encoding)
                    builder.store(fused_multiply_add(builder, number, factor, builder.load(total)), total)
            for slot, encoding in zip(before, encodings):
                builder.store(encoding, slot)

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
    """out[r, c] = sum_s keys[s, r + c] (x[r, s] + of_keys[s, c]) + x[r, s] of_queries[s, c].

    It takes HIGH successive queries r, LANES successive offsets c and `count` steps s. Query r with offset c has key r
    + c. x[r, s] is x[x_at + r x_row + s], keys[s, j] is keys[keys_at + s keys_row + j]; both tables are alike.
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


BLOCK = 64
"""Queries of a band: so many that a sum over them is seldom stored, so few that a band stays in cache."""
MARGIN = max(LANES, HIGH)
"""Zeros before and behind the numbers of a query, and rows of zeros above and below: tiles read them."""


class Band(NamedTuple):
    """The pairs of the queries first .. first + rows - 1 of a line of `length` positions, with offsets low .. high."""

    first: int
    rows: int
    low: int
    high: int
    length: int


class Product(NamedTuple):
    """Where the numbers x[i, s] of a band lie in one of its six sums, and which of them there are."""

    x_at: int
    """x[i, s] is number x_at + i x_row + s x_step."""
    x_row: int
    x_step: int
    first: int
    """The rows are first <= i < last."""
    last: int
    least: int
    """The steps of row i are max(least, least_of_row + sign i) <= s <= min(most, most_of_row + sign i).

    A tile takes the steps of all its rows; x is zero where a row has no pair.
    """
    least_of_row: int
    most: int
    most_of_row: int
    sign: int


@part
def band_at(first: int, length: int, radius: int, causal: bool) -> Band:
    """Return the band of the block of queries from `first` on. Its lowest offset is that of a whole block."""
    high = min(0 if causal else radius, length - 1 - first)
    return Band(first, min(BLOCK, length - first), max(-radius, -(first + BLOCK - 1)), high, length)


@part
def row_of_band(length: int, radius: int) -> int:
    """Return `distance`: numbers of margins, and of the whole vectors that the softmax writes from any offset on."""
    return 2 * MARGIN + LANES + round_up(min(2 * radius + 1, length + BLOCK), LANES)


@part
def index_in_band(distance: int, band: Band, o: int, d: int) -> int:
    """Return the index of query o and offset d in the band's memory."""
    return (MARGIN + o - band.first) * distance + MARGIN + d - band.low


@part
def offsets(band: Band, o: int) -> tuple[int, int]:
    """Return the lowest and highest offset that leads one of the HIGH queries from o on to a key."""
    return max(band.low, -(o + HIGH - 1)), min(band.high, band.length - 1 - o)


@part
def pairs_of(band: Band, o: int, distance: int) -> tuple[int, int]:
    """Return the index of query o and its first key, and its number of keys."""
    low = max(band.low, -o)
    return index_in_band(distance, band, o, low), min(band.high, band.length - 1 - o) - low + 1


@part
def isolate(x: Array, at: int, present: int) -> None:
    """Write zeros before and behind the whole vectors of a query: tiles read them, and what is there may be NaN."""
    clear(x, at - MARGIN, MARGIN)
    clear(x, at + round_up(present, LANES), MARGIN)


@part
def queries_by_keys(band: Band, distance: int) -> Product:
    """out_o += sum_p x_{o,p-o} w_p; row 0 is the first query of the band."""
    at, first = index_in_band(distance, band, band.first, -band.first), band.first
    return Product(at, distance - 1, 1, 0, band.rows, 0, first + band.low, band.length - 1, first + band.high, 1)


@part
def queries_by_offsets(band: Band, distance: int) -> Product:
    """out_o += sum_d x_{o,d} w_d; row 0 is the first query of the band."""
    at = index_in_band(distance, band, band.first, 0)
    return Product(
        at, distance, 1, 0, band.rows, band.low, -band.first, band.high, band.length - 1 - band.first, -1
    )  # fmt: skip


@part
def keys_by_queries(band: Band, distance: int) -> Product:
    """out_p += sum_o x_{o,p-o} w_o."""
    at, (first, last), end = index_in_band(distance, band, 0, 0), keys_of(band), band.first + band.rows - 1
    return Product(at, 1, distance - 1, first, last, band.first, -band.high, end, -band.low, 1)


@part
def keys_by_offsets(band: Band, distance: int) -> Product:
    """out_p += sum_d x_{p-d,d} w_d."""
    at, (first, last), end = index_in_band(distance, band, 0, 0), keys_of(band), band.first + band.rows - 1
    return Product(at, distance, 1 - distance, first, last, band.low, -end, band.high, -band.first, 1)


@part
def offsets_by_queries(band: Band, distance: int) -> Product:
    """out_d += sum_o x_{o,d} w_o."""
    at, end = index_in_band(distance, band, 0, 0), band.first + band.rows - 1
    return Product(at, 1, distance, band.low, band.high + 1, band.first, 0, end, band.length - 1, -1)


@part
def offsets_by_keys(band: Band, distance: int) -> Product:
    """out_d += sum_p x_{p-d,d} w_p."""
    at, end = index_in_band(distance, band, 0, 0), band.first + band.rows - 1
    return Product(at, 1 - distance, distance, band.low, band.high + 1, 0, band.first, band.length - 1, end, 1)


@part
def keys_of(band: Band) -> tuple[int, int]:
    """Return the first key that a query of the band attends to, and the one behind the last."""
    return max(0, band.first + band.low), min(band.length, band.first + band.rows + band.high)


@part
def add_product(x: Array, product: Product, w: Array, w_at: int, out: Array, out_at: int, wide: int) -> None:
    """out[i] += sum_s x[i, s] w[s], `wide` numbers each: w[s] at w_at + s wide, out[i] at out_at + i wide."""
    for c in range(0, wide, PANEL):
        rows = LARGE if c + PANEL <= wide else HIGH
        for i in range(product.first, product.last, rows):
            end = i + rows - 1
            low, high = (i, end) if product.sign > 0 else (-end, -i)  # least and largest sign * row of the tile
            s = max(product.least, product.least_of_row + low)
            count = min(product.most, product.most_of_row + high) - s + 1
            at, from_w, to = product.x_at + i * product.x_row + s * product.x_step, w_at + s * wide, out_at + i * wide
            if count > 0 and c + PANEL <= wide:
                multiply_add_large(x, at, product.x_row, product.x_step, count, w, from_w + c, wide, out, to + c, wide)
            elif count > 0:
                multiply_add_high(x, at, product.x_row, product.x_step, count, w, from_w + c, wide, out, to + c, wide)


@part
def add_both_products(
    x: Array, of_positions: Product, of_offsets: Product, w: Array, w_at: int, table: Array, centre: int, shift: int,
    direction: int, everywhere: bool, out: Array, out_at: int, wide: int,
) -> None:  # fmt: skip
    """out[i] += sum_s x[i, s] w[s] + sum_d x[i, d] table[d], `wide` numbers each: both sums are over the same pairs.

    Row i and step s have offset d = direction (s - i - shift), and table[d] lies at centre + d wide. With an encoding
    for every offset (`everywhere`), tiles add w and table before they multiply, if the processor has the registers.
    """
    if not everywhere or LANES != LANES_OF_ENCODED:
        add_product(x, of_positions, w, w_at, out, out_at, wide)
        add_product(x, of_offsets, table, centre, out, out_at, wide)
        return
    done = of_positions.first + (of_positions.last - of_positions.first) // HIGH * HIGH
    for c in range(0, wide, LANES):
        for i in range(of_positions.first, done, HIGH):
            s = max(of_positions.least, of_positions.least_of_row + i)
            count = min(of_positions.most, of_positions.most_of_row + i + HIGH - 1) - s + 1
            at, from_w = of_positions.x_at + i * of_positions.x_row + s * of_positions.x_step, w_at + s * wide + c
            from_table, to = centre + direction * (s - i - shift) * wide + c, out_at + i * wide + c
            if count > 0:
                add_encoded(
                    x, at, of_positions.x_row, of_positions.x_step, count, w, from_w, wide, table, from_table,
                    direction * wide, out, to, wide,
                )  # fmt: skip
    if done < of_positions.last:
        add_product(x, from_row(of_positions, done), w, w_at, out, out_at, wide)
        add_product(x, from_row(of_offsets, done), table, centre, out, out_at, wide)


@part
def from_row(product: Product, first: int) -> Product:
    """Return the product of the rows from `first` on."""
    return Product(
        product.x_at, product.x_row, product.x_step, first, product.last, product.least, product.least_of_row,
        product.most, product.most_of_row, product.sign,
    )  # fmt: skip
