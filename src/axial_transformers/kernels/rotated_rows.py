"""Rotation of queries and keys by the place of their site along an axis, in one pass over memory.

Tensors are flat: float32, or bfloat16 as int16 bits; the cosines and sines are float32.
"""

from typing import Any

from numba import types

from axial_transformers.kernels.compilation import compiled
from axial_transformers.kernels.llvm import Array, fused_multiply_add, intrinsic, load, store, unpacked
from axial_transformers.kernels.vectors import in_vectors, narrowed, widened


@compiled
def rotate_rows(
    x: Any, row: int, heads: int, table: Array, length: int, stride: int, out: Any, first: int, last: int
) -> None:
    """Rows `first` to `last`, each of `row` numbers: the first `heads` heads rotated, the rest copied.

    Args:
        table: [length, K], see `ops.rotations.rotation_table`; a head is K wide.
        stride: rows from a place of the axis to the next.
    """
    width = table.shape[1]
    angles = table.reshape(-1)
    for r in range(first, last):
        place = r // stride % length * width
        at = r * row
        for _ in range(heads):
            rotate(x, at, width // 2, angles, place, out, at)
            at += width
        copy(x, at, (r + 1) * row - at, out)


@intrinsic
def rotate(typing_context: Any, x: Any, x_at: Any, half: Any, table: Any, place: Any, out: Any, out_at: Any) -> Any:
    """The 2 `half` numbers of a head at x_at, by the cosines and sines at `place` of the table, to out_at."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        x, x_at, half, table, place, out, out_at = unpacked(context, builder, signature, arguments)

        def work(j: Any, lanes: int) -> None:
            beyond = builder.add(j, half)
            a, b = (widened(builder, load(builder, x, builder.add(x_at, k), lanes)) for k in (j, beyond))
            cos, sin = (load(builder, table, builder.add(place, k), lanes) for k in (j, beyond))
            first = fused_multiply_add(builder, a, cos, builder.fneg(builder.fmul(b, sin)))
            second = fused_multiply_add(builder, b, cos, builder.fmul(a, sin))
            for number, k in ((first, j), (second, beyond)):
                number = narrowed(builder, number, signature.args[5].dtype)
                store(builder, number, out, builder.add(out_at, k))

        in_vectors(builder, half, work)
        return context.get_dummy_value()

    return types.void(x, x_at, half, table, place, out, out_at), generate


@intrinsic
def copy(typing_context: Any, x: Any, at: Any, count: Any, out: Any) -> Any:
    """out[at + j] = x[at + j] for j < count, without conversion."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        x, at, count, out = unpacked(context, builder, signature, arguments)

        def work(j: Any, lanes: int) -> None:
            place = builder.add(at, j)
            store(builder, load(builder, x, place, lanes), out, place)

        in_vectors(builder, count, work)
        return context.get_dummy_value()

    return types.void(x, at, count, out), generate
