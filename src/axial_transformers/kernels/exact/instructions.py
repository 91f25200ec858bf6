"""float32 arithmetic as LLVM instructions: each is rounded once, and no flag allows another order or another value.

Numbers are single ones or vectors of LANES.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from axial_transformers.kernels.exact.definition import (
    HALF_ROOT,
    LANES,
    LARGEST,
    LEAST,
    LN_2,
    LOG2_E,
    LOG_POWERS,
    POWERS,
    REST_OF_LN_2,
    ROUNDING,
)
from axial_transformers.kernels.llvm import cgutils, constant, ir, like, shuffle, splat
from axial_transformers.kernels.llvm import load as load_lanes

NUMBER, WORD = ir.FloatType(), ir.IntType(32)
VECTOR = ir.VectorType(NUMBER, LANES)


def load(builder: Any, data: Any, offset: Any, lanes: int = LANES) -> Any:
    """`lanes` numbers of an array from `offset` on: LANES, whatever registers the processor has."""
    return load_lanes(builder, data, offset, lanes)


def fused(builder: Any, a: Any, b: Any, c: Any) -> Any:
    """a b + c, rounded once: an instruction where the processor has it, otherwise a call with the same result."""
    kind = f"v{a.type.count}f32" if isinstance(a.type, ir.VectorType) else "f32"
    function = ir.FunctionType(a.type, [a.type] * 3)
    return builder.call(cgutils.get_or_insert_function(builder.module, function, f"llvm.fma.{kind}"), [a, b, c])


def root(builder: Any, x: Any) -> Any:
    """The square root of a single number."""
    function = ir.FunctionType(x.type, [x.type])
    return builder.call(cgutils.get_or_insert_function(builder.module, function, "llvm.sqrt.f32"), [x])


def greater(builder: Any, a: Any, b: Any) -> Any:
    """a where it is greater than b, otherwise b."""
    return builder.select(builder.fcmp_ordered(">", a, b), a, b)


def exponential(builder: Any, x: Any) -> Any:
    """e^x = 2^n e^r with n whole and |r| <= log(2) / 2: zero below LEAST, e^LARGEST above LARGEST; NaN stays NaN."""
    number, word = partial(constant, x.type), like(x.type, WORD)
    near = greater(builder, x, number(LEAST))
    near = builder.select(builder.fcmp_ordered("<", near, number(LARGEST)), near, number(LARGEST))
    shifted = fused(builder, near, number(LOG2_E), number(ROUNDING))
    n = builder.fsub(shifted, number(ROUNDING))
    r = fused(builder, n, number(-LN_2), near)
    r = fused(builder, n, number(-REST_OF_LN_2), r)
    series = number(POWERS[0])
    for coefficient in (*POWERS[1:], 1.0, 1.0):
        series = fused(builder, series, r, number(coefficient))
    whole = builder.sub(builder.bitcast(shifted, word), builder.bitcast(number(ROUNDING), word))
    bits = builder.shl(builder.add(whole, constant(word, 127)), constant(word, 23))
    power = builder.fmul(series, builder.bitcast(bits, x.type))
    power = builder.select(builder.fcmp_ordered("<", x, number(LEAST)), number(0.0), power)
    return builder.select(builder.fcmp_ordered("ord", x, x), power, x)


def logarithm(builder: Any, x: Any) -> Any:
    """log x = n log(2) + log(1 + f) of positive numbers x = 2^n (1 + f); NaN stays NaN."""
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
    """numerator / (1 + e^-x)."""
    one = constant(x.type, 1.0)
    return builder.fdiv(numerator, builder.fadd(one, exponential(builder, builder.fneg(x))))


def hyperbolic_tangent(builder: Any, x: Any) -> Any:
    """1 - 2 / (1 + e^(2 x))."""
    one, two = constant(x.type, 1.0), constant(x.type, 2.0)
    power = exponential(builder, builder.fadd(x, x))
    return builder.fsub(one, builder.fdiv(two, builder.fadd(one, power)))


def combined(builder: Any, numbers: Any, operation: Callable[[Any, Any, Any], Any]) -> Any:
    """All lanes in one number: lanes 0 to 7 with lanes 8 to 15, of these 0 to 3 with 4 to 7, and so on."""
    half = LANES // 2
    while half:
        rotated = shuffle(builder, numbers, numbers, [(lane + half) % LANES for lane in range(LANES)])
        numbers = operation(builder, numbers, rotated)
        half //= 2
    return builder.extract_element(numbers, WORD(0))


def added(builder: Any, a: Any, b: Any) -> Any:
    """a + b."""
    return builder.fadd(a, b)


def present(builder: Any, count: Any, j: Any) -> Any:
    """True in the lanes whose numbers j, j + 1, .. are below `count`."""
    lane = ir.Constant(ir.VectorType(WORD, LANES), list(range(LANES)))
    return builder.icmp_signed("<", lane, splat(builder, builder.trunc(builder.sub(count, j), WORD), LANES))
