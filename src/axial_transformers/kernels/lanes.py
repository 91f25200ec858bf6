"""Numbers of LANES lines beside each other: each vector holds one number of every line.

Lines are transposed when they are read and written; in between, what is done for one line is done for all of them.
"""

from collections.abc import Callable
from typing import Any

from axial_transformers.kernels.llvm import (
    LANES,
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
from axial_transformers.kernels.register_tiles import HIGH
from axial_transformers.kernels.vectors import exponential, greater, narrowed, widened


@instructions
def gather(builder: Any, x: Any, starts: Any, more: Any, scale: Any, out: Any, out_at: Any) -> None:
    """out[out_at + j LANES + lane] = scale * x[starts[lane] + more + j], for j < LANES; x is as of `widen`."""
    rows = [widened(builder, load(builder, x, at, LANES)) for at in _places(builder, starts, more)]
    factor = splat(builder, scale, LANES)
    for j, column in enumerate(transposed(builder, rows)):
        store(builder, builder.fmul(column, factor), out, builder.add(out_at, out_at.type(j * LANES)))


@intrinsic
def scatter(typing_context: Any, x: Any, x_at: Any, scale: Any, out: Any, starts: Any, more: Any) -> Any:
    """out[starts[lane] + more + j] = scale * x[x_at + j LANES + lane], for j < LANES; out is as of `narrow`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        x, x_at, scale, out, starts, more = unpacked(context, builder, signature, arguments)
        factor = splat(builder, scale, LANES)
        columns = [load(builder, x, builder.add(x_at, x_at.type(j * LANES))) for j in range(LANES)]
        rows = transposed(builder, [builder.fmul(column, factor) for column in columns])
        for row, at in zip(rows, _places(builder, starts, more)):
            store(builder, narrowed(builder, row, signature.args[3].dtype), out, at)
        return context.get_dummy_value()

    return types.void(x, x_at, scale, out, starts, more), generate


@instructions
def products(
    builder: Any, x: Any, x_at: Any, x_step: Any, count: Any, w: Any, w_at: Any, w_row: Any, w_step: Any,
    out: Any, out_at: Any,
) -> None:  # fmt: skip
    """out[r] = sum over s of x[s] w[r, s], for HIGH rows r and `count` steps s, by lane.

    Vector x[s] is at x_at + s x_step, w[r, s] at w_at + r w_row + s w_step, out[r] at out_at + r, counted in vectors.
    """
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
    """Replaces vectors at .. at + count - 1 of x by their softmax, by lane."""
    most, total = _variable(builder, -1e30), _variable(builder, 0.0)

    def compare(place: Any) -> None:
        builder.store(greater(builder, _vector(builder, x, place), builder.load(most)), most)

    def weigh(place: Any) -> None:
        power = exponential(builder, builder.fsub(_vector(builder, x, place), builder.load(most)))
        builder.store(builder.fadd(builder.load(total), power), total)
        _put(builder, power, x, place)

    def divide(place: Any) -> None:
        _put(builder, builder.fmul(_vector(builder, x, place), builder.load(total)), x, place)

    _over(builder, at, count, compare)
    _over(builder, at, count, weigh)
    builder.store(builder.fdiv(constant(most.type.pointee, 1.0), builder.load(total)), total)
    _over(builder, at, count, divide)


@instructions
def softmax_backward(builder: Any, p: Any, grad: Any, at: Any, count: Any) -> None:
    """Replaces the gradient of a softmax p by that of the scores, p (grad - sum of p grad); both as of `softmax`."""
    mean = _variable(builder, 0.0)

    def accumulate(place: Any) -> None:
        product = builder.fmul(_vector(builder, p, place), _vector(builder, grad, place))
        builder.store(builder.fadd(builder.load(mean), product), mean)

    def subtract(place: Any) -> None:
        difference = builder.fsub(_vector(builder, grad, place), builder.load(mean))
        _put(builder, builder.fmul(_vector(builder, p, place), difference), grad, place)

    _over(builder, at, count, accumulate)
    _over(builder, at, count, subtract)


def _places(builder: Any, starts: Any, more: Any) -> list[Any]:
    """starts[lane] + more of every lane."""
    return [builder.add(builder.load(builder.gep(starts, [more.type(lane)])), more) for lane in range(LANES)]


def _variable(builder: Any, value: float) -> Any:
    """A vector that changes, set anew at every pass."""
    start = constant(ir.VectorType(ir.FloatType(), LANES), value)
    found = cgutils.alloca_once(builder, start.type)
    builder.store(start, found)
    return found


def _vector(builder: Any, x: Any, place: Any) -> Any:
    return load(builder, x, builder.mul(place, place.type(LANES)))


def _put(builder: Any, value: Any, x: Any, place: Any) -> None:
    store(builder, value, x, builder.mul(place, place.type(LANES)))


def _over(builder: Any, at: Any, count: Any, work: Callable[[Any], None]) -> None:
    with cgutils.for_range_slice(builder, at, builder.add(at, count), count.type(1)) as (place, _):
        work(place)
