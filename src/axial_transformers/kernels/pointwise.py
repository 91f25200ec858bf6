"""Quick GELU and dropout in one pass over memory."""

from typing import Any

import numpy as np

from axial_transformers.kernels.compilation import compiled
from axial_transformers.kernels.llvm import (
    LANES,
    cgutils,
    constant,
    fused_multiply_add,
    intrinsic,
    ir,
    load,
    of_lanes,
    shuffle,
    splat,
    store,
    types,
    unpacked,
)
from axial_transformers.kernels.vectors import STEEPNESS, exponential, in_vectors, narrowed, widened

AT_ONCE = 2 * LANES
"""One register of random bits."""
GOLDEN, FIRST_FACTOR, SECOND_FACTOR = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
"""Of SplitMix64 (Steele et al. 2014)."""


@compiled
def quick_gelu(x: Any, out: Any) -> None:
    """Write x / (1 + exp(-1.702 x))."""
    activate(x, out, x.size)


@compiled
def quick_gelu_backward(x: Any, grad: Any, out: Any) -> None:
    """Write grad times the derivative of quick GELU."""
    activate_backward(x, grad, out, x.size)


@compiled
def add_dropped(x: Any, y: Any, seed: int, least: int, scale: np.float32, out: Any, first: int, last: int) -> None:
    """Add scale y where random bits are at least `least`; an empty x means zeros.

    Number j has bits j % 4 * 16 and on of output j // 4.
    """
    drop(x, y, seed, least, scale, out, first, last)


@intrinsic
def activate(typing_context: Any, x: Any, out: Any, count: Any) -> Any:
    """Write quick GELU."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        x, out, count = unpacked(context, builder, signature, arguments)

        def work(j: Any, lanes: int) -> None:
            number = widened(builder, load(builder, x, j, lanes))
            result = builder.fmul(number, _sigmoid(builder, builder.fmul(number, constant(number.type, STEEPNESS))))
            store(builder, narrowed(builder, result, signature.args[1].dtype), out, j)

        in_vectors(builder, count, work)
        return context.get_dummy_value()

    return types.void(x, out, count), generate


@intrinsic
def activate_backward(typing_context: Any, x: Any, grad: Any, out: Any, count: Any) -> Any:
    """Write grad s (1 + z (1 - s)), z = 1.702 x, s its sigmoid."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        x, grad, out, count = unpacked(context, builder, signature, arguments)

        def work(j: Any, lanes: int) -> None:
            number, above = (widened(builder, load(builder, each, j, lanes)) for each in (x, grad))
            one = constant(number.type, 1.0)
            z = builder.fmul(number, constant(number.type, STEEPNESS))
            s = _sigmoid(builder, z)
            slope = builder.fmul(s, fused_multiply_add(builder, z, builder.fsub(one, s), one))
            store(builder, narrowed(builder, builder.fmul(above, slope), signature.args[2].dtype), out, j)

        in_vectors(builder, count, work)
        return context.get_dummy_value()

    return types.void(x, grad, out, count), generate


@intrinsic
def drop(
    typing_context: Any, x: Any, y: Any, seed: Any, least: Any, scale: Any, out: Any, first: Any, last: Any
) -> Any:
    """See `add_dropped`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        x, y, seed, least, scale, out, first, last = unpacked(context, builder, signature, arguments)
        limit = builder.trunc(least, ir.IntType(16))
        size = context.make_array(signature.args[0])(context, builder, arguments[0]).nitems
        added = builder.icmp_signed(">", size, size.type(0))

        def work(j: Any, bits: Any, lanes: int) -> None:
            number = builder.fmul(widened(builder, load(builder, y, j, lanes)), splat(builder, scale, lanes))
            kept = builder.icmp_signed(">=", bits, splat(builder, limit, lanes))
            number = builder.select(kept, number, constant(number.type, 0.0))
            with builder.if_else(added) as (then, otherwise):
                with then:
                    base = widened(builder, load(builder, x, j, lanes))
                    total = builder.fadd(base, number)
                    store(builder, narrowed(builder, total, signature.args[5].dtype), out, j)
                with otherwise:
                    store(builder, narrowed(builder, number, signature.args[5].dtype), out, j)

        whole = builder.add(first, builder.and_(builder.sub(last, first), first.type(-AT_ONCE)))
        with cgutils.for_range_slice(builder, first, whole, first.type(AT_ONCE)) as (j, _):
            bits = _random_bits(builder, seed, builder.lshr(j, j.type(2)), LANES // 2)
            bits = builder.bitcast(bits, of_lanes(ir.IntType(16), AT_ONCE))
            for half in range(2):
                of_half = shuffle(builder, bits, bits, [half * LANES + lane for lane in range(LANES)])
                work(builder.add(j, j.type(half * LANES)), of_half, LANES)
        with cgutils.for_range_slice(builder, whole, last, first.type(1)) as (j, _):
            bits = _random_bits(builder, seed, builder.lshr(j, j.type(2)), 1)
            shift = builder.mul(builder.and_(j, j.type(3)), j.type(16))
            work(j, builder.trunc(builder.lshr(bits, shift), ir.IntType(16)), 1)
        return context.get_dummy_value()

    return types.void(x, y, seed, least, scale, out, first, last), generate


def _sigmoid(builder: Any, z: Any) -> Any:
    one = constant(z.type, 1.0)
    return builder.fdiv(one, builder.fadd(one, exponential(builder, builder.fneg(z))))


def _random_bits(builder: Any, seed: Any, first: Any, count: int) -> Any:
    numbers = of_lanes(ir.IntType(64), count)
    steps = ir.Constant(numbers, [i + 1 for i in range(count)] if count > 1 else 1)
    z = builder.mul(builder.add(splat(builder, first, count), steps), constant(numbers, _signed(GOLDEN)))
    z = builder.add(z, splat(builder, seed, count))
    for shift, factor in ((30, FIRST_FACTOR), (27, SECOND_FACTOR)):
        z = builder.mul(builder.xor(z, builder.lshr(z, constant(numbers, shift))), constant(numbers, _signed(factor)))
    return builder.xor(z, builder.lshr(z, constant(numbers, 31)))


def _signed(number: int) -> int:
    return number - 2**64 if number >= 2**63 else number
