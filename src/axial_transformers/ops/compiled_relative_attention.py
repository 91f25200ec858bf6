"""Position-sensitive attention along one axis on a CPU, by the compiled kernels of `kernels.relative_attention`."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable

from axial_transformers.kernels import Sizes, parallel_ranges, relative_kernels
from axial_transformers.ops.compiled_attention import Packing, flat_lines, heads_together, sizes_of, unpacked
from axial_transformers.ops.operator_checks import SINGLE, check_lines, check_tables, check_written
from axial_transformers.ops.operators import cpu_operator

PARTS = 16
"""Parts that the lines are cut into at most: each sums gradients of the tables by itself, whatever the threads."""


def attend(
    tensors: Sequence[Tensor],
    packing: Packing,
    tables: tuple[Float[Tensor, "r t k"], Float[Tensor, "r t k"], Float[Tensor, "r t w"]],
    axis: int,
    causal: bool,
    scale: float,
) -> Float[Tensor, "b *a n w"]:
    """Equation 4, its scores times `scale`, of float32 tensors on a CPU; first derivatives only.

    Args:
        tensors: queries, keys and values [B, *A, heads, width], or by `packing` one tensor of all.
        tables: of queries, keys and values, [2R + 1, heads or 1, width].
        axis: 1..d.
    """
    rows = tables[0].shape[0]
    if (beyond := rows // 2 - (tensors[0].shape[axis] - 1)) > 0:
        tables = tuple(table[beyond : rows - beyond] for table in tables)  # type: ignore[assignment]
    out: Tensor = _RelativeAttention.apply(packing, axis, causal, scale, *tables, *tensors)  # type: ignore[no-untyped-call]
    return out


class _RelativeAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, packing: Packing, axis: int, causal: bool, scale: float, *tensors: Tensor) -> Tensor:
        q, k, v = unpacked(tensors[3:], packing)
        out = v.new_empty(v.shape)
        sums = q.new_empty((q.shape[:-1].numel(), 2), dtype=torch.float32)
        _forward([q, k, v], tensors[:3], axis, causal, scale, out, sums)
        ctx.save_for_backward(sums, *tensors)
        ctx.packing, ctx.axis, ctx.causal, ctx.scale = packing, axis, causal, scale
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        sums, *tensors = ctx.saved_tensors
        grads = [x.new_empty(x.shape) for x in tensors]
        qkv, d_qkv = unpacked(tuple(tensors[3:]), ctx.packing), unpacked(tuple(grads[3:]), ctx.packing)
        _backward([*qkv, grad], tensors[:3], ctx.axis, ctx.causal, ctx.scale, sums, d_qkv, grads[:3])
        return None, None, None, None, *grads


@cpu_operator("axial_transformers::attend_relative", mutates_args=("out", "sums"))
def _forward(
    qkv: Sequence[Tensor], tables: Sequence[Tensor], axis: int, causal: bool, scale: float, out: Tensor, sums: Tensor
) -> None:
    relative_attention = relative_kernels()
    check_lines([*qkv, out], axis, sums, dtypes=SINGLE)
    check_tables(tables, qkv, axis)
    check_written([out], [out], axis)
    arrays, strides = flat_lines([*qkv, out], axis)
    sizes = _with_tables(sizes_of(qkv[0], qkv[2], axis), tables[0])
    encodings = _padded(tables, scale)

    def work(first: int, last: int) -> None:
        pieces = first * sizes.together, last * sizes.together
        relative_attention.forward(*arrays, strides, sizes, causal, np.float32(scale), encodings, sums.numpy(), *pieces)

    parallel_ranges(work, len(sums) // (sizes.length * sizes.together))


@cpu_operator("axial_transformers::attend_relative_backward", mutates_args=("d_qkv", "d_tables"))
def _backward(
    qkv_grad: Sequence[Tensor],
    tables: Sequence[Tensor],
    axis: int,
    causal: bool,
    scale: float,
    sums: Tensor,
    d_qkv: Sequence[Tensor],
    d_tables: Sequence[Tensor],
) -> None:
    relative_attention = relative_kernels()
    check_lines(qkv_grad, axis, sums, dtypes=SINGLE)
    check_tables(tables, qkv_grad, axis)
    check_written([*d_qkv, *d_tables], [*qkv_grad[:3], *tables], axis)
    arrays, strides = flat_lines([*qkv_grad, *d_qkv], axis)
    sizes = _with_tables(sizes_of(qkv_grad[0], qkv_grad[2], axis), tables[0])
    encodings, groups = _padded(tables, scale), len(sums) // (sizes.length * sizes.together)
    parts = min(PARTS, groups)
    (rows, heads), widths = tables[0].shape[:2], [_whole(table.shape[-1]) for table in tables]
    found = [_zeros(parts, heads * (rows + relative_attention.HIGH) * width) for width in widths]
    bounds = np.arange(parts + 1) * groups // parts * sizes.together

    def work(first: int, last: int) -> None:
        relative_attention.backward(
            *arrays, strides, sizes, causal, np.float32(scale), encodings, sums.numpy(), *found, bounds, first, last
        )

    parallel_ranges(work, parts)
    for d_table, of_parts, width, factor in zip(d_tables, found, widths, (1.0, scale, 1.0)):
        total = of_parts.sum(axis=0).reshape(heads, -1, width)[:, :rows, : d_table.shape[-1]]
        np.multiply(total.swapaxes(0, 1), np.float32(factor), out=d_table.numpy())


def _with_tables(sizes: Sizes, table: Tensor) -> Sizes:
    """Sizes, R, the number of tables, and heads that are loaded together."""
    return sizes._replace(radius=len(table) // 2, tables=table.shape[1], together=heads_together(sizes))


def _padded(tables: Sequence[Tensor], scale: float) -> Any:
    """Tables [2R + 1, heads or 1, width] as `relative_attention.Tables`; that of keys times `scale`."""
    relative_attention = relative_kernels()
    rows, heads = tables[0].shape[:2]
    columns, first = relative_attention.transposed_columns(rows // 2), relative_attention.FIRST
    padded, transposed = [], []
    for table, factor in zip(tables, (1.0, scale, 1.0)):
        x = _zeros(heads, rows, _whole(table.shape[-1]))
        np.multiply(table.detach().numpy().swapaxes(0, 1), np.float32(factor), out=x[..., : table.shape[-1]])
        padded.append(x.ravel())
        across = _zeros(heads, x.shape[-1], columns)
        across[..., first : first + rows] = x.swapaxes(1, 2)
        transposed.append(across.ravel())
    return relative_attention.Tables(*padded, *transposed)


def _zeros(*shape: int) -> NDArray[np.float32]:
    """Zeros from the start of a cache line on, as torch keeps them: vectors of whole lines load faster."""
    return torch.zeros(shape).numpy()


def _whole(width: int) -> int:
    """A width in whole vectors of the kernels."""
    lanes = relative_kernels().LANES
    return -(-width // lanes) * lanes
