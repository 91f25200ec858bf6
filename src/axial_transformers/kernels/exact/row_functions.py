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
from axial_transformers.kernels.llvm import LANES as REGISTER
from axial_transformers.kernels.llvm import cgutils, constant, intrinsic, splat, store, transposed, unpacked

Generate = Callable[..., Any]

SCORES, VALUES = 4, 8 if REGISTER == LANES else 4
"""Sums of attention side by side: each step of a sum waits for the one before, so several keep a core busy."""


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
def to_lanes(typing_context: Any, x: Any, places: Any, shift: Any, width: Any, out: Any, out_at: Any) -> Any:
    """out[out_at + LANES k + lane] = x[places[lane] + shift + k] for k < width and each lane."""

    def generate(b: Any, x: Any, places: Any, shift: Any, width: Any, out: Any, out_at: Any) -> None:
        starts = [b.add(load(b, places, width.type(lane), 1), shift) for lane in range(LANES)]
        with vectors(b, width) as k:
            columns = transposed(b, [load(b, x, b.add(start, k)) for start in starts])
            for i, column in enumerate(columns):
                number = b.add(k, width.type(i))
                with b.if_then(b.icmp_signed("<", number, width)):
                    store(b, column, out, b.add(out_at, b.mul(number, width.type(LANES))))

    return on_rows(generate, x, places, shift, width, out, out_at)


@intrinsic
def from_lanes(typing_context: Any, x: Any, width: Any, out: Any, places: Any, shift: Any) -> Any:
    """out[places[lane] + shift + k] = x[LANES k + lane] for k < width and each lane; x has whole vectors of k."""

    def generate(b: Any, x: Any, width: Any, out: Any, places: Any, shift: Any) -> None:
        starts = [b.add(load(b, places, width.type(lane), 1), shift) for lane in range(LANES)]
        with vectors(b, width) as k:
            columns = [load(b, x, b.mul(b.add(k, width.type(i)), width.type(LANES))) for i in range(LANES)]
            for start, row in zip(starts, transposed(b, columns)):
                at = b.add(start, k)
                store(b, b.select(present(b, width, k), row, load(b, out, at)), out, at)

    return on_rows(generate, x, width, out, places, shift)


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
    typing_context: Any, query: Any, keys: Any, values: Any, at: Any, width: Any, count: Any, weights: Any, out: Any
) -> Any:  # fmt: skip
    """out = softmax(query . keys / sqrt(K)) values over `count` places, of LANES lines side by side.

    Args:
        query, out: [K, LANES]; keys and values: flat, with [count, K, LANES] from `at` on. Behind each, memory goes on
            for VALUES - 1 times LANES numbers, and behind keys for SCORES - 1 places.
        width: K.
        weights: memory for [count up to a multiple of SCORES, LANES] numbers and LANES times LANES before these.
    """

    def generate(
        b: Any, query: Any, keys: Any, values: Any, at: Any, width: Any, count: Any, weights: Any, out: Any
    ) -> None:
        def vector(number: Any) -> Any:
            return b.mul(number, width.type(LANES))

        def weight_at(j: Any) -> Any:
            return vector(b.add(j, width.type(LANES)))

        def more(start: Any, distance: Any, times: int) -> Any:
            return b.add(start, b.mul(distance, width.type(times)))

        place, none = vector(width), width.type(0)
        with cgutils.for_range_slice(b, none, count, width.type(SCORES)) as (j, _):
            sums, first = [cgutils.alloca_once_value(b, zero()) for _ in range(SCORES)], b.add(at, b.mul(j, place))
            with cgutils.for_range(b, width) as loop:
                k = vector(loop.index)
                number = load(b, query, k)
                for i, total in enumerate(sums):
                    key = load(b, keys, b.add(more(first, place, i), k))
                    b.store(fused(b, number, key, b.load(total)), total)
            for i, total in enumerate(sums):
                store(b, b.load(total), weights, weight_at(b.add(j, width.type(i))))
        divisor = _softmax_numerators(b, weights, weight_at, count, width)
        with cgutils.for_range_slice(b, none, width, width.type(VALUES)) as (k, _):
            sums, first = [cgutils.alloca_once_value(b, zero()) for _ in range(VALUES)], b.add(at, vector(k))
            with cgutils.for_range(b, count) as loop:
                number, value_at = load(b, weights, weight_at(loop.index)), b.add(first, b.mul(loop.index, place))
                for i, total in enumerate(sums):
                    value = load(b, values, b.add(value_at, width.type(i * LANES)))
                    b.store(fused(b, number, value, b.load(total)), total)
            for i, total in enumerate(sums):
                store(b, b.fdiv(b.load(total), divisor), out, vector(b.add(k, width.type(i))))

    return on_rows(generate, query, keys, values, at, width, count, weights, out)


def _softmax_numerators(b: Any, x: Any, at: Callable[[Any], Any], count: Any, width: Any) -> Any:
    """Replaces the vectors x[j] by e^((x[j] - largest) / sqrt(width)) for j < count, and gives their sum.

    Vector j is added to partial sum j mod LANES: these are the first vectors of x.
    """
    most = cgutils.alloca_once_value(b, constant(VECTOR, float("-inf")))
    with cgutils.for_range(b, count) as loop:
        b.store(greater(b, load(b, x, at(loop.index)), b.load(most)), most)
    top, scale = b.load(most), splat(b, b.fdiv(NUMBER(1.0), root(b, b.sitofp(width, NUMBER))), LANES)
    partial_sums = [count.type(LANES * i) for i in range(LANES)]
    for place in partial_sums:
        store(b, zero(), x, place)
    with cgutils.for_range(b, count) as loop:
        power = exponential(b, b.fmul(b.fsub(load(b, x, at(loop.index)), top), scale))
        store(b, power, x, at(loop.index))
        place = b.mul(b.and_(loop.index, count.type(LANES - 1)), count.type(LANES))
        store(b, b.fadd(load(b, x, place), power), x, place)
    sums = [load(b, x, place) for place in partial_sums]
    while len(sums) > 1:
        half = len(sums) // 2
        sums = [b.fadd(*pair) for pair in zip(sums[:half], sums[half:])]
    return sums[0]


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
