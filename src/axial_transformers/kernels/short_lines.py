"""Attention along short lines, forward and backward: LANES lines of one head side by side.

In `line_attention`, the positions of a line lie side by side in a vector. A line that is shorter than the vector would
leave most of it empty. So here LANES lines share a vector, one lane each. One head of LANES lines is one piece of work.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from axial_transformers.kernels.compilation import compiled, part
from axial_transformers.kernels.line_copies import ONE, zeros
from axial_transformers.kernels.line_layout import Sizes
from axial_transformers.kernels.llvm import (
    LANES,
    Array,
    Integers,
    cgutils,
    constant,
    fused_multiply_add,
    instructions,
    intrinsic,
    ir,
    load,
    splat,
    store,
    transposed,
    types,
    unpacked,
)
from axial_transformers.kernels.register_tiles import HIGH, round_up
from axial_transformers.kernels.vectors import exponential, greater, narrowed, widened


@instructions
def gather(builder: Any, x: Any, starts: Any, more: Any, scale: Any, out: Any, out_at: Any) -> None:
    """Load LANES numbers of LANES lines; see `widen`."""
    rows = [widened(builder, load(builder, x, at, LANES)) for at in _offsets(builder, starts, more)]
    factor = splat(builder, scale, LANES)
    for j, column in enumerate(transposed(builder, rows)):
        store(builder, builder.fmul(column, factor), out, builder.add(out_at, out_at.type(j * LANES)))


@intrinsic
def scatter(typing_context: Any, x: Any, x_at: Any, scale: Any, out: Any, starts: Any, more: Any) -> Any:
    """Undo `gather`; see `narrow`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        x, x_at, scale, out, starts, more = unpacked(context, builder, signature, arguments)
        factor = splat(builder, scale, LANES)
        columns = [load(builder, x, builder.add(x_at, x_at.type(j * LANES))) for j in range(LANES)]
        rows = transposed(builder, [builder.fmul(column, factor) for column in columns])
        for row, at in zip(rows, _offsets(builder, starts, more)):
            store(builder, narrowed(builder, row, signature.args[3].dtype), out, at)
        return context.get_dummy_value()

    return types.void(x, x_at, scale, out, starts, more), generate


@instructions
def products(
    builder: Any, x: Any, x_at: Any, x_step: Any, count: Any, w: Any, w_at: Any, w_row: Any, w_step: Any,
    out: Any, out_at: Any,
) -> None:  # fmt: skip
    """out[r] = sum_s x[s] w[r, s], by lane."""
    sums = [_variable(builder, 0.0) for _ in range(HIGH)]
    rows = [builder.add(w_at, builder.mul(w_row, count.type(row))) for row in range(HIGH)]
    with cgutils.for_range(builder, count) as loop:
        factor = _vector(builder, x, builder.add(x_at, builder.mul(x_step, loop.index)))
        beside = builder.mul(w_step, loop.index)
        for row, total in zip(rows, sums):
            number = _vector(builder, w, builder.add(row, beside))
            builder.store(fused_multiply_add(builder, factor, number, builder.load(total)), total)
    for row, total in enumerate(sums):
        _put(builder, builder.load(total), out, builder.add(out_at, count.type(row)))


@instructions
def softmax(builder: Any, x: Any, at: Any, count: Any) -> None:
    """Take the softmax, by lane."""
    most, total = _variable(builder, -1e30), _variable(builder, 0.0)

    def compare(index: Any) -> None:
        builder.store(greater(builder, _vector(builder, x, index), builder.load(most)), most)

    def weigh(index: Any) -> None:
        power = exponential(builder, builder.fsub(_vector(builder, x, index), builder.load(most)))
        builder.store(builder.fadd(builder.load(total), power), total)
        _put(builder, power, x, index)

    def divide(index: Any) -> None:
        _put(builder, builder.fmul(_vector(builder, x, index), builder.load(total)), x, index)

    _over(builder, at, count, compare)
    _over(builder, at, count, weigh)
    builder.store(builder.fdiv(constant(most.type.pointee, 1.0), builder.load(total)), total)
    _over(builder, at, count, divide)


@instructions
def softmax_backward(builder: Any, p: Any, grad: Any, at: Any, count: Any) -> None:
    """Turn the gradient of a softmax p into p (grad - sum of p grad)."""
    mean = _variable(builder, 0.0)

    def accumulate(index: Any) -> None:
        product = builder.fmul(_vector(builder, p, index), _vector(builder, grad, index))
        builder.store(builder.fadd(builder.load(mean), product), mean)

    def subtract(index: Any) -> None:
        difference = builder.fsub(_vector(builder, grad, index), builder.load(mean))
        _put(builder, builder.fmul(_vector(builder, p, index), difference), grad, index)

    _over(builder, at, count, accumulate)
    _over(builder, at, count, subtract)


def _offsets(builder: Any, starts: Any, more: Any) -> list[Any]:
    return [builder.add(builder.load(builder.gep(starts, [more.type(lane)])), more) for lane in range(LANES)]


def _variable(builder: Any, value: float) -> Any:
    start = constant(ir.VectorType(ir.FloatType(), LANES), value)
    found = cgutils.alloca_once(builder, start.type)
    builder.store(start, found)
    return found


def _vector(builder: Any, x: Any, index: Any) -> Any:
    return load(builder, x, builder.mul(index, index.type(LANES)))


def _put(builder: Any, value: Any, x: Any, index: Any) -> None:
    store(builder, value, x, builder.mul(index, index.type(LANES)))


def _over(builder: Any, at: Any, count: Any, work: Callable[[Any], None]) -> None:
    with cgutils.for_range_slice(builder, at, builder.add(at, count), count.type(1)) as (index, _):
        work(index)


@compiled
def forward(q: Any, k: Any, v: Any, out: Any, strides: Any, sizes: Sizes, causal: bool, first: int, last: int) -> None:
    """out = softmax(q k^T / sqrt(K)) v; widths are multiples of LANES."""
    heads, length, width, value_width = sizes.heads, sizes.length, sizes.width, sizes.value_width
    padded = round_up(length, HIGH)
    queries, keys = zeros(length * width * LANES), zeros(padded * width * LANES)
    values, attended = zeros(length * value_width * LANES), zeros(value_width * LANES)
    scores, starts = zeros(padded * LANES), np.empty((4, LANES), np.int64)
    scale = np.float32(1 / np.sqrt(width))
    for p in range(first, last):
        find_starts(p // heads * LANES, p % heads, strides, sizes, starts)
        load_lines(q, starts[0], strides[0].position, length, width, scale, queries)
        load_lines(k, starts[1], strides[1].position, length, width, ONE, keys)
        load_lines(v, starts[2], strides[2].position, length, value_width, ONE, values)
        for i in range(length):
            reach = i + 1 if causal else length
            score(queries, i, width, keys, reach, scores, 0)
            softmax(scores, 0, reach)
            combine(scores, 0, 1, reach, values, 0, value_width, attended)
            store_position(attended, value_width, ONE, out, starts[3], i * strides[3].position)


@compiled
def backward(
    q: Any, k: Any, v: Any, grad: Any, dq: Any, dk: Any, dv: Any, strides: Any, sizes: Sizes, causal: bool,
    first: int, last: int,
) -> None:  # fmt: skip
    """Write the gradients of `forward`'s arguments."""
    heads, length, width, value_width = sizes.heads, sizes.length, sizes.width, sizes.value_width
    padded, widest = round_up(length, HIGH), max(width, value_width)
    queries, keys = zeros(length * width * LANES), zeros(padded * width * LANES)
    values, grads = zeros(padded * value_width * LANES), zeros(length * value_width * LANES)
    weights, d_scores = zeros(length * padded * LANES), zeros(length * padded * LANES)
    combined, starts = zeros(widest * LANES), np.empty((7, LANES), np.int64)
    scale = np.float32(1 / np.sqrt(width))
    for p in range(first, last):
        find_starts(p // heads * LANES, p % heads, strides, sizes, starts)
        load_lines(q, starts[0], strides[0].position, length, width, scale, queries)
        load_lines(k, starts[1], strides[1].position, length, width, ONE, keys)
        load_lines(v, starts[2], strides[2].position, length, value_width, ONE, values)
        load_lines(grad, starts[3], strides[3].position, length, value_width, ONE, grads)
        for i in range(length):
            at, reach = i * padded, i + 1 if causal else length
            score(queries, i, width, keys, reach, weights, at)
            score(grads, i, value_width, values, reach, d_scores, at)
            softmax(weights, at, reach)
            softmax_backward(weights, d_scores, at, reach)
            combine(d_scores, at, 1, reach, keys, 0, width, combined)
            store_position(combined, width, scale, dq, starts[4], i * strides[4].position)
        for key in range(length):
            i = key if causal else 0
            at, left = i * padded + key, length - i
            combine(d_scores, at, padded, left, queries, i, width, combined)
            store_position(combined, width, ONE, dk, starts[5], key * strides[5].position)
            combine(weights, at, padded, left, grads, i, value_width, combined)
            store_position(combined, value_width, ONE, dv, starts[6], key * strides[6].position)


@part
def find_starts(line: int, head: int, strides: Any, sizes: Sizes, starts: Integers) -> None:
    """Write the offsets of LANES lines; the last line repeats."""
    inner = sizes.inner
    for lane in range(LANES):
        m = min(line + lane, sizes.outer * inner - 1)
        outer, inside = m // inner, m % inner
        for x in range(len(starts)):
            starts[x, lane] = outer * strides[x].outer + inside * strides[x].inner + head * strides[x].head


@part
def load_lines(x: Any, starts: Integers, stride: int, length: int, width: int, scale: np.float32, out: Array) -> None:
    """Copy lines, times `scale`, to [length, width] vectors."""
    for position in range(length):
        for j in range(0, width, LANES):
            gather(x, starts, position * stride + j, scale, out, (position * width + j) * LANES)


@part
def store_position(x: Array, width: int, scale: np.float32, out: Any, starts: Integers, more: int) -> None:
    """Copy vectors, times `scale`, to a position of each line."""
    for j in range(0, width, LANES):
        scatter(x, j * LANES, scale, out, starts, more + j)


@part
def score(x: Array, i: int, width: int, rows: Array, count: int, out: Array, out_at: int) -> None:
    """out[r] = sum_j x[i, j] rows[r, j], also for up to HIGH - 1 more."""
    for r in range(0, count, HIGH):
        products(x, i * width, 1, width, rows, r * width, width, 1, out, out_at + r)


@part
def combine(weights: Array, at: int, step: int, count: int, rows: Array, row: int, width: int, out: Array) -> None:
    """out[j] = sum_s weights[s] rows[row + s, j]."""
    for j in range(0, width, HIGH):
        products(weights, at, step, count, rows, row * width + j, 1, width, out, j)
