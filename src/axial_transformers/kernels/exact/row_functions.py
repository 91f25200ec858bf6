"""Functions of rows of numbers, LANES at a time: layer norm, softmax attention of one query, gates, fixed points.

Rows are read and written in whole vectors: behind its last number, a row goes on up to a multiple of LANES.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

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
    logarithm,
    logistic,
    present,
    root,
)
from axial_transformers.kernels.llvm import LANES as REGISTER
from axial_transformers.kernels.llvm import (
    cgutils,
    constant,
    instructions,
    intrinsic,
    ir,
    splat,
    store,
    transposed,
    types,
    unpacked,
)

Generate = Callable[..., Any]


def on_rows(generate: Generate, *kinds: Any, result: Any) -> tuple[Any, Generate]:
    """Return signature and code of an intrinsic, from a function of builder and arguments; arrays are addresses."""

    def of_arguments(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return generate(builder, *unpacked(context, builder, signature, arguments))

    return result(*kinds), of_arguments


@contextmanager
def vectors(builder: Any, count: Any) -> Iterator[Any]:
    """Write a loop over the first numbers j of the vectors that `count` numbers take."""
    with cgutils.for_range_slice(builder, count.type(0), count, count.type(LANES)) as (j, _):
        yield j


def zero() -> Any:
    """Return a vector of zeros."""
    return constant(VECTOR, 0.0)


@instructions
def not_inlined(builder: Any) -> None:
    """Keep the function that calls this from being copied into its callers, which would take long to compile."""
    builder.function.attributes.add("noinline")


@instructions
def copy(b: Any, x: Any, x_at: Any, count: Any, out: Any, out_at: Any) -> None:
    """Copy `count` numbers."""
    with cgutils.for_range(b, count) as loop:
        store(b, load(b, x, b.add(x_at, loop.index), 1), out, b.add(out_at, loop.index))


@instructions
def add(b: Any, x: Any, x_at: Any, count: Any, out: Any, out_at: Any) -> None:
    """Add `count` numbers to out."""
    with cgutils.for_range(b, count) as loop:
        at = b.add(out_at, loop.index)
        store(b, b.fadd(load(b, out, at, 1), load(b, x, b.add(x_at, loop.index), 1)), out, at)


@instructions
def add_linear(
    b: Any, x: Any, x_at: Any, x_count: Any, y: Any, y_at: Any, y_count: Any, weight: Any, bias: Any, columns: Any,
    out: Any, out_at: Any,
) -> None:  # fmt: skip
    """Add a linear layer of the numbers of x, then of y, to `columns` numbers of out, a multiple of LANES."""
    with vectors(b, columns) as j:
        total, row = cgutils.alloca_once_value(b, load(b, bias, j)), j
        for numbers, at, count in ((x, x_at, x_count), (y, y_at, y_count)):
            with cgutils.for_range(b, count) as loop:
                number = splat(b, load(b, numbers, b.add(at, loop.index), 1), LANES)
                weights = load(b, weight, b.add(row, b.mul(loop.index, columns)))
                b.store(fused(b, number, weights, b.load(total)), total)
            row = b.add(row, b.mul(count, columns))
        here = b.add(out_at, j)
        store(b, b.fadd(load(b, out, here), b.load(total)), out, here)


@instructions
def to_lanes(b: Any, x: Any, offsets: Any, shift: Any, width: Any, out: Any, out_at: Any) -> None:
    """out[LANES k + lane] = x[offsets[lane] + shift + k], k < width."""
    starts = [b.add(load(b, offsets, width.type(lane), 1), shift) for lane in range(LANES)]
    with vectors(b, width) as k:
        columns = transposed(b, [load(b, x, b.add(start, k)) for start in starts])
        for i, column in enumerate(columns):
            number = b.add(k, width.type(i))
            with b.if_then(b.icmp_signed("<", number, width)):
                store(b, column, out, b.add(out_at, b.mul(number, width.type(LANES))))


@instructions
def from_lanes(b: Any, x: Any, x_at: Any, width: Any, out: Any, offsets: Any, shift: Any) -> None:
    """Undo `to_lanes`: out[offsets[lane] + shift + k] = x[x_at + LANES k + lane], k < width."""
    starts = [b.add(load(b, offsets, width.type(lane), 1), shift) for lane in range(LANES)]
    with vectors(b, width) as k:
        first = b.add(x_at, b.mul(k, width.type(LANES)))
        columns = [load(b, x, b.add(first, width.type(LANES * i))) for i in range(LANES)]
        for start, row in zip(starts, transposed(b, columns)):
            at = b.add(start, k)
            store(b, b.select(present(b, width, k), row, load(b, out, at)), out, at)


@instructions
def normalise(b: Any, x: Any, x_at: Any, count: Any, gain: Any, bias: Any, of_norm: Any, out: Any, to: Any) -> None:
    """Write the layer norm of `count` numbers."""
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


@instructions
def quick_gelu(b: Any, x: Any, x_at: Any, count: Any) -> None:
    """Replace x by x / (1 + e^(-1.702 x))."""
    with vectors(b, count) as j:
        number = load(b, x, b.add(x_at, j))
        store(b, logistic(b, b.fmul(number, constant(VECTOR, STEEPNESS)), number), x, b.add(x_at, j))


@instructions
def rotate(b: Any, x: Any, x_at: Any, half: Any, table: Any, at: Any) -> None:
    """Rotate numbers j and j + `half` by cosines, then sines."""
    with vectors(b, half) as j:
        pair = b.add(x_at, j), b.add(b.add(x_at, half), j)
        first, second = (load(b, x, index) for index in pair)
        cos, sin = (load(b, table, b.add(b.add(at, start), j)) for start in (half.type(0), half))
        turned = fused(b, first, cos, b.fneg(b.fmul(second, sin))), fused(b, second, cos, b.fmul(first, sin))
        for number, index in zip(turned, pair):
            store(b, b.select(present(b, half, j), number, load(b, x, index)), x, index)


def attention(queries: int, positions: int, numbers: int) -> Any:
    """Return the intrinsic `attend`."""

    @instructions
    def attend(
        b: Any, query: Any, keys: Any, values: Any, at: Any, width: Any, count: Any, more: Any, weights: Any, out: Any
    ) -> None:
        def times(number: Any, factor: int) -> Any:
            return b.mul(number, width.type(factor))

        def padded(number: Any, multiple: int) -> Any:
            return b.and_(b.add(number, width.type(multiple - 1)), width.type(-multiple))

        none, of_position = width.type(0), times(width, LANES)
        of_query = times(padded(width, LANES), LANES)
        counts = [b.add(count, times(more, i)) for i in range(queries)]
        of_weights = times(b.add(padded(counts[-1], MAX_POSITIONS), width.type(LANES)), LANES)
        query_at = [times(of_query, i) for i in range(queries)]
        partial_at = [times(of_weights, i) for i in range(queries)]
        weights_at = [b.add(start, width.type(LANES * LANES)) for start in partial_at]

        def products(starts: list[Any], factors: Any, distance: Any, terms: Any, further: Any) -> list[list[Any]]:
            """Return, for each query, sums over k of its factor k times the numbers k `distance` behind the starts.

            k is below `terms` for the first query, below terms + further for the next one, and so on.
            """
            sums = [[cgutils.alloca_once_value(b, zero()) for _ in starts] for _ in range(queries)]

            def accumulate(k: Any, first_query: int) -> None:
                first = b.mul(k, distance)
                others = [load(b, memory, b.add(start, first)) for memory, start in starts]
                for of_this, (memory, start) in list(zip(sums, factors))[first_query:]:
                    factor = load(b, memory, b.add(start, times(k, LANES)))
                    for total, other in zip(of_this, others):
                        b.store(fused(b, factor, other, b.load(total)), total)

            with cgutils.for_range(b, terms) as loop:
                accumulate(loop.index, 0)
            for later in range(1, queries):
                with cgutils.for_range(b, further) as loop:
                    accumulate(b.add(b.add(terms, times(further, later - 1)), loop.index), later)
            return [[b.load(total) for total in of_this] for of_this in sums]

        with cgutils.for_range_slice(b, none, counts[-1], width.type(positions)) as (j, _):
            starts = [(keys, b.add(at, b.mul(b.add(j, width.type(i)), of_position))) for i in range(positions)]
            scores = products(starts, [(query, start) for start in query_at], width.type(LANES), width, none)
            for start, of_this in zip(weights_at, scores):
                for i, score in enumerate(of_this):
                    store(b, score, weights, b.add(start, times(b.add(j, width.type(i)), LANES)))
        divisors = [
            _softmax_numerators(b, weights, start, partial, of_this, width)
            for start, partial, of_this in zip(weights_at, partial_at, counts)
        ]
        with cgutils.for_range_slice(b, none, width, width.type(numbers)) as (k, _):
            starts = [(values, b.add(at, times(b.add(k, width.type(i)), LANES))) for i in range(numbers)]
            sums = products(starts, [(weights, start) for start in weights_at], of_position, count, more)
            for start, divisor, of_this in zip(query_at, divisors, sums):
                for i, total in enumerate(of_this):
                    store(b, b.fdiv(total, divisor), out, b.add(start, times(b.add(k, width.type(i)), LANES)))

    return attend


WIDE = REGISTER == LANES
MAX_POSITIONS, MAX_NUMBERS = 4, 8 if WIDE else 4
attend = attention(1, MAX_POSITIONS, MAX_NUMBERS)
"""out = softmax(query . keys / sqrt(K)) values over `count` positions, of LANES lines side by side.

query and out: [queries, K, LANES], K up to a multiple of LANES. keys and values: flat, [count, K, LANES] from `at` on.
Memory goes on behind keys for MAX_POSITIONS - 1 positions, and behind values for MAX_NUMBERS - 1 vectors. weights:
memory for [queries, LANES + count, LANES] numbers, count up to a multiple of MAX_POSITIONS. width: K.

Each step of a sum waits for the one before, so several sums side by side keep a core busy.
"""
QUERIES = 4 if WIDE else 2
attend_together = attention(QUERIES, 2, 2)
"""`attend` of QUERIES queries, which read keys and values once."""


def _softmax_numerators(b: Any, x: Any, at: Any, partial_at: Any, count: Any, width: Any) -> Any:
    """Replace `count` vectors x by e^((x - largest) / sqrt(width)), and return their sum.

    Vector j is added to partial sum j mod LANES. The partial sums are LANES vectors, from `partial_at` on.
    """

    def vector(number: Any, first: Any = at) -> Any:
        return b.add(first, b.mul(number, count.type(LANES)))

    most = cgutils.alloca_once_value(b, constant(VECTOR, float("-inf")))
    with cgutils.for_range(b, count) as loop:
        b.store(greater(b, load(b, x, vector(loop.index)), b.load(most)), most)
    top, scale = b.load(most), splat(b, b.fdiv(NUMBER(1.0), root(b, b.sitofp(width, NUMBER))), LANES)
    partial_sums = [vector(count.type(i), partial_at) for i in range(LANES)]
    for here in partial_sums:
        store(b, zero(), x, here)
    with cgutils.for_range(b, count) as loop:
        power = exponential(b, b.fmul(b.fsub(load(b, x, vector(loop.index)), top), scale))
        store(b, power, x, vector(loop.index))
        here = vector(b.and_(loop.index, count.type(LANES - 1)), partial_at)
        store(b, b.fadd(load(b, x, here), power), x, here)
    sums = [load(b, x, here) for here in partial_sums]
    while len(sums) > 1:
        half = len(sums) // 2
        sums = [b.fadd(*pair) for pair in zip(sums[:half], sums[half:])]
    return sums[0]


@instructions
def lstm_cell(
    b: Any, of_input: Any, of_hidden: Any, at: Any, width: Any, cell: Any, hidden: Any, x: Any, x_at: Any
) -> None:
    """Make one LSTM step of `width` cells from both products; add the hidden state to x.

    Gates are `width` apart, from `at` on: input, forget, cell, output.
    """
    one = constant(VECTOR, 1.0)
    with vectors(b, width) as j:
        gates = []
        for gate in range(4):
            here = b.add(at, b.add(b.mul(width, width.type(gate)), j))
            gates.append(b.fadd(load(b, of_input, here), load(b, of_hidden, here)))
        new = b.fmul(logistic(b, gates[0], one), hyperbolic_tangent(b, gates[2]))
        here = b.add(x_at, j)
        state = fused(b, logistic(b, gates[1], one), load(b, cell, here), new)
        output = b.fmul(logistic(b, gates[3], one), hyperbolic_tangent(b, state))
        store(b, state, cell, here)
        store(b, output, hidden, here)
        store(b, b.fadd(load(b, x, here), output), x, here)


@intrinsic
def fixed_points(typing_context: Any, logits: Any, at: Any, count: Any, out: Any) -> Any:
    """Write e^(logit - largest) in units of 2^-FIXED_POINT, rounded down; return False if logits are not finite."""

    def generate(b: Any, logits: Any, at: Any, count: Any, out: Any) -> Any:
        words = ir.VectorType(WORD, LANES)
        largest = splat(b, _largest(b, logits, at, count), LANES)
        wrong = cgutils.alloca_once_value(b, constant(words, 0))
        with vectors(b, count) as j:
            difference = b.fsub(_masked(b, logits, at, count, j), largest)
            power = exponential(b, difference)
            is_number = b.fcmp_ordered("<=", difference, zero())
            power = b.fmul(b.select(is_number, power, zero()), constant(VECTOR, float(1 << FIXED_POINT)))
            store(b, b.fptosi(power, words), out, j)
            b.store(b.or_(b.load(wrong), b.zext(b.not_(is_number), words)), wrong)
        return all_lanes(b, b.icmp_signed("==", b.load(wrong), constant(words, 0)))

    return on_rows(generate, logits, at, count, out, result=types.boolean)


def all_lanes(b: Any, flags: Any) -> Any:
    """Return True if all lanes are."""
    found = b.extract_element(flags, WORD(0))
    for lane in range(1, LANES):
        found = b.and_(found, b.extract_element(flags, WORD(lane)))
    return found


@intrinsic
def nats_of(typing_context: Any, logits: Any, at: Any, count: Any, value: Any) -> Any:
    """Return -log softmax(logits)[value] of a row of logits; NaN if they are not finite."""

    def generate(b: Any, logits: Any, at: Any, count: Any, value: Any) -> Any:
        largest = _largest(b, logits, at, count)
        total = cgutils.alloca_once_value(b, zero())
        with vectors(b, count) as j:
            difference = b.fsub(_masked(b, logits, at, count, j), splat(b, largest, LANES))
            b.store(b.fadd(b.load(total), exponential(b, difference)), total)
        whole = logarithm(b, combined(b, b.load(total), added))
        return b.fsub(whole, b.fsub(load(b, logits, b.add(at, value), 1), largest))

    return on_rows(generate, logits, at, count, value, result=types.float32)


def _masked(b: Any, logits: Any, at: Any, count: Any, j: Any) -> Any:
    return b.select(present(b, count, j), load(b, logits, b.add(at, j)), constant(VECTOR, float("-inf")))


def _largest(b: Any, logits: Any, at: Any, count: Any) -> Any:
    most = cgutils.alloca_once_value(b, constant(VECTOR, float("-inf")))
    with vectors(b, count) as j:
        b.store(greater(b, _masked(b, logits, at, count, j), b.load(most)), most)
    return combined(b, b.load(most), greater)
