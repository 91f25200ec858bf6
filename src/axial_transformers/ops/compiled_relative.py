"""Position-sensitive attention (Wang et al. 2020, Axial-DeepLab, equation 4) by a compiled kernel, on a CPU."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from axial_transformers.kernels import parallel_ranges, relative_kernels
from axial_transformers.ops.attention_call import AttentionCall
from axial_transformers.ops.compiled_attention import (
    Operators,
    differentiable,
    flat_lines,
    heads_at_once,
    kernels_refuse,
    sizes_of,
)
from axial_transformers.ops.operators import SINGLE, check_lines, check_tables, check_written, cpu_operator

PARTS_OF_TABLES = 16
"""Independent of the number of threads."""


def refuses(call: AttentionCall) -> str | None:
    """Return why it does not take a call, or None."""
    if call.tables is None:
        return "it computes equation 4 only"
    if call.q.device.type != "cpu":
        return "compiled kernels run on a CPU"
    if call.key_mask is not None:
        return "it takes no key mask"
    return kernels_refuse(call.q, min(len(call.tables[0]), call.q.shape[call.axis]))


def run(call: AttentionCall) -> Float[Tensor, "b *a n w"]:
    """Compute a call in float32; first derivatives only."""
    assert call.tables is not None
    rows = len(call.tables[0])
    beyond = max(0, rows // 2 - (call.q.shape[call.axis] - 1))
    tables = tuple(table.float()[beyond : rows - beyond] for table in call.tables)
    single = tuple(x.float() for x in call.tensors)
    return differentiable(_OPERATORS, call, (call.scale,), (), tables, single).to(call.v.dtype)


@cpu_operator("axial_transformers::attend_relative", mutates_args=("out", "sums"))
def _forward_relative(
    qkv: Sequence[Tensor], tables: Sequence[Tensor], axis: int, causal: bool, scale: float, out: Tensor, sums: Tensor
) -> None:
    relative_attention = relative_kernels()
    check_lines([*qkv, out], axis, sums, dtypes=SINGLE)
    check_tables(tables, qkv, axis)
    check_written([out], [out], axis)
    arrays, strides = flat_lines([*qkv, out], axis)
    sizes = sizes_of(qkv[0], qkv[2], axis)
    sizes = sizes._replace(radius=len(tables[0]) // 2, tables=tables[0].shape[1], at_once=heads_at_once(sizes))
    encodings = _padded(tables, scale)

    def work(first: int, last: int) -> None:
        pieces = first * sizes.at_once, last * sizes.at_once
        relative_attention.forward(*arrays, strides, sizes, causal, np.float32(scale), encodings, sums.numpy(), *pieces)

    parallel_ranges(work, len(sums) // (sizes.length * sizes.at_once))


@cpu_operator("axial_transformers::attend_relative_backward", mutates_args=("grads",))
def _backward_relative(
    qkv_grad: Sequence[Tensor],
    tables: Sequence[Tensor],
    axis: int,
    causal: bool,
    scale: float,
    sums: Tensor,
    grads: Sequence[Tensor],
) -> None:
    relative_attention = relative_kernels()
    check_lines(qkv_grad, axis, sums, dtypes=SINGLE)
    check_tables(tables, qkv_grad, axis)
    check_written(grads, [*qkv_grad[:3], *tables][: len(grads)], axis)
    arrays, strides = flat_lines([*qkv_grad, *grads[:3]], axis)
    sizes = sizes_of(qkv_grad[0], qkv_grad[2], axis)
    sizes = sizes._replace(radius=len(tables[0]) // 2, tables=tables[0].shape[1], at_once=heads_at_once(sizes))
    encodings, groups = _padded(tables, scale), len(sums) // (sizes.length * sizes.at_once)
    parts = min(PARTS_OF_TABLES, groups)
    (rows, heads), widths = tables[0].shape[:2], [_whole(table.shape[-1]) for table in tables]
    found = [_zeros(parts, heads * (rows + relative_attention.HIGH) * width) for width in widths]
    bounds = np.arange(parts + 1) * groups // parts * sizes.at_once

    def work(first: int, last: int) -> None:
        relative_attention.backward(
            *arrays, strides, sizes, causal, np.float32(scale), encodings, sums.numpy(), *found, bounds, first, last
        )

    parallel_ranges(work, parts)
    for d_table, of_parts, width, factor in zip(grads[3:], found, widths, (1.0, scale, 1.0)):
        total = of_parts.sum(axis=0).reshape(heads, -1, width)[:, :rows, : d_table.shape[-1]]
        np.multiply(total.swapaxes(0, 1), np.float32(factor), out=d_table.numpy())


_OPERATORS = Operators(_forward_relative, _backward_relative)


def _padded(tables: Sequence[Tensor], scale: float) -> Any:
    relative_attention, (rows, heads) = relative_kernels(), tables[0].shape[:2]
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
    """Return zeros aligned to a cache line: vectors load faster."""
    return torch.zeros(shape).numpy()


def _whole(width: int) -> int:
    lanes = relative_kernels().LANES
    return -(-width // lanes) * lanes
