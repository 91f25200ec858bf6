"""The distribution of ordinal values, compiled: mixtures of logistic distributions, as `reference` defines them.

The head has 3 K outputs: weights, means, log precisions. Vectors are read whole: behind its last number, a row of
outputs goes on for LANES numbers.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from axial_transformers.kernels.compilation import exact_part
from axial_transformers.kernels.exact.coding import advance, boundary, factor_of
from axial_transformers.kernels.exact.definition import (
    BETWEEN_BITS,
    COEFFICIENT_BITS,
    LANES,
    LN_2,
    LOGISTIC_BITS,
    LOGISTIC_END,
    MAX_OUTPUT,
    MIN_LOG_PRECISION,
    NOT_FINITE,
    PRECISION,
    TABLE_BITS,
    Array,
    Centring,
    Ordinal,
    Stream,
    logistic_table,
)
from axial_transformers.kernels.exact.instructions import (
    NUMBER,
    VECTOR,
    added,
    combined,
    exponential,
    fused,
    greater,
    growth,
    load,
    logarithm,
    present,
)
from axial_transformers.kernels.exact.row_functions import all_lanes, fixed_points, not_inlined, on_rows, vectors, zero
from axial_transformers.kernels.llvm import Integers, cgutils, constant, intrinsic, ir, splat, store, types

TABLE = logistic_table()
HALF = np.float32(0.5)


class MixtureMemory(NamedTuple):
    """What one thread needs for the mixture of a position."""

    numbers: NDArray[np.int32]
    """Fixed-point weights."""
    shares: Integers
    """[K]: integer weights."""
    precisions: Array
    """[K]; the other arrays go on up to a multiple of LANES."""
    terms: Array


@intrinsic
def precisions_of(typing_context: Any, outputs: Any, at: Any, count: Any, most: Any, out: Any) -> Any:
    """Write the precisions of `count` components; return False if some output is not finite, or huge."""

    def generate(b: Any, outputs: Any, at: Any, count: Any, most: Any, out: Any) -> Any:
        fine = cgutils.alloca_once_value(b, constant(ir.VectorType(ir.IntType(1), LANES), 1))
        size, third = b.mul(count, count.type(3)), b.mul(count, count.type(2))
        with vectors(b, size) as j:
            number = b.select(present(b, size, j), load(b, outputs, b.add(at, j)), zero())
            number = greater(b, number, b.fneg(number))
            b.store(b.and_(b.load(fine), b.fcmp_ordered("<", number, constant(VECTOR, MAX_OUTPUT))), fine)
        with vectors(b, count) as j:
            number = load(b, outputs, b.add(b.add(at, third), j))
            number = greater(b, number, constant(VECTOR, MIN_LOG_PRECISION))
            bound = splat(b, most, LANES)
            number = b.select(b.fcmp_ordered("<", number, bound), number, bound)
            store(b, exponential(b, number), out, j)
        return all_lanes(b, b.load(fine))

    return on_rows(generate, outputs, at, count, most, out, result=types.boolean)


@intrinsic
def logistic_sum(
    typing_context: Any, outputs: Any, at: Any, count: Any, unit: Any, precisions: Any, shares: Any, table: Any,
    offset: Any,
) -> Any:  # fmt: skip
    """Return the sum of integer weights times integer logistic functions of (offset - unit mean) precision."""

    def generate(
        b: Any, outputs: Any, at: Any, count: Any, unit: Any, precisions: Any, shares: Any, table: Any, offset: Any
    ) -> Any:
        whole, minus_unit = count.type, b.fneg(unit)
        total = cgutils.alloca_once_value(b, whole(0))
        with cgutils.for_range(b, count) as loop:
            mean = load(b, outputs, b.add(b.add(at, count), loop.index), 1)
            z = b.fmul(fused(b, mean, minus_unit, offset), load(b, precisions, loop.index, 1))
            is_negative = b.fcmp_ordered("<", z, NUMBER(0.0))
            size = b.select(is_negative, b.fneg(z), z)
            size = b.select(b.fcmp_ordered("<", size, NUMBER(LOGISTIC_END)), size, NUMBER(LOGISTIC_END))
            steps = b.fptosi(b.fmul(size, NUMBER(float(1 << TABLE_BITS + BETWEEN_BITS))), whole)
            row, between = b.lshr(steps, whole(BETWEEN_BITS)), b.and_(steps, whole((1 << BETWEEN_BITS) - 1))
            upper, lower = load(b, table, row, 1), load(b, table, b.add(row, whole(1)), 1)
            below = b.sub(upper, b.lshr(b.mul(b.sub(upper, lower), between), whole(BETWEEN_BITS)))
            logistic = b.select(is_negative, below, b.sub(whole(1 << LOGISTIC_BITS), below))
            b.store(b.add(b.load(total), b.mul(load(b, shares, loop.index, 1), logistic)), total)
        return b.load(total)

    kinds = outputs, at, count, unit, precisions, shares, table, offset
    return on_rows(generate, *kinds, result=types.int64)


@intrinsic
def nats_of_components(
    typing_context: Any, outputs: Any, at: Any, count: Any, unit: Any, precisions: Any, distance: Any, is_first: Any,
    is_last: Any, terms: Any,
) -> Any:  # fmt: skip
    """Return -log of the probability of a value, see `reference.nats_of_mixture`; `terms` is memory."""

    def generate(
        b: Any, outputs: Any, at: Any, count: Any, unit: Any, precisions: Any, distance: Any, is_first: Any,
        is_last: Any, terms: Any,
    ) -> Any:  # fmt: skip
        lowest, half = constant(VECTOR, float("-inf")), constant(VECTOR, 0.5)
        top, most = (cgutils.alloca_once_value(b, lowest) for _ in range(2))
        whole, total = (cgutils.alloca_once_value(b, zero()) for _ in range(2))
        minus_unit, distance = b.fneg(splat(b, unit, LANES)), splat(b, distance, LANES)

        def weight(j: Any) -> Any:
            return b.select(present(b, count, j), load(b, outputs, b.add(at, j)), lowest)

        with vectors(b, count) as j:
            b.store(greater(b, weight(j), b.load(top)), top)
        largest = splat(b, combined(b, b.load(top), greater), LANES)
        with vectors(b, count) as j:
            power = b.fsub(weight(j), largest)
            b.store(b.fadd(b.load(whole), exponential(b, power)), whole)
            precision, mean = load(b, precisions, j), load(b, outputs, b.add(b.add(at, count), j))
            upper = b.fmul(fused(b, mean, minus_unit, b.fadd(distance, half)), precision)
            lower = b.fneg(b.fmul(fused(b, mean, minus_unit, b.fsub(distance, half)), precision))
            from_upper, from_lower = _log_logistic(b, upper), _log_logistic(b, lower)
            inner = b.fadd(b.fadd(from_upper, from_lower), _log_of_rest(b, precision))
            term = b.select(is_first, from_upper, b.select(is_last, from_lower, inner))
            term = b.select(present(b, count, j), b.fadd(power, term), lowest)
            store(b, term, terms, j)
            b.store(greater(b, term, b.load(most)), most)
        highest = combined(b, b.load(most), greater)
        with vectors(b, count) as j:
            power = exponential(b, b.fsub(load(b, terms, j), splat(b, highest, LANES)))
            b.store(b.fadd(b.load(total), power), total)
        of_value = b.fadd(highest, logarithm(b, combined(b, b.load(total), added)))
        return b.fsub(logarithm(b, combined(b, b.load(whole), added)), of_value)

    kinds = outputs, at, count, unit, precisions, distance, is_first, is_last, terms
    return on_rows(generate, *kinds, result=types.float32)


def _log_logistic(b: Any, x: Any) -> Any:
    size = greater(b, x, b.fneg(x))
    rest = logarithm(b, b.fadd(constant(VECTOR, 1.0), exponential(b, b.fneg(size))))
    return b.fsub(b.select(b.fcmp_ordered("<", x, zero()), x, zero()), rest)


def _log_of_rest(b: Any, x: Any) -> Any:
    is_near = b.fcmp_ordered("<", x, constant(VECTOR, LN_2 / 2))
    near = b.fmul(x, growth(b, b.fneg(b.select(is_near, x, zero()))))
    far = b.fsub(constant(VECTOR, 1.0), exponential(b, b.fneg(x)))
    return logarithm(b, b.select(is_near, near, far))


@exact_part
def nats_of_mixture(
    outputs: Array, row: int, ordinal: Ordinal, value: int, centre: int, memory: MixtureMemory
) -> np.float32:
    """Return -log of the probability of a value, from a row of outputs; NaN if these cannot be used."""
    at = row * outputs.shape[1]
    if not precisions_of(outputs, at, ordinal.mixtures, ordinal.max_log_precision, memory.precisions):
        return np.float32(np.nan)
    return nats_of_components(
        outputs, at, ordinal.mixtures, ordinal.unit, memory.precisions, np.float32(value - centre), value == 0,
        value == ordinal.num_values - 1, memory.terms,
    )  # fmt: skip


@exact_part
def prepare(outputs: Array, row: int, ordinal: Ordinal, memory: MixtureMemory) -> bool:
    """Write the precisions and the integer weights of a row of outputs; return False if these cannot be used."""
    at, count, numbers, shares = row * outputs.shape[1], ordinal.mixtures, memory.numbers, memory.shares
    if not precisions_of(outputs, at, count, ordinal.max_log_precision, memory.precisions):
        return False
    fixed_points(outputs, at, count, numbers)
    factor, before, start = factor_of(numbers, count, ordinal.num_values), np.int64(0), np.int64(0)
    for k in range(count):
        before += np.int64(numbers[k])
        end = boundary(0, before, factor) if k < count - 1 else np.int64((1 << PRECISION) - ordinal.num_values)
        shares[k] = end - start
        start = end
    return True


@exact_part
def counts_below(
    value: int, centre: int, outputs: Array, row: int, ordinal: Ordinal, precisions: Array, shares: Integers
) -> Any:
    """Return the start of the interval of a value from 0 to V, after `prepare`; that of V is 2^PRECISION."""
    if value == 0:
        return np.int64(0)
    if value == ordinal.num_values:
        return np.int64(1 << PRECISION)
    at, offset = row * outputs.shape[1], np.float32(value - centre) - HALF
    total = logistic_sum(outputs, at, ordinal.mixtures, ordinal.unit, precisions, shares, TABLE, offset)
    return value + (total >> LOGISTIC_BITS)


@exact_part
def read_mixture(
    outputs: Array, row: int, ordinal: Ordinal, centre: int, stream: Stream, memory: MixtureMemory
) -> np.int64:
    """Return the next value of a stream; 0, and a note, if outputs cannot be used."""
    not_inlined()
    value, beyond = np.int64(0), np.int64(ordinal.num_values)
    if not prepare(outputs, row, ordinal, memory):
        stream.state[2] = NOT_FINITE
        return value
    slot, precisions, shares = stream.state[0] & ((1 << PRECISION) - 1), memory.precisions, memory.shares
    start, end = np.int64(0), np.int64(1 << PRECISION)
    while beyond - value > 1:
        middle = (value + beyond) >> 1
        at = counts_below(middle, centre, outputs, row, ordinal, precisions, shares)
        if at <= slot:
            value, start = middle, at
        else:
            beyond, end = middle, at
    advance(stream, start, end)
    return value


@exact_part
def centre_of(centring: Centring, b: int, i: int, count: int) -> Any:
    """Return the prediction of example b at position i, one of `count` values."""
    if not centring.positions.size:
        return np.int64((count - 1) // 2)
    neighbours, coefficients, values = centring.neighbours, centring.coefficients, centring.values
    size = neighbours.shape[1]
    total = coefficients[i, size]
    for j in range(size):
        if neighbours[i, j] >= 0:
            total += coefficients[i, j] * values[b, neighbours[i, j]]
    return min(max(total >> COEFFICIENT_BITS, np.int64(0)), np.int64(count - 1))


@exact_part
def keep_value(centring: Centring, b: int, i: int, value: int, centre: int, count: int) -> Any:
    """Write the value of example b at position i, and return its code."""
    if not centring.positions.size:
        return value
    centring.values[b, centring.positions[i]] = value
    return value + count * centre
