"""Functions of rows of numbers, LANES at a time: layer norm, softmax attention of one query, gates, fixed points.

Rows are read and written in whole vectors: behind its last number, a row's memory goes on up to a multiple of LANES.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import ir
from numba import types

from axial_transformers.kernels.exact.definition import EPSILON, FIXED_POINT, LANES, STEEPNESS
from axial_transformers.kernels.exact.instructions import (
    NUMBER,
    VECTOR,
    WORD,
    added,
    combined,
    exponential,
    fused,
    greater,
    hyperbolic_tangent,
    load,
    logistic,
    present,
    root,
)
from axial_transformers.kernels.llvm import cgutils, constant, intrinsic, splat, store, unpacked

Generate = Callable[..., Any]

QUERIES = 4
"""Queries whose attention is computed side by side: each sum waits for the one before, so several keep a core busy."""


def on_rows(generate: Generate, *kinds: Any, result: Any = types.void) -> tuple[Any, Generate]:
    """Signature and code of an intrinsic, from a function of builder and arguments, arrays as addresses."""

    def of_arguments(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        value = generate(builder, *unpacked(context, builder, signature, arguments))
        return context.get_dummy_value() if value is None else value

    return result(*kinds), of_arguments


@contextmanager
def vectors(builder: Any, count: Any) -> Iterator[Any]:
    """The code of a loop over the first numbers j of the vectors that `count` numbers take."""
    with cgutils.for_range_slice(builder, count.type(0), count, count.type(LANES)) as (j, _):
        yield j


def zero() -> Any:
    """A vector of zeros."""
    return constant(VECTOR, 0.0)


@intrinsic
def not_inlined(typing_context: Any) -> Any:
    """Keeps the function that it is called in from being copied into its callers, which takes long to compile."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.function.attributes.add("noinline")
        return context.get_dummy_value()

    return types.void(), generate


@intrinsic
def copy(typing_context: Any, x: Any, x_at: Any, count: Any, out: Any, out_at: Any) -> Any:
    """out[out_at + j] = x[x_at + j] for j < count."""

    def generate(b: Any, x: Any, x_at: Any, count: Any, out: Any, out_at: Any) -> None:
        with cgutils.for_range(b, count) as loop:
            store(b, load(b, x, b.add(x_at, loop.index), 1), out, b.add(out_at, loop.index))

    return on_rows(generate, x, x_at, count, out, out_at)


@intrinsic
def copy_apart(typing_context: Any, x: Any, x_at: Any, count: Any, out: Any, out_at: Any) -> Any:
    """out[out_at + LANES j] = x[x_at + j] for j < count."""

    def generate(b: Any, x: Any, x_at: Any, count: Any, out: Any, out_at: Any) -> None:
        nothing = ir.FunctionType(ir.VoidType(), [])
        with cgutils.for_range(b, count) as loop:
            b.asm(nothing, "", "", [], side_effect=True)  # otherwise LLVM takes scatter instructions, which are slow
            number = load(b, x, b.add(x_at, loop.index), 1)
            store(b, number, out, b.add(out_at, b.mul(loop.index, count.type(LANES))))

    return on_rows(generate, x, x_at, count, out, out_at)


@intrinsic
def normalise(
    typing_context: Any, x: Any, x_at: Any, count: Any, gain: Any, bias: Any, of_norm: Any, out: Any, out_at: Any
) -> Any:
    """LayerNorm of `count` numbers; those of gain and bias from `of_norm` on."""

    def generate(b: Any, x: Any, x_at: Any, count: Any, gain: Any, bias: Any, of_norm: Any, out: Any, to: Any) -> None:
        size = b.sitofp(count, NUMBER)
        total = cgutils.alloca_once_value(b, zero())
        with vectors(b, count) as j:
            number = b.select(present(b, count, j), load(b, x, b.add(x_at, j)), zero())
            b.store(b.fadd(b.load(total), number), total)
        mean = splat(b, b.fdiv(combined(b, b.load(total), added), size), LANES)
        squares = cgutils.alloca_once_value(b, zero())
        with vectors(b, count) as j:
            deviation = b.fsub(load(b, x, b.add(x_at, j)), mean)
            deviation = b.select(present(b, count, j), deviation, zero())
            b.store(fused(b, deviation, deviation, b.load(squares)), squares)
        variance = b.fdiv(combined(b, b.load(squares), added), size)
        scale = b.fdiv(NUMBER(1.0), root(b, b.fadd(variance, NUMBER(EPSILON))))
        scale = splat(b, scale, LANES)
        with vectors(b, count) as j:
            unit = b.fmul(b.fsub(load(b, x, b.add(x_at, j)), mean), scale)
            at = b.add(of_norm, j)
            store(b, fused(b, unit, load(b, gain, at), load(b, bias, at)), out, b.add(to, j))

    return on_rows(generate, x, x_at, count, gain, bias, of_norm, out, out_at)


@intrinsic
def quick_gelu(typing_context: Any, x: Any, x_at: Any, count: Any) -> Any:
    """Replaces x by x / (1 + e^(-1.702 x))."""

    def generate(b: Any, x: Any, x_at: Any, count: Any) -> None:
        with vectors(b, count) as j:
            number = load(b, x, b.add(x_at, j))
            store(b, logistic(b, b.fmul(number, constant(VECTOR, STEEPNESS)), number), x, b.add(x_at, j))

    return on_rows(generate, x, x_at, count)


@intrinsic
def attend(
    typing_context: Any, q: Any, keys: Any, values: Any, out: Any, places: Any, width: Any, apart: Any,
    value_width: Any, count: Any, weights: Any,
) -> Any:  # fmt: skip
    """softmax(q . keys / sqrt(K)) values over `count` places, of QUERIES queries side by side.

    Args:
        keys: [apart / LANES, K, LANES] for each query, LANES places after LANES places; values: [count, value_width];
            both flat, with those of other queries.
        places: [4, QUERIES], where each query's q, keys, values and out begin.
        width: K.
        weights: memory for [QUERIES, apart] numbers.
    """

    def generate(
        b: Any, q: Any, keys: Any, values: Any, out: Any, places: Any, width: Any, apart: Any, value_width: Any,
        count: Any, weights: Any,
    ) -> None:  # fmt: skip
        queries = range(QUERIES)
        q_at, keys_at, values_at, out_at = (
            [load(b, places, width.type(kind * QUERIES + query), 1) for query in queries] for kind in range(4)
        )
        weights_at = [b.mul(apart, width.type(query)) for query in queries]
        with vectors(b, count) as j:
            sums = [cgutils.alloca_once_value(b, zero()) for _ in queries]
            with cgutils.for_range(b, width) as loop:
                key_at = b.add(b.mul(j, width), b.mul(loop.index, width.type(LANES)))
                for total, first, line in zip(sums, q_at, keys_at):
                    number = splat(b, load(b, q, b.add(first, loop.index), 1), LANES)
                    b.store(fused(b, number, load(b, keys, b.add(line, key_at)), b.load(total)), total)
            for total, at in zip(sums, weights_at):
                store(b, b.load(total), weights, b.add(at, j))
        scale = splat(b, b.fdiv(NUMBER(1.0), root(b, b.sitofp(width, NUMBER))), LANES)
        divisors = _softmax_numerators(b, weights, weights_at, count, scale)
        with vectors(b, value_width) as k:
            sums = [cgutils.alloca_once_value(b, zero()) for _ in queries]
            with cgutils.for_range(b, count) as loop:
                value_at = b.add(b.mul(loop.index, value_width), k)
                for total, weight_at, line in zip(sums, weights_at, values_at):
                    number = splat(b, load(b, weights, b.add(weight_at, loop.index), 1), LANES)
                    b.store(fused(b, number, load(b, values, b.add(line, value_at)), b.load(total)), total)
            for total, divisor, at in zip(sums, divisors, out_at):
                place = b.add(at, k)
                number = b.fdiv(b.load(total), splat(b, divisor, LANES))
                # behind a head's K numbers are those of the next head, which may be there already
                store(b, b.select(present(b, width, k), number, load(b, out, place)), out, place)

    return on_rows(generate, q, keys, values, out, places, width, apart, value_width, count, weights)


def _softmax_numerators(b: Any, x: Any, places: list[Any], count: Any, scale: Any) -> list[Any]:
    """Replaces x[j] by e^(scale (x[j] - largest)) for j < count in the rows at some places, and gives their sums."""
    lowest = constant(VECTOR, float("-inf"))

    def masked(at: Any, j: Any) -> Any:
        return b.select(present(b, count, j), load(b, x, b.add(at, j)), lowest)

    most = [cgutils.alloca_once_value(b, lowest) for _ in places]
    with vectors(b, count) as j:
        for so_far, at in zip(most, places):
            b.store(greater(b, masked(at, j), b.load(so_far)), so_far)
    largest = [splat(b, combined(b, b.load(so_far), greater), LANES) for so_far in most]
    totals = [cgutils.alloca_once_value(b, zero()) for _ in places]
    with vectors(b, count) as j:
        for total, top, at in zip(totals, largest, places):
            power = exponential(b, b.fmul(b.fsub(masked(at, j), top), scale))
            b.store(b.fadd(b.load(total), power), total)
            store(b, power, x, b.add(at, j))
    return [combined(b, b.load(total), added) for total in totals]


@intrinsic
def lstm_cell(
    typing_context: Any, of_input: Any, of_hidden: Any, at: Any, width: Any, cell: Any, hidden: Any, x: Any, x_at: Any
) -> Any:
    """One step of `width` cells from the sums of both products; updates cell and hidden state, adds the latter to x.

    Gates are `width` apart, from `at` on: input, forget, cell, output.
    """

    def generate(
        b: Any, of_input: Any, of_hidden: Any, at: Any, width: Any, cell: Any, hidden: Any, x: Any, x_at: Any
    ) -> None:
        one = constant(VECTOR, 1.0)
        with vectors(b, width) as j:
            gates = []
            for gate in range(4):
                place = b.add(at, b.add(b.mul(width, width.type(gate)), j))
                gates.append(b.fadd(load(b, of_input, place), load(b, of_hidden, place)))
            new = b.fmul(logistic(b, gates[0], one), hyperbolic_tangent(b, gates[2]))
            place = b.add(x_at, j)
            state = fused(b, logistic(b, gates[1], one), load(b, cell, place), new)
            output = b.fmul(logistic(b, gates[3], one), hyperbolic_tangent(b, state))
            store(b, state, cell, place)
            store(b, output, hidden, place)
            store(b, b.fadd(load(b, x, place), output), x, place)

    return on_rows(generate, of_input, of_hidden, at, width, cell, hidden, x, x_at)


@intrinsic
def fixed_points(typing_context: Any, logits: Any, at: Any, count: Any, out: Any) -> Any:
    """out[j] = e^(logit j - largest) in units of 2^-FIXED_POINT, rounded down; False if logits are not finite."""

    def generate(b: Any, logits: Any, at: Any, count: Any, out: Any) -> Any:
        lowest = constant(VECTOR, float("-inf"))
        words = ir.VectorType(WORD, LANES)

        def masked(j: Any) -> Any:
            return b.select(present(b, count, j), load(b, logits, b.add(at, j)), lowest)

        most = cgutils.alloca_once_value(b, lowest)
        with vectors(b, count) as j:
            b.store(greater(b, masked(j), b.load(most)), most)
        largest = splat(b, combined(b, b.load(most), greater), LANES)
        wrong = cgutils.alloca_once_value(b, constant(words, 0))
        with vectors(b, count) as j:
            difference = b.fsub(masked(j), largest)
            power = exponential(b, difference)
            is_number = b.fcmp_ordered("<=", difference, zero())
            power = b.fmul(b.select(is_number, power, zero()), constant(VECTOR, float(1 << FIXED_POINT)))
            store(b, b.fptosi(power, words), out, j)
            b.store(b.or_(b.load(wrong), b.zext(b.not_(is_number), words)), wrong)
        flags = b.load(wrong)
        some = b.extract_element(flags, WORD(0))
        for lane in range(1, LANES):
            some = b.or_(some, b.extract_element(flags, WORD(lane)))
        return b.icmp_signed("==", some, WORD(0))

    return on_rows(generate, logits, at, count, out, result=types.boolean)
