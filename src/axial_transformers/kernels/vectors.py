"""Rows of numbers, LANES at a time."""

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

import numpy as np

from axial_transformers.kernels.llvm import (
    LANES,
    Array,
    cgutils,
    constant,
    fused_multiply_add,
    instructions,
    intrinsic,
    ir,
    like,
    load,
    splat,
    store,
    types,
    unpacked,
)

CACHE_LINE = 64


def aligned_zeros(*shape: int) -> Array:
    """Return zeros aligned to a cache line."""
    size = prod(shape) * 4
    memory = np.zeros(size + CACHE_LINE, np.uint8)
    first = -memory.ctypes.data % CACHE_LINE
    return memory[first : first + size].view(np.float32).reshape(shape)


MAX_EXPONENT = 87.0
STEEPNESS = 1.702
SHIFT = 3 * 2.0**22 + 127
"""Adding it rounds to a whole number."""
LOG2_E, LN_2 = 1.4426950408889634, 0.6931471805599453
SERIES = (1 / 720, 1 / 120, 1 / 24, 1 / 6, 1 / 2, 1.0, 1.0)
"""Of e^r, highest power first."""


@instructions
def widen(builder: Any, x: Any, x_at: Any, count: Any, scale: Any, out: Any, out_at: Any) -> None:
    """Write scale * x, from float32 or bfloat16 bits."""

    def convert(j: Any, lanes: int) -> None:
        number = widened(builder, load(builder, x, builder.add(x_at, j), lanes))
        store(builder, builder.fmul(number, splat(builder, scale, lanes)), out, builder.add(out_at, j))

    in_vectors(builder, count, convert)


@intrinsic
def narrow(typing_context: Any, x: Any, x_at: Any, count: Any, scale: Any, out: Any, out_at: Any) -> Any:
    """Write scale * x, to float32 or nearest bfloat16 bits."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        x, x_at, count, scale, out, out_at = unpacked(context, builder, signature, arguments)

        def convert(j: Any, lanes: int) -> None:
            number = load(builder, x, builder.add(x_at, j), lanes)
            number = builder.fmul(number, splat(builder, scale, lanes))
            store(builder, narrowed(builder, number, signature.args[4].dtype), out, builder.add(out_at, j))

        in_vectors(builder, count, convert)
        return context.get_dummy_value()

    return types.void(x, x_at, count, scale, out, out_at), generate


@instructions
def clear(builder: Any, x: Any, x_at: Any, count: Any) -> None:
    """Zero a multiple of LANES."""
    zero = constant(ir.VectorType(ir.FloatType(), LANES), 0.0)
    with cgutils.for_range_slice(builder, count.type(0), count, count.type(LANES)) as (j, _):
        store(builder, zero, x, builder.add(x_at, j))


@intrinsic
def prefetch(typing_context: Any, x: Any, x_at: Any, count: Any) -> Any:
    """Prefetch numbers, which need not exist."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        x, x_at, count = unpacked(context, builder, signature, arguments)
        byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        numbers = CACHE_LINE // (signature.args[0].dtype.bitwidth // 8)
        with cgutils.for_range_slice(builder, count.type(0), count, count.type(numbers)) as (j, _):
            address = builder.bitcast(builder.gep(x, [builder.add(x_at, j)]), byte)
            builder.call(function, [address, word(0), word(3), word(1)])  # to read; to keep in all caches; data
        return context.get_dummy_value()

    return types.void(x, x_at, count), generate


@instructions
def add(builder: Any, x: Any, x_at: Any, count: Any, out: Any, out_at: Any) -> None:
    """out += x."""

    def work(j: Any, lanes: int) -> None:
        at = builder.add(out_at, j)
        total = builder.fadd(load(builder, out, at, lanes), load(builder, x, builder.add(x_at, j), lanes))
        store(builder, total, out, at)

    in_vectors(builder, count, work)


@intrinsic
def exp(typing_context: Any, x: Any) -> Any:
    """Return e^x; loops vectorise it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return exponential(builder, arguments[0])

    return types.float32(types.float32), generate


@instructions
def quick_gelu(builder: Any, x: Any, count: Any) -> None:
    """Replace x by x / (1 + exp(-1.702 x))."""

    def activate(j: Any, lanes: int) -> None:
        number = load(builder, x, j, lanes)
        power = exponential(builder, builder.fmul(number, constant(number.type, -STEEPNESS)))
        store(builder, builder.fdiv(number, builder.fadd(power, constant(number.type, 1.0))), x, j)

    in_vectors(builder, count, activate)


def exponential(builder: Any, x: Any) -> Any:
    """Return e^x = 2^n e^r, |r| <= log(2) / 2, to a millionth."""
    kind = x.type
    number = partial(constant, kind)
    tiny = builder.fcmp_ordered("<", x, number(-MAX_EXPONENT))
    near = builder.select(tiny, number(-MAX_EXPONENT), x)
    near = builder.select(builder.fcmp_ordered(">", near, number(MAX_EXPONENT)), number(MAX_EXPONENT), near)
    shifted = fence(builder, fused_multiply_add(builder, near, number(LOG2_E), number(SHIFT)))
    n = fence(builder, builder.fsub(shifted, number(SHIFT)))
    r = fused_multiply_add(builder, n, number(-LN_2), near)
    series = number(SERIES[0])
    for coefficient in SERIES[1:]:
        series = fused_multiply_add(builder, series, r, number(coefficient))
    return builder.select(tiny, number(0.0), builder.fmul(series, power_of_two(builder, shifted)))


def fence(builder: Any, x: Any) -> Any:
    """Round a sum here: otherwise numba reorders it."""
    lanes = f"v{x.type.count}" if isinstance(x.type, ir.VectorType) else ""
    name = f"llvm.arithmetic.fence.{lanes}f32"
    return builder.call(cgutils.get_or_insert_function(builder.module, ir.FunctionType(x.type, [x.type]), name), [x])


def power_of_two(builder: Any, shifted: Any) -> Any:
    """Return 2^n from n + SHIFT; 0 for n = -127."""
    bits = builder.bitcast(shifted, like(shifted.type, ir.IntType(32)))
    return builder.bitcast(builder.shl(bits, constant(bits.type, 23)), shifted.type)


def widened(builder: Any, number: Any) -> Any:
    """Return float32, also of bfloat16 bits."""
    if number.type == like(number.type, ir.FloatType()):
        return number
    bits = builder.zext(number, like(number.type, ir.IntType(32)))
    return builder.bitcast(builder.shl(bits, constant(bits.type, 16)), like(number.type, ir.FloatType()))


def narrowed(builder: Any, number: Any, dtype: Any) -> Any:
    """Return float32, or nearest bfloat16 bits, ties to even."""
    if dtype == types.float32:
        return number
    bits = builder.bitcast(number, like(number.type, ir.IntType(32)))
    half = constant(bits.type, 16)
    odd = builder.and_(builder.lshr(bits, half), constant(bits.type, 1))
    rounded = builder.lshr(builder.add(bits, builder.add(odd, constant(bits.type, 0x7FFF))), half)
    is_number = builder.fcmp_ordered("ord", number, number)
    rounded = builder.select(is_number, rounded, constant(bits.type, 0x7FC0))
    return builder.trunc(rounded, like(number.type, ir.IntType(16)))


def rounded(builder: Any, number: Any) -> Any:
    """Round to bfloat16 in upper halves, ties away from zero: faster than to even.

    NaN of lower bits only is lost.
    """
    bits = builder.bitcast(number, like(number.type, ir.IntType(32)))
    return builder.add(bits, constant(bits.type, 0x8000))


def in_vectors(builder: Any, count: Any, work: Callable[[Any, int], None]) -> None:
    """Call work(j, lanes) for vectors, a half (narrow heads), then numbers."""
    done = count.type(0)
    for lanes in (LANES, LANES // 2, 1):
        end = builder.and_(count, count.type(-lanes))
        with cgutils.for_range_slice(builder, done, end, count.type(lanes)) as (j, _):
            work(j, lanes)
        done = end


def greater(builder: Any, a: Any, b: Any) -> Any:
    """Return the greater numbers."""
    return builder.select(builder.fcmp_ordered(">", a, b), a, b)
