"""Attention over lines, forward and backward, without ever copying or keeping more than one line's scores.

Queries, keys and values are read where a layer's linear map left them, whatever axis the lines lie along. A line and
head is one piece of work: it is widened to float32, padded with zeros to whole vectors, and stays in a core's cache.
float32, or bfloat16 as int16 bits.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from llvmlite import ir
from numba import float32, types
from numba.core import cgutils as numba_cgutils
from numba.extending import intrinsic as numba_intrinsic
from numpy.typing import NDArray

from axial_transformers.kernels.compilation import compiled

Array = NDArray[np.float32]
Integers = NDArray[np.int64]

LANES = 16
"""Numbers that a vector instruction takes at once (with AVX-512; elsewhere it becomes two or four)."""
ROWS, PANEL = 4, 2 * LANES
"""Rows and columns that a matrix product works on at a time: eight vectors of sums keep a core busy."""
CACHE_LINE = 64
"""Bytes that come from memory at a time."""
ONE = np.float32(1)
LARGEST, LOG2_E, LN_2 = np.float32(87), np.float32(1.4426950408889634), np.float32(0.6931471805599453)
C2, C3, C4, C5, C6 = (np.float32(1 / factorial) for factorial in (2, 6, 24, 120, 720))

cgutils: Any = numba_cgutils
intrinsic: Callable[[Callable[..., Any]], Callable[..., Any]] = numba_intrinsic


@compiled
def forward(
    q: Any, k: Any, v: Any, out: Any, steps: Integers, sizes: Integers, causal: bool, seen: Any, sums: Array,
    first: int, last: int,
) -> None:  # fmt: skip
    """out = softmax(q k^T / sqrt(K)) v of the lines and heads `first` to `last`.

    Args:
        q, k, v, out: flat; element (o, i, head, place, j) lies at o, i, head, place times its row of `steps`, plus j.
        steps: int64 [4, 4], a row each for q, k, v, out.
        sizes: outer, inner, heads, length L, key width K, value width W.
        seen: uint8, flat [outer, inner, L], which keys are there; of size 0: all.
        sums: [lines and heads times L, 2], written: one over each softmax's denominator (zero if it sees nothing), and
            the largest score, by whose exponential that is divided.
    """
    length, width, value_width = sizes[3], sizes[4], sizes[5]
    padded, wide, value_wide = whole(length), whole(width), whole(value_width)
    queries, keys = np.zeros(padded * wide, np.float32), np.zeros(padded * wide, np.float32)
    across = np.zeros(wide * padded, np.float32)
    values = np.zeros(padded * value_wide, np.float32)
    scores, mixed = np.zeros(ROWS * padded, np.float32), np.zeros(ROWS * value_wide, np.float32)
    scale = np.float32(1 / np.sqrt(width))
    for m in range(first, last):
        line = m // sizes[2]
        read(q, start(m, steps[0], sizes), steps[0, 3], length, width, scale, queries, wide)
        read(k, start(m, steps[1], sizes), steps[1, 3], length, width, ONE, keys, wide)
        read(v, start(m, steps[2], sizes), steps[2, 3], length, value_width, ONE, values, value_wide)
        turn(keys, padded, wide, across)
        if m + 1 < last:
            announce(q, m + 1, steps[0], sizes, width)
            announce(k, m + 1, steps[1], sizes, width)
            announce(v, m + 1, steps[2], sizes, value_width)
        out_start = start(m, steps[3], sizes)
        for r in range(0, length, ROWS):
            reach = min(length, r + ROWS) if causal else length
            for c in range(0, reach, PANEL):
                multiply(queries, r * wide, wide, 1, width, across, c, padded, scores, c, padded)
            rows = min(ROWS, length - r)
            for row in range(rows):
                sees = r + row + 1 if causal else length
                if seen.size:
                    hide(scores, row * padded, sees, seen, line * length)
                exponentials(scores, row * padded, whole(reach), sees, sums, 2 * (m * length + r + row))
            for c in range(0, value_wide, PANEL):
                multiply(scores, 0, padded, 1, reach, values, c, value_wide, mixed, c, value_wide)
            for row in range(rows):
                part = inverted(sums, m * length + r + row)
                narrow(mixed, row * value_wide, value_width, part, out, out_start + (r + row) * steps[3, 3])


@compiled
def backward(
    q: Any, k: Any, v: Any, grad: Any, dq: Any, dk: Any, dv: Any, steps: Integers, sizes: Integers, causal: bool,
    seen: Any, sums: Array, first: int, last: int,
) -> None:  # fmt: skip
    """The gradients of `forward`'s arguments from that of its result; the weights are computed again.

    `steps` is [7, 4]: a row each for q, k, v, grad, dq, dk, dv. With weights P and their gradient dP = grad v^T:
    dv = P^T grad, dS = P (dP - sum(P dP)), dq = dS k / sqrt(K), dk = dS^T q / sqrt(K).
    """
    length, width, value_width = sizes[3], sizes[4], sizes[5]
    padded, wide, value_wide = whole(length), whole(width), whole(value_width)
    queries, keys = np.zeros(padded * wide, np.float32), np.zeros(padded * wide, np.float32)
    values, grads = np.zeros(padded * value_wide, np.float32), np.zeros(padded * value_wide, np.float32)
    keys_across, values_across = np.zeros(wide * padded, np.float32), np.zeros(value_wide * padded, np.float32)
    weights, slopes = np.zeros(PANEL * padded, np.float32), np.zeros(PANEL * padded, np.float32)
    d_queries = np.zeros(ROWS * wide, np.float32)
    d_keys, d_values = np.empty(padded * wide, np.float32), np.empty(padded * value_wide, np.float32)
    scale = np.float32(1 / np.sqrt(width))
    for m in range(first, last):
        line = m // sizes[2]
        read(q, start(m, steps[0], sizes), steps[0, 3], length, width, scale, queries, wide)
        read(k, start(m, steps[1], sizes), steps[1, 3], length, width, ONE, keys, wide)
        read(v, start(m, steps[2], sizes), steps[2, 3], length, value_width, ONE, values, value_wide)
        read(grad, start(m, steps[3], sizes), steps[3, 3], length, value_width, ONE, grads, value_wide)
        turn(keys, padded, wide, keys_across)
        turn(values, padded, value_wide, values_across)
        if m + 1 < last:
            announce(q, m + 1, steps[0], sizes, width)
            announce(k, m + 1, steps[1], sizes, width)
            announce(v, m + 1, steps[2], sizes, value_width)
            announce(grad, m + 1, steps[3], sizes, value_width)
        d_keys[:] = 0
        d_values[:] = 0
        dq_start = start(m, steps[4], sizes)
        for b in range(0, length, PANEL):
            rows = min(PANEL, length - b)
            reach = b + rows if causal else length
            for r in range(0, rows, ROWS):
                for c in range(0, reach, PANEL):
                    at, to = (b + r) * wide, r * padded + c
                    multiply(queries, at, wide, 1, width, keys_across, c, padded, weights, to, padded)
                    at = (b + r) * value_wide
                    multiply(grads, at, value_wide, 1, value_width, values_across, c, padded, slopes, to, padded)
            for row in range(rows):
                sees = b + row + 1 if causal else length
                if seen.size:
                    hide(weights, row * padded, sees, seen, line * length)
                at, of_row = row * padded, m * length + b + row
                softmax_backward(weights, at, whole(reach), sees, sums, 2 * of_row, slopes, at)
            for r in range(0, rows, ROWS):
                for c in range(0, wide, PANEL):
                    multiply(slopes, r * padded, padded, 1, reach, keys, c, wide, d_queries, c, wide)
                some = min(ROWS, rows - r)
                write(d_queries, wide, some, width, scale, dq, dq_start + (b + r) * steps[4, 3], steps[4, 3])
            for key in range(0, reach, ROWS):
                for c in range(0, wide, PANEL):
                    multiply_add(
                        slopes, key, 1, padded, rows, queries, b * wide + c, wide, d_keys, key * wide + c, wide
                    )
                for c in range(0, value_wide, PANEL):
                    at, to = b * value_wide + c, key * value_wide + c
                    multiply_add(weights, key, 1, padded, rows, grads, at, value_wide, d_values, to, value_wide)
        write(d_keys, wide, length, width, ONE, dk, start(m, steps[5], sizes), steps[5, 3])
        write(d_values, value_wide, length, value_width, ONE, dv, start(m, steps[6], sizes), steps[6, 3])


@compiled
def whole(size: int) -> int:
    """`size`, up to a multiple of what a matrix product takes at once."""
    return (size + PANEL - 1) // PANEL * PANEL


@compiled
def start(m: int, steps: Integers, sizes: Integers) -> int:
    """Where line and head `m` begins: heads go round fastest, then inner, then outer."""
    heads, inner = sizes[2], sizes[1]
    return m // heads // inner * steps[0] + m // heads % inner * steps[1] + m % heads * steps[2]


@compiled
def read(x: Any, at: int, step: int, rows: int, width: int, scale: np.float32, out: Array, out_step: int) -> None:
    """Rows of x, `step` apart, times `scale`."""
    for row in range(rows):
        widen(x, at + row * step, width, scale, out, row * out_step)


@compiled
def write(x: Array, step: int, rows: int, width: int, scale: np.float32, out: Any, at: int, out_step: int) -> None:
    """Rows of x times `scale` into rows of out, `out_step` apart."""
    for row in range(rows):
        narrow(x, row * step, width, scale, out, at + row * out_step)


@compiled
def announce(x: Any, m: int, steps: Integers, sizes: Integers, width: int) -> None:
    """Line and head `m` of x will be read."""
    at = start(m, steps, sizes)
    for row in range(sizes[3]):
        prefetch(x, at + row * steps[3], width)


@compiled
def hide(scores: Array, at: int, sees: int, seen: Any, line: int) -> None:
    """Scores of what is not there become minus infinity."""
    for j in range(sees):
        if not seen[line + j]:
            scores[at + j] = -np.float32(np.inf)


@compiled
def inverted(sums: Array, row: int) -> np.float32:
    """Replaces a row's sum by one over it, zero if it is zero."""
    total = sums[row, 0]
    sums[row, 0] = ONE / total if total > 0 else total
    return sums[row, 0]


@compiled
def turn(x: Array, rows: int, columns: int, out: Array) -> None:
    """[rows, columns] -> [columns, rows], both multiples of 16."""
    for r in range(0, rows, LANES):
        for c in range(0, columns, LANES):
            transpose(x, r * columns + c, columns, out, c * rows + r, rows)


# What kernels are made of. All in this file, for a compiled kernel is kept on disk until its own file changes. Matrices
# are flat arrays, the place of their first number and the distance of their rows, so that a part of one is one too;
# nothing is checked: callers see to it that what is read and written is there.


def _product(add: bool) -> Callable[..., Any]:
    """A matrix product of ROWS rows and PANEL columns whose sums stay in registers, in place of or added to `out`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vector, splat = ir.VectorType(ir.FloatType(), LANES), ir.VectorType(ir.IntType(32), LANES)
        x, at, row_step, step, count, w, w_at, w_step, out, out_at, out_step = _unpacked(
            context, builder, signature, arguments
        )
        integer, unset, columns = count.type, ir.Constant(vector, ir.Undefined), PANEL // LANES

        def vectors(data: Any, at: Any) -> list[Any]:
            places = [builder.gep(data, [builder.add(at, integer(c * LANES))]) for c in range(columns)]
            return [builder.bitcast(place, vector.as_pointer()) for place in places]

        rows = [builder.add(at, builder.mul(row_step, integer(row))) for row in range(ROWS)]
        outs = [vectors(out, builder.add(out_at, builder.mul(out_step, integer(row)))) for row in range(ROWS)]
        starts = [builder.load(o, align=4) if add else ir.Constant(vector, None) for of_row in outs for o in of_row]
        sums = [cgutils.alloca_once_value(builder, start) for start in starts]
        with cgutils.for_range(builder, count) as loop:
            weights = vectors(w, builder.add(w_at, builder.mul(loop.index, w_step)))
            read = [builder.load(weight, align=4) for weight in weights]
            for row, start in enumerate(rows):
                place = builder.gep(x, [builder.add(start, builder.mul(loop.index, step))])
                number = builder.insert_element(unset, builder.load(place), ir.IntType(32)(0))
                number = builder.shuffle_vector(number, unset, ir.Constant(splat, None))
                for total, weight in zip(sums[row * columns :], read):
                    product = builder.fmul(number, weight, flags=("contract",))
                    builder.store(builder.fadd(builder.load(total), product, flags=("contract",)), total)
        for total, place in zip(sums, (o for of_row in outs for o in of_row)):
            builder.store(builder.load(total), place, align=4)
        return context.get_dummy_value()

    return generate


@intrinsic
def multiply(
    typing_context: Any, x: Any, at: Any, row_step: Any, step: Any, count: Any, w: Any, w_at: Any, w_step: Any,
    out: Any, out_at: Any, out_step: Any,
) -> Any:  # fmt: skip
    """out[r, c] = sum over s of x[r, s] w[s, c], for 4 rows, 32 columns and `count` steps.

    x[r, s] is x[at + r row_step + s step], so that a transposed x is one too; w[s, c] is w[w_at + s w_step + c].
    Reading w takes as long as multiplying four rows by it, so that fewer rows would cost the same.
    """
    return types.void(x, at, row_step, step, count, w, w_at, w_step, out, out_at, out_step), _product(add=False)


@intrinsic
def multiply_add(
    typing_context: Any, x: Any, at: Any, row_step: Any, step: Any, count: Any, w: Any, w_at: Any, w_step: Any,
    out: Any, out_at: Any, out_step: Any,
) -> Any:  # fmt: skip
    """As `multiply`, but added to out."""
    return types.void(x, at, row_step, step, count, w, w_at, w_step, out, out_at, out_step), _product(add=True)


@intrinsic
def transpose(typing_context: Any, x: Any, at: Any, row_step: Any, out: Any, out_at: Any, out_step: Any) -> Any:
    """out = x^T, 16 rows and 16 columns: halves of rows change places, then quarters, ..."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        x, at, row_step, out, out_at, out_step = _unpacked(context, builder, signature, arguments)
        vector, integer = ir.VectorType(ir.FloatType(), LANES), at.type

        def row(data: Any, at: Any, step: Any, i: int) -> Any:
            place = builder.gep(data, [builder.add(at, builder.mul(step, integer(i)))])
            return builder.bitcast(place, vector.as_pointer())

        def mixed(a: Any, b: Any, lanes: list[int]) -> Any:
            return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(ir.IntType(32), LANES), lanes))

        rows = [builder.load(row(x, at, row_step, i), align=4) for i in range(LANES)]
        half = LANES // 2
        while half:
            upper = [lane if not lane & half else LANES + lane - half for lane in range(LANES)]
            lower = [lane + half if not lane & half else LANES + lane for lane in range(LANES)]
            for i in (i for i in range(LANES) if not i & half):
                a, b = rows[i], rows[i + half]
                rows[i], rows[i + half] = mixed(a, b, upper), mixed(a, b, lower)
            half //= 2
        for i, value in enumerate(rows):
            builder.store(value, row(out, out_at, out_step, i), align=4)
        return context.get_dummy_value()

    return types.void(x, at, row_step, out, out_at, out_step), generate


@intrinsic
def widen(typing_context: Any, x: Any, at: Any, count: Any, scale: Any, out: Any, out_at: Any) -> Any:
    """out[out_at + j] = scale * x[at + j], from float32 or from the bits of bfloat16 (int16), for j < count."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        x, at, count, scale, out, out_at = _unpacked(context, builder, signature, arguments)

        def some(j: Any, lanes: int) -> None:
            number = _load(builder, x, builder.add(at, j), lanes)
            if signature.args[0].dtype != float32:
                bits = builder.zext(number, _lanes(ir.IntType(32), lanes))
                number = builder.bitcast(builder.shl(bits, _all(bits.type, 16)), _lanes(ir.FloatType(), lanes))
            scaled = builder.fmul(number, _everywhere(builder, scale, lanes))
            _store(builder, scaled, out, builder.add(out_at, j))

        _along(builder, count, some)
        return context.get_dummy_value()

    return types.void(x, at, count, scale, out, out_at), generate


@intrinsic
def prefetch(typing_context: Any, x: Any, at: Any, count: Any) -> Any:
    """Has the cache lines of x[at + j], j < count, fetched while other work goes on."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        x, at, count = _unpacked(context, builder, signature, arguments)
        flag, address = ir.IntType(32), ir.IntType(8).as_pointer()
        fetch = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(ir.VoidType(), [address, flag, flag, flag]), "llvm.prefetch.p0i8"
        )
        line = CACHE_LINE // (signature.args[0].dtype.bitwidth // 8)
        with cgutils.for_range_slice(builder, count.type(0), count, count.type(line)) as (j, _):
            place = builder.bitcast(builder.gep(x, [builder.add(at, j)]), address)
            builder.call(fetch, [place, flag(0), flag(3), flag(1)])
        return context.get_dummy_value()

    return types.void(x, at, count), generate


@intrinsic
def narrow(typing_context: Any, x: Any, at: Any, count: Any, scale: Any, out: Any, out_at: Any) -> Any:
    """out[out_at + j] = scale * x[at + j], to float32 or to the bits of the nearest bfloat16 (int16), for j < count."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        x, at, count, scale, out, out_at = _unpacked(context, builder, signature, arguments)

        def some(j: Any, lanes: int) -> None:
            number = _load(builder, x, builder.add(at, j), lanes)
            number = builder.fmul(number, _everywhere(builder, scale, lanes))
            if signature.args[4].dtype != float32:
                bits = builder.bitcast(number, _lanes(ir.IntType(32), lanes))
                odd = builder.and_(builder.lshr(bits, _all(bits.type, 16)), _all(bits.type, 1))
                rounded = builder.lshr(
                    builder.add(bits, builder.add(odd, _all(bits.type, 0x7FFF))), _all(bits.type, 16)
                )
                is_number = builder.fcmp_ordered("ord", number, number)
                rounded = builder.select(is_number, rounded, _all(bits.type, 0x7FC0))
                number = builder.trunc(rounded, _lanes(ir.IntType(16), lanes))
            _store(builder, number, out, builder.add(out_at, j))

        _along(builder, count, some)
        return context.get_dummy_value()

    return types.void(x, at, count, scale, out, out_at), generate


@intrinsic
def exponentials(typing_context: Any, x: Any, at: Any, count: Any, sees: Any, sums: Any, sum_at: Any) -> Any:
    """x[j] = exp(x[j] - largest) of the first `sees` of `count` places of x from `at` on, zero for the others.

    `count` is a multiple of 16. sums[sum_at] is set to their sum, sums[sum_at + 1] to `largest`.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        x, at, count, sees, sums, sum_at = _unpacked(context, builder, signature, arguments)
        vector = ir.VectorType(ir.FloatType(), LANES)
        most = cgutils.alloca_once_value(builder, _all(vector, -1e30))
        total = cgutils.alloca_once_value(builder, _all(vector, 0.0))

        def score(j: Any) -> Any:
            return _first(builder, _load(builder, x, builder.add(at, j), LANES), j, sees, float("-inf"))

        with cgutils.for_range_slice(builder, count.type(0), count, count.type(LANES)) as (j, _):
            builder.store(_greater(builder, score(j), builder.load(most)), most)
        largest = _reduced(builder, builder.load(most), partial(_greater, builder))
        with cgutils.for_range_slice(builder, count.type(0), count, count.type(LANES)) as (j, _):
            difference = builder.fsub(score(j), _everywhere(builder, largest, LANES))
            odds = _exponential(builder, difference)
            builder.store(builder.fadd(builder.load(total), odds), total)
            _store(builder, odds, x, builder.add(at, j))
        _store(builder, _reduced(builder, builder.load(total), builder.fadd), sums, sum_at)
        _store(builder, largest, sums, builder.add(sum_at, sum_at.type(1)))
        return context.get_dummy_value()

    return types.void(x, at, count, sees, sums, sum_at), generate


@intrinsic
def softmax_backward(
    typing_context: Any, x: Any, at: Any, count: Any, sees: Any, sums: Any, sum_at: Any, slopes: Any, slopes_at: Any
) -> Any:
    """x[j] = p[j] = exp(x[j] - largest) part, slopes[j] = p[j] (slopes[j] - sum of p slopes), as far as `exponentials`.

    sums[sum_at] is `part`, one over the sum that `exponentials` found, sums[sum_at + 1] is `largest`.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        x, at, count, sees, sums, sum_at, slopes, slopes_at = _unpacked(context, builder, signature, arguments)
        part = _everywhere(builder, _load(builder, sums, sum_at, 1), LANES)
        largest = _everywhere(builder, _load(builder, sums, builder.add(sum_at, sum_at.type(1)), 1), LANES)
        vector = ir.VectorType(ir.FloatType(), LANES)
        total = cgutils.alloca_once_value(builder, _all(vector, 0.0))
        with cgutils.for_range_slice(builder, count.type(0), count, count.type(LANES)) as (j, _):
            score = _first(builder, _load(builder, x, builder.add(at, j), LANES), j, sees, float("-inf"))
            odds = builder.fmul(_exponential(builder, builder.fsub(score, largest)), part)
            _store(builder, odds, x, builder.add(at, j))
            slope = _load(builder, slopes, builder.add(slopes_at, j), LANES)
            builder.store(builder.fadd(builder.load(total), builder.fmul(odds, slope)), total)
        mean = _everywhere(builder, _reduced(builder, builder.load(total), builder.fadd), LANES)
        with cgutils.for_range_slice(builder, count.type(0), count, count.type(LANES)) as (j, _):
            place = builder.add(slopes_at, j)
            slope = builder.fsub(_load(builder, slopes, place, LANES), mean)
            _store(builder, builder.fmul(_load(builder, x, builder.add(at, j), LANES), slope), slopes, place)
        return context.get_dummy_value()

    return types.void(x, at, count, sees, sums, sum_at, slopes, slopes_at), generate


def _unpacked(context: Any, builder: Any, signature: Any, arguments: Any) -> list[Any]:
    """The arguments, arrays as the addresses of their first numbers."""
    return [
        context.make_array(kind)(context, builder, value).data if isinstance(kind, types.Array) else value
        for kind, value in zip(signature.args, arguments)
    ]


def _along(builder: Any, count: Any, some: Callable[[Any, int], None]) -> None:
    """some(j, lanes) for whole vectors first, then for single numbers."""
    whole = builder.and_(count, count.type(-LANES))
    with cgutils.for_range_slice(builder, count.type(0), whole, count.type(LANES)) as (j, _):
        some(j, LANES)
    with cgutils.for_range_slice(builder, whole, count, count.type(1)) as (j, _):
        some(j, 1)


def _lanes(kind: Any, lanes: int) -> Any:
    return kind if lanes == 1 else ir.VectorType(kind, lanes)


def _all(kind: Any, value: float) -> Any:
    """A constant, in every lane."""
    return ir.Constant(kind, [value] * kind.count if isinstance(kind, ir.VectorType) else value)


def _everywhere(builder: Any, number: Any, lanes: int) -> Any:
    """A number, in every lane."""
    if lanes == 1:
        return number
    unset = ir.Constant(ir.VectorType(number.type, lanes), ir.Undefined)
    single = builder.insert_element(unset, number, ir.IntType(32)(0))
    return builder.shuffle_vector(single, unset, ir.Constant(ir.VectorType(ir.IntType(32), lanes), None))


def _load(builder: Any, data: Any, at: Any, lanes: int) -> Any:
    place = builder.gep(data, [at])
    number = place.type.pointee
    return builder.load(builder.bitcast(place, _lanes(number, lanes).as_pointer()), align=_bytes(number))


def _store(builder: Any, value: Any, data: Any, at: Any) -> None:
    place = builder.gep(data, [at])
    builder.store(value, builder.bitcast(place, value.type.as_pointer()), align=_bytes(place.type.pointee))


def _bytes(number: Any) -> int:
    return number.width // 8 if isinstance(number, ir.IntType) else 4


def _first(builder: Any, numbers: Any, j: Any, sees: Any, otherwise: float) -> Any:
    """`numbers`, of places j, j + 1, .., but `otherwise` from place `sees` on."""
    word = ir.IntType(32)
    left = _everywhere(builder, builder.trunc(builder.sub(sees, j), word), LANES)
    lane = ir.Constant(ir.VectorType(word, LANES), list(range(LANES)))
    return builder.select(builder.icmp_signed("<", lane, left), numbers, _all(numbers.type, otherwise))


def _greater(builder: Any, a: Any, b: Any) -> Any:
    return builder.select(builder.fcmp_ordered(">", a, b), a, b)


def _reduced(builder: Any, numbers: Any, both: Callable[[Any, Any], Any]) -> Any:
    """All lanes in one."""
    half = LANES // 2
    while half:
        lanes = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [(lane + half) % LANES for lane in range(LANES)])
        numbers = both(numbers, builder.shuffle_vector(numbers, numbers, lanes))
        half //= 2
    return builder.extract_element(numbers, ir.IntType(32)(0))


def _exponential(builder: Any, x: Any) -> Any:
    """`exp` of 16 numbers; what is not a number stays so."""
    kind, word = x.type, ir.VectorType(ir.IntType(32), LANES)

    def constant(value: Any) -> Any:
        return _all(kind, float(value))

    def times_plus(a: Any, b: Any, c: Any) -> Any:
        return builder.fadd(builder.fmul(a, b, flags=("contract",)), c, flags=("contract",))

    tiny = builder.fcmp_ordered("<", x, constant(-LARGEST))
    near = _greater(builder, x, constant(-LARGEST))
    near = builder.select(builder.fcmp_ordered("<", near, constant(LARGEST)), near, constant(LARGEST))
    n = builder.fptosi(times_plus(near, constant(LOG2_E), constant(127.5)), word)
    whole = builder.fsub(builder.sitofp(n, kind), constant(127))
    r = times_plus(whole, constant(-LN_2), near)
    series = constant(C6)
    for coefficient in (C5, C4, C3, C2, ONE, ONE):
        series = times_plus(series, r, constant(coefficient))
    power = builder.bitcast(builder.shl(n, _all(word, 23)), kind)
    result = builder.select(tiny, constant(0), builder.fmul(series, power))
    return builder.select(builder.fcmp_ordered("ord", x, x), result, x)
