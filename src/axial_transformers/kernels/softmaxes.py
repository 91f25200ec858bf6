"""Softmax of rows and columns, by vectors."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from axial_transformers.kernels.llvm import (
    LANES,
    cgutils,
    constant,
    fused_multiply_add,
    instructions,
    ir,
    like,
    load,
    shuffle,
    splat,
    store,
)
from axial_transformers.kernels.vectors import LOG2_E, SHIFT, exponential, fence, greater, power_of_two, rounded

AT_ONCE = 4
"""Rows whose exponentials are computed in turns: in one row, each step waits for the step before."""
COARSE_SERIES = (0.0550086, 0.2422104, 0.6932829, 1.0)
"""Coefficients of 2^r for |r| <= 1/2, highest power first; enough for bfloat16."""
FINE_SERIES = (0.00132647273, 0.00967151299, 0.0555073358, 0.240222424, 0.693147004, 1.0)
"""More of them: their error is below float32's own.

Both end in 1, so that a weight of 1 is 1 in both passes: a query with a single key has exact gradients.
"""
MIN_POWER = -127.0
"""The exponent from which on 2^x counts as zero: the first below those of normal float32 numbers."""


@instructions
def exponentials(builder: Any, x: Any, x_at: Any, count: Any, keys: Any, sums: Any, sums_at: Any) -> None:
    """Replace `keys` of `count` numbers by exp(x - largest), others by zeros; write their sum and `largest`."""
    _take_exponentials(builder, x, [x_at], count, [keys], sums, sums_at)


@instructions
def exponentials_of_rows(
    builder: Any, x: Any, x_at: Any, x_row: Any, count: Any, keys: Any, more: Any, sums: Any, sums_at: Any
) -> None:
    """`exponentials` of AT_ONCE rows, `x_row` apart, each with `more` keys more than the row before."""
    ats, of_rows = (
        [builder.add(first, builder.mul(step, step.type(row))) for row in range(AT_ONCE)]
        for first, step in ((x_at, x_row), (keys, more))
    )
    _take_exponentials(builder, x, ats, count, of_rows, sums, sums_at)


def _take_exponentials(
    builder: Any, x: Any, ats: Sequence[Any], count: Any, keys: Sequence[Any], sums: Any, sums_at: Any
) -> None:
    vector = ir.VectorType(ir.FloatType(), LANES)
    most = [cgutils.alloca_once_value(builder, constant(vector, -1e30)) for _ in ats]
    totals = [cgutils.alloca_once_value(builder, constant(vector, 0.0)) for _ in ats]
    fewest = builder.select(builder.icmp_signed("<", keys[0], keys[-1]), keys[0], keys[-1])
    whole = builder.and_(fewest, fewest.type(-LANES))

    def over_keys(work: Callable[[int, Any, Any], None]) -> None:
        """Call work(row, j, scores), minus infinity without a key."""
        for first, last in ((count.type(0), whole), (whole, count)):
            with cgutils.for_range_slice(builder, first, last, count.type(LANES)) as (j, _):
                for row, at in enumerate(ats):
                    present = None if last is whole else _are_keys(builder, j, keys[row])
                    work(row, j, _present(builder, x, at, j, present, float("-inf")))

    def compare(row: int, j: Any, score: Any) -> None:
        builder.store(greater(builder, score, builder.load(most[row])), most[row])

    over_keys(compare)
    largest = [_reduced(builder, builder.load(each), partial(greater, builder)) for each in most]
    subtracted = [splat(builder, each, LANES) for each in largest]

    def weigh(row: int, j: Any, score: Any) -> None:
        power = exponential(builder, builder.fsub(score, subtracted[row]))
        builder.store(builder.fadd(builder.load(totals[row]), power), totals[row])
        store(builder, power, x, builder.add(ats[row], j))

    over_keys(weigh)
    for row, (each, total) in enumerate(zip(largest, totals)):
        for k, number in enumerate((_reduced(builder, builder.load(total), builder.fadd), each)):
            store(builder, number, sums, builder.add(sums_at, sums_at.type(2 * row + k)))


@instructions
def softmax_backward(
    builder: Any, x: Any, x_at: Any, count: Any, keys: Any, sums: Any, sums_at: Any, grad: Any, grad_at: Any
) -> None:
    """Replace scores by their softmax p, grad by p (grad - sum of p grad).

    sums has the reciprocal sum, then `largest`.
    """
    scale = splat(builder, load(builder, sums, sums_at, 1), LANES)
    largest = splat(builder, load(builder, sums, builder.add(sums_at, sums_at.type(1)), 1), LANES)
    total = cgutils.alloca_once_value(builder, constant(ir.VectorType(ir.FloatType(), LANES), 0.0))

    def weigh(j: Any, present: Any) -> None:
        score = _present(builder, x, x_at, j, present, float("-inf"))
        p = builder.fmul(exponential(builder, builder.fsub(score, largest)), scale)
        store(builder, p, x, builder.add(x_at, j))
        product = builder.fmul(p, _present(builder, grad, grad_at, j, present, 0.0))
        builder.store(builder.fadd(builder.load(total), product), total)

    _over_keys(builder, count, keys, weigh)
    mean = splat(builder, _reduced(builder, builder.load(total), builder.fadd), LANES)

    def subtract_mean(j: Any, present: Any) -> None:
        difference = builder.fsub(_present(builder, grad, grad_at, j, present, 0.0), mean)
        p = load(builder, x, builder.add(x_at, j))
        store(builder, builder.fmul(p, difference), grad, builder.add(grad_at, j))

    _over_keys(builder, count, keys, subtract_mean)


@instructions
def column_exponentials(builder: Any, x: Any, rows: Any, columns: Any, scale: Any, inverses: Any, largest: Any) -> None:
    """Replace x by exp(scale (x - the column's largest)); write reciprocal sums (zero stays zero)."""
    vector = ir.VectorType(ir.FloatType(), LANES)
    scale = builder.fmul(splat(builder, scale, LANES), constant(vector, LOG2_E))
    least = builder.fdiv(constant(vector, MIN_POWER), scale)
    with cgutils.for_range_slice(builder, columns.type(0), columns, columns.type(LANES)) as (c, _):
        most = cgutils.alloca_once_value(builder, constant(vector, -1e30))
        total = cgutils.alloca_once_value(builder, constant(vector, 0.0))
        builder.store(constant(vector, -1e30), most)
        builder.store(constant(vector, 0.0), total)
        with cgutils.for_range(builder, rows) as loop:
            score = load(builder, x, _in_column(builder, loop.index, c))
            builder.store(greater(builder, score, builder.load(most)), most)
        greatest = builder.load(most)
        with cgutils.for_range(builder, rows) as loop:
            at = _in_column(builder, loop.index, c)
            below = greater(builder, least, builder.fsub(load(builder, x, at), greatest))
            power = _power(builder, below, scale, FINE_SERIES)
            builder.store(builder.fadd(builder.load(total), power), total)
            store(builder, power, x, at)
        store(builder, _inverse(builder, builder.load(total)), inverses, c)
        store(builder, greatest, largest, c)


@instructions
def column_softmax_backward(
    builder: Any, x: Any, rows: Any, columns: Any, inverses: Any, largest: Any, grad: Any
) -> None:
    """`softmax_backward` of columns."""
    vector = ir.VectorType(ir.FloatType(), LANES)
    with cgutils.for_range_slice(builder, columns.type(0), columns, columns.type(LANES)) as (c, _):
        total = cgutils.alloca_once_value(builder, constant(vector, 0.0))
        builder.store(constant(vector, 0.0), total)
        scale, greatest = load(builder, inverses, c), load(builder, largest, c)
        with cgutils.for_range(builder, rows) as loop:
            at = _in_column(builder, loop.index, c)
            p = builder.fmul(exponential(builder, builder.fsub(load(builder, x, at), greatest)), scale)
            store(builder, p, x, at)
            product = builder.fmul(p, load(builder, grad, at))
            builder.store(builder.fadd(builder.load(total), product), total)
        mean = builder.load(total)
        with cgutils.for_range(builder, rows) as loop:
            at = _in_column(builder, loop.index, c)
            difference = builder.fsub(load(builder, grad, at), mean)
            store(builder, builder.fmul(load(builder, x, at), difference), grad, at)


@instructions
def column_weights(
    builder: Any, x: Any, rows: Any, columns: Any, scale: Any, pairs: Any, inverses: Any, largest: Any
) -> None:
    """`column_exponentials` in bfloat16, an even number of rows."""
    vector = ir.VectorType(ir.FloatType(), LANES)
    scale = builder.fmul(splat(builder, scale, LANES), constant(vector, LOG2_E))
    with cgutils.for_range_slice(builder, columns.type(0), columns, columns.type(LANES)) as (c, _):
        most = cgutils.alloca_once(builder, vector)
        total = cgutils.alloca_once(builder, vector)
        builder.store(constant(vector, -1e30), most)
        builder.store(constant(vector, 0.0), total)
        with cgutils.for_range(builder, rows) as loop:
            score = load(builder, x, _in_column(builder, loop.index, c))
            builder.store(greater(builder, score, builder.load(most)), most)
        greatest = builder.fmul(builder.load(most), scale)
        lowered = builder.fneg(greatest)
        with cgutils.for_range_slice(builder, rows.type(0), rows, rows.type(2)) as (row, half):
            both = []
            for k in range(2):
                score = load(builder, x, _in_column(builder, builder.add(row, row.type(k)), c))
                both.append(_coarse_power(builder, fused_multiply_add(builder, score, scale, lowered)))
                builder.store(builder.fadd(builder.load(total), both[k]), total)
            store(builder, _bfloat16_pairs(builder, *both), pairs, _in_column(builder, half, c))
        store(builder, _inverse(builder, builder.load(total)), inverses, c)
        store(builder, greatest, largest, c)


@instructions
def column_gradients(
    builder: Any, x: Any, rows: Any, columns: Any, scale: Any, inverses: Any, largest: Any, grad: Any,
    weights: Any, d_weights: Any, pairs: Any,
) -> None:  # fmt: skip
    """`column_softmax_backward` in bfloat16.

    p and gradients go to words of two columns, gradients also to words of two rows.
    """
    vector = ir.VectorType(ir.FloatType(), LANES)
    scale = builder.fmul(splat(builder, scale, LANES), constant(vector, LOG2_E))
    weights, d_weights = (builder.bitcast(words, ir.IntType(16).as_pointer()) for words in (weights, d_weights))
    with cgutils.for_range_slice(builder, columns.type(0), columns, columns.type(LANES)) as (c, _):
        total = cgutils.alloca_once(builder, vector)
        builder.store(constant(vector, 0.0), total)
        inverse, lowered = load(builder, inverses, c), builder.fneg(load(builder, largest, c))
        with cgutils.for_range(builder, rows) as loop:
            at = _in_column(builder, loop.index, c)
            power = _coarse_power(builder, fused_multiply_add(builder, load(builder, x, at), scale, lowered))
            p = builder.fmul(power, inverse)
            store(builder, p, x, at)
            store(builder, _upper_half(builder, p), weights, at)
            product = builder.fmul(p, load(builder, grad, at))
            builder.store(builder.fadd(builder.load(total), product), total)
        mean = builder.load(total)
        with cgutils.for_range_slice(builder, rows.type(0), rows, rows.type(2)) as (row, half):
            both = []
            for k in range(2):
                at = _in_column(builder, builder.add(row, row.type(k)), c)
                difference = builder.fsub(load(builder, grad, at), mean)
                both.append(builder.fmul(load(builder, x, at), difference))
                store(builder, both[k], grad, at)
                store(builder, _upper_half(builder, both[k]), d_weights, at)
            store(builder, _bfloat16_pairs(builder, *both), pairs, _in_column(builder, half, c))


def _coarse_power(builder: Any, x: Any) -> Any:
    """Return 2^x to a ten thousandth: enough for bfloat16."""
    number = partial(constant, x.type)
    return _power(builder, greater(builder, number(MIN_POWER), x), number(1.0), COARSE_SERIES)


def _power(builder: Any, x: Any, scale: Any, series: Sequence[float]) -> Any:
    """Return 2^(scale x); zero from MIN_POWER down."""
    number = partial(constant, x.type)
    shifted = fence(builder, fused_multiply_add(builder, x, scale, number(SHIFT)))
    n = fence(builder, builder.fsub(shifted, number(SHIFT)))
    r = fused_multiply_add(builder, x, scale, builder.fneg(n))
    total = number(series[0])
    for coefficient in series[1:]:
        total = fused_multiply_add(builder, total, r, number(coefficient))
    return builder.fmul(total, power_of_two(builder, shifted))


def _bfloat16_pairs(builder: Any, a: Any, b: Any) -> Any:
    a, b = rounded(builder, a), rounded(builder, b)
    lower = builder.lshr(a, constant(a.type, 16))
    return builder.or_(lower, builder.and_(b, constant(b.type, -(1 << 16))))


def _upper_half(builder: Any, number: Any) -> Any:
    bits = rounded(builder, number)
    return builder.trunc(builder.lshr(bits, constant(bits.type, 16)), like(number.type, ir.IntType(16)))


def _are_keys(builder: Any, j: Any, keys: Any) -> Any:
    word = ir.IntType(32)
    left = splat(builder, builder.trunc(builder.sub(keys, j), word), LANES)
    return builder.icmp_signed("<", ir.Constant(left.type, list(range(LANES))), left)


def _over_keys(builder: Any, count: Any, keys: Any, work: Callable[[Any, Any], None]) -> None:
    whole = builder.and_(keys, keys.type(-LANES))
    with cgutils.for_range_slice(builder, count.type(0), whole, count.type(LANES)) as (j, _):
        work(j, None)
    with cgutils.for_range_slice(builder, whole, count, count.type(LANES)) as (j, _):
        work(j, _are_keys(builder, j, keys))


def _present(builder: Any, x: Any, x_at: Any, j: Any, present: Any, otherwise: float) -> Any:
    numbers = load(builder, x, builder.add(x_at, j))
    return numbers if present is None else builder.select(present, numbers, constant(numbers.type, otherwise))


def _inverse(builder: Any, total: Any) -> Any:
    """Return 1 / total; zero and NaN stay."""
    positive = builder.fcmp_ordered(">", total, constant(total.type, 0.0))
    return builder.select(positive, builder.fdiv(constant(total.type, 1.0), total), total)


def _in_column(builder: Any, row: Any, column: Any) -> Any:
    return builder.add(builder.mul(row, row.type(2 * LANES)), column)


def _reduced(builder: Any, numbers: Any, operation: Callable[[Any, Any], Any]) -> Any:
    half = LANES // 2
    while half:
        rotated = shuffle(builder, numbers, numbers, [(lane + half) % LANES for lane in range(LANES)])
        numbers = operation(numbers, rotated)
        half //= 2
    return builder.extract_element(numbers, ir.IntType(32)(0))
