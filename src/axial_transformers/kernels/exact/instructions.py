"""float32 arithmetic as LLVM instructions, on single numbers or vectors of LANES.

Each operation is rounded once, and no flag lets LLVM take another order or another value.
"""

from collections.abc import Callable, Collection
from functools import partial
from typing import Any

from axial_transformers.kernels.exact.definition import (
    HALF_ROOT,
    LANES,
    LN_2,
    LOG2_E,
    LOG_POWERS,
    MAX_EXPONENT,
    MIN_EXPONENT,
    POWERS,
    REST_OF_LN_2,
    ROUNDING,
)
from axial_transformers.kernels.llvm import (
    FEATURES,
    cgutils,
    constant,
    hide_origin,
    instructions,
    ir,
    like,
    shuffle,
    splat,
    store,
)
from axial_transformers.kernels.llvm import load as load_lanes

NUMBER, WORD = ir.FloatType(), ir.IntType(32)
VECTOR = ir.VectorType(NUMBER, LANES)


def load(builder: Any, data: Any, offset: Any, lanes: int = LANES) -> Any:
    """Load `lanes` numbers from `offset` on: LANES, however wide the registers of the processor are."""
    return load_lanes(builder, data, offset, lanes)


def fused(builder: Any, a: Any, b: Any, c: Any) -> Any:
    """Return a b + c, rounded once: one instruction, or a call with the same result where the processor has none."""
    kind = f"v{a.type.count}f32" if isinstance(a.type, ir.VectorType) else "f32"
    function = ir.FunctionType(a.type, [a.type] * 3)
    return builder.call(cgutils.get_or_insert_function(builder.module, function, f"llvm.fma.{kind}"), [a, b, c])


def root(builder: Any, x: Any) -> Any:
    """Return the square root of a number."""
    function = ir.FunctionType(x.type, [x.type])
    return builder.call(cgutils.get_or_insert_function(builder.module, function, "llvm.sqrt.f32"), [x])


def greater(builder: Any, a: Any, b: Any) -> Any:
    """Return a where greater than b, otherwise b."""
    return builder.select(builder.fcmp_ordered(">", a, b), a, b)


def growth(builder: Any, r: Any) -> Any:
    """Return (e^r - 1) / r, |r| <= log(2) / 2."""
    series = constant(r.type, POWERS[0])
    for coefficient in (*POWERS[1:], 1.0):
        series = fused(builder, series, r, constant(r.type, coefficient))
    return series


def exponential(builder: Any, x: Any) -> Any:
    """Return e^x = 2^n e^r, |r| <= log(2) / 2: zero below MIN_EXPONENT, constant above MAX_EXPONENT; NaN stays."""
    number, word = partial(constant, x.type), like(x.type, WORD)
    near = greater(builder, x, number(MIN_EXPONENT))
    near = builder.select(builder.fcmp_ordered("<", near, number(MAX_EXPONENT)), near, number(MAX_EXPONENT))
    shifted = fused(builder, near, number(LOG2_E), number(ROUNDING))
    n = builder.fsub(shifted, number(ROUNDING))
    r = fused(builder, n, number(-LN_2), near)
    r = fused(builder, n, number(-REST_OF_LN_2), r)
    series = fused(builder, growth(builder, r), r, number(1.0))
    whole = builder.sub(builder.bitcast(shifted, word), builder.bitcast(number(ROUNDING), word))
    bits = builder.shl(builder.add(whole, constant(word, 127)), constant(word, 23))
    power = builder.fmul(series, builder.bitcast(bits, x.type))
    power = builder.select(builder.fcmp_ordered("<", x, number(MIN_EXPONENT)), number(0.0), power)
    return builder.select(builder.fcmp_ordered("ord", x, x), power, x)


def logarithm(builder: Any, x: Any) -> Any:
    """Return log x = n log(2) + log(1 + f) of positive x = 2^n (1 + f); NaN stays."""
    number, word = partial(constant, x.type), like(x.type, WORD)
    bits, shift = builder.bitcast(x, word), constant(word, 23)
    whole = builder.ashr(builder.sub(bits, builder.bitcast(number(HALF_ROOT), word)), shift)
    f = builder.fsub(builder.bitcast(builder.sub(bits, builder.shl(whole, shift)), x.type), number(1.0))
    n, series = builder.sitofp(whole, x.type), number(LOG_POWERS[0])
    for coefficient in (*LOG_POWERS[1:], -0.5):
        series = fused(builder, series, f, number(coefficient))
    result = fused(builder, builder.fmul(f, f), series, f)
    result = fused(builder, n, number(REST_OF_LN_2), result)
    result = fused(builder, n, number(LN_2), result)
    return builder.select(builder.fcmp_ordered("ord", x, x), result, x)


def logistic(builder: Any, x: Any, numerator: Any) -> Any:
    """Return numerator / (1 + e^-x)."""
    one = constant(x.type, 1.0)
    return builder.fdiv(numerator, builder.fadd(one, exponential(builder, builder.fneg(x))))


def hyperbolic_tangent(builder: Any, x: Any) -> Any:
    """Return 1 - 2 / (1 + e^(2 x))."""
    one, two = constant(x.type, 1.0), constant(x.type, 2.0)
    power = exponential(builder, builder.fadd(x, x))
    return builder.fsub(one, builder.fdiv(two, builder.fadd(one, power)))


def combined(builder: Any, numbers: Any, operation: Callable[[Any, Any, Any], Any]) -> Any:
    """Combine all lanes to one number: lanes 0 to 7 with 8 to 15, of these 0 to 3 with 4 to 7, and so on."""
    half = LANES // 2
    while half:
        rotated = shuffle(builder, numbers, numbers, [(lane + half) % LANES for lane in range(LANES)])
        numbers = operation(builder, numbers, rotated)
        half //= 2
    return builder.extract_element(numbers, WORD(0))


def added(builder: Any, a: Any, b: Any) -> Any:
    """Return a + b, as an operation for `combined`."""
    return builder.fadd(a, b)


def present(builder: Any, count: Any, j: Any) -> Any:
    """Return True in the lanes whose numbers j, j + 1, .. are below `count`."""
    lane = ir.Constant(ir.VectorType(WORD, LANES), list(range(LANES)))
    return builder.icmp_signed("<", lane, splat(builder, builder.trunc(builder.sub(count, j), WORD), LANES))


def tile_of(features: Collection[str]) -> tuple[int, int]:
    """Return the rows and vectors of a tile whose sums fill the registers of a processor with these features.

    24 of the 32 vector registers of AVX-512 are sums, or 12 of the 16 of AVX2. (LANES = 16 numbers take two of the
    latter.) The others hold weights and one broadcast number. Sums do not depend on the tile.
    """
    return (12, 2) if "+avx512f" in features else (6, 1)


ROWS, VECTORS = tile_of(FEATURES)
PANEL = VECTORS * LANES
"""Columns of a product."""


def product(rows: int, vectors: int, panels: int = 1) -> Any:
    """Return the intrinsic `multiply` of `rows` rows and `panels` panels of `vectors` vectors of columns."""

    @instructions
    def multiply(
        builder: Any, x: Any, x_at: Any, x_row: Any, w: Any, w_at: Any, bias: Any, bias_at: Any, count: Any, out: Any,
        out_at: Any, out_row: Any, add: Any,
    ) -> None:  # fmt: skip
        def offset(start: Any, distance: Any, times: int, more: int = 0) -> Any:
            return builder.add(builder.add(start, builder.mul(distance, distance.type(times))), start.type(more))

        panel = vectors * LANES
        columns = range(0, panels * panel, LANES)
        biases = [load(builder, bias, builder.add(bias_at, bias_at.type(c))) for c in columns]
        sums = [cgutils.alloca_once_value(builder, start) for _ in range(rows) for start in biases]
        beside = [builder.mul(x_row, x_row.type(row)) for row in range(rows)]
        with cgutils.for_range(builder, count) as loop:
            at = offset(w_at, loop.index, panel)
            weights = [load(builder, w, offset(at, count, c - c % panel, c % panel)) for c in columns]
            first = hide_origin(builder, builder.gep(x, [builder.add(x_at, loop.index)]))
            for row, distance in enumerate(beside):
                number = splat(builder, load(builder, first, distance, 1), LANES)
                for total, weight in zip(sums[row * len(columns) :], weights):
                    builder.store(fused(builder, number, weight, builder.load(total)), total)
        offsets = [offset(out_at, out_row, row, column) for row in range(rows) for column in columns]
        with builder.if_then(add):
            for total, at in zip(sums, offsets):
                builder.store(builder.fadd(load(builder, out, at), builder.load(total)), total)
        for total, at in zip(sums, offsets):
            store(builder, builder.load(total), out, at)

    return multiply


multiply_one = product(1, VECTORS, 2)
"""`multiply` of one row and two panels. Each step of a sum waits for the one before, so more sums keep a core busy."""
FEW = ROWS // 3
multiply_few = product(FEW, VECTORS)
multiply = product(ROWS, VECTORS)
"""out[r, c] = bias[c] + x[r, 0] w[0, c] + x[r, 1] w[1, c] + .., `count` terms from left to right.

The product has ROWS rows and PANEL columns. If `add`, this sum is added to out. x[r, k] is x[x_at + r x_row + k], w[k,
c] is w[w_at + k PANEL + c]. Of several panels, the weights of one follow those of the one before.
"""
