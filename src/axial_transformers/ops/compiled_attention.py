"""Attention along one axis on a CPU, by compiled kernels."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable

from axial_transformers.kernels import (
    Sizes,
    Strides,
    line_kernels,
    parallel_ranges,
    relative_kernels,
    short_line_kernels,
)
from axial_transformers.ops.operators import (
    SINGLE,
    check_extras,
    check_lines,
    check_tables,
    check_written,
    cpu_operator,
    strides_of_lines,
)

Packing = tuple[int, int, int, int] | None
"""Heads and widths of queries, keys and values in one tensor; None for three."""
PARTS_OF_BIAS = 32
"""Independent of the number of threads."""
PARTS_OF_TABLES = 16
"""Independent of the number of threads."""
AT_ONCE = 2**17
"""A core's own cache."""
SHORT = 16
"""Most queries per vector lane for `short_lines`."""
TILES_PAY_FROM = 512
"""Length times width, in bfloat16."""
NONE = np.zeros(0, np.float32)


def attend(
    tensors: Sequence[Tensor],
    packing: Packing,
    axis: int,
    causal: bool = False,
    key_mask: Bool[Tensor, " b *a"] | None = None,
    bias: Float[Tensor, "#b #n #l #l"] | None = None,
    rotations: Float[Tensor, "l k"] | None = None,
) -> Float[Tensor, "b *a n w"]:
    """Return `axial_attention` in float32 or bfloat16 on a CPU; first derivatives only.

    `tensors` are queries, keys and values, or one of all.
    """
    biases: tuple[Tensor, ...] = ()
    if bias is not None:  # float32, heads before examples, keys before queries
        heads, length = packing[0] if packing else tensors[0].shape[-2], tensors[0].shape[axis]
        biases = (bias.float().expand(-1, heads, length, length).transpose(0, 1).mT.contiguous(),)
    arguments = packing, axis, causal, None, key_mask, rotations, len(biases), *biases, *tensors
    out: Tensor = _Attention.apply(*arguments)  # type: ignore[no-untyped-call]
    return out


def attend_relative(
    tensors: Sequence[Tensor],
    packing: Packing,
    tables: tuple[Float[Tensor, "r t k"], Float[Tensor, "r t k"], Float[Tensor, "r t w"]],
    axis: int,
    causal: bool,
    scale: float,
) -> Float[Tensor, "b *a n w"]:
    """Return equation 4 of Axial-DeepLab, its scores times `scale`, like `attend`."""
    rows = tables[0].shape[0]
    if (beyond := rows // 2 - (tensors[0].shape[axis] - 1)) > 0:
        tables = tuple(table[beyond : rows - beyond] for table in tables)  # type: ignore[assignment]
    arguments = packing, axis, causal, scale, None, None, len(tables), *tables, *tensors
    out: Tensor = _Attention.apply(*arguments)  # type: ignore[no-untyped-call]
    return out


def unpacked(tensors: Sequence[Tensor], packing: Packing) -> tuple[Tensor, ...]:
    """Return queries, keys and values."""
    if packing is None:
        return tuple(tensors)
    heads, *widths = packing
    return tuple(part.unflatten(-1, (heads, -1)) for part in tensors[0].split(widths, dim=-1))


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        packing: Packing,
        axis: int,
        causal: bool,
        scale: float | None,
        key_mask: Tensor | None,
        rotations: Tensor | None,
        learned: int,
        *tensors: Tensor,
    ) -> Tensor:
        q, k, v = unpacked(tensors[learned:], packing)
        out = v.new_empty(*q.shape[:-1], v.shape[-1])
        sums = q.new_empty((q.shape[:-1].numel(), 2), dtype=torch.float32)
        before = [q, k, v], tensors[:learned], axis, causal
        if scale is None:
            _forward(*before, key_mask, rotations, out, sums)
        else:
            _forward_relative(*before, scale, out, sums)
        ctx.save_for_backward(sums, key_mask, rotations, *tensors)
        ctx.packing, ctx.axis, ctx.causal, ctx.scale, ctx.learned = packing, axis, causal, scale, learned
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        sums, key_mask, rotations, *tensors = ctx.saved_tensors
        learned, given = tensors[: ctx.learned], tensors[ctx.learned :]
        grads = [x.new_empty(x.shape) for x in given]
        d_learned = [x.new_empty(x.shape) for x in learned if any(ctx.needs_input_grad[7 : 7 + ctx.learned])]
        before = [*unpacked(given, ctx.packing), grad], learned, ctx.axis, ctx.causal
        written = [*unpacked(grads, ctx.packing), *d_learned]
        if ctx.scale is None:
            _backward(*before, key_mask, rotations, sums, written)
        else:
            _backward_relative(*before, ctx.scale, sums, written)
        return *[None] * 7, *(d_learned or [None] * ctx.learned), *grads


@cpu_operator("axial_transformers::attend_lines", mutates_args=("out", "sums"))
def _forward(
    qkv: Sequence[Tensor],
    biases: Sequence[Tensor],
    axis: int,
    causal: bool,
    key_mask: Tensor | None,
    rotations: Tensor | None,
    out: Tensor,
    sums: Tensor,
) -> None:
    check_written([out], [out], axis)
    kernels, arguments, sizes, pieces = _of_lines([*qkv, out], [], biases, axis, causal, key_mask, rotations, sums)
    if sizes is None:
        parallel_ranges(partial(kernels.forward, *arguments), pieces)
        return

    def work(first: int, last: int) -> None:
        kernels.forward(*arguments, sums.numpy(), first * sizes.at_once, last * sizes.at_once)

    parallel_ranges(work, pieces)


@cpu_operator("axial_transformers::attend_lines_backward", mutates_args=("grads",))
def _backward(
    qkv_grad: Sequence[Tensor],
    biases: Sequence[Tensor],
    axis: int,
    causal: bool,
    key_mask: Tensor | None,
    rotations: Tensor | None,
    sums: Tensor,
    grads: Sequence[Tensor],
) -> None:
    check_written(grads, [*qkv_grad[:3], *biases][: len(grads)], axis)
    kernels, arguments, sizes, pieces = _of_lines(qkv_grad, grads[:3], biases, axis, causal, key_mask, rotations, sums)
    if sizes is None:
        parallel_ranges(partial(kernels.backward, *arguments), pieces)
        return

    def work(first: int, last: int, d_bias: NDArray[np.float32] = NONE) -> None:
        kernels.backward(*arguments, d_bias, sums.numpy(), first * sizes.at_once, last * sizes.at_once)

    if len(grads) == 3:
        parallel_ranges(work, pieces)
        return
    biases_of_lines, lines = grads[3].shape[:2].numel(), sizes.lines_to_bias
    parts = min(lines, -(-PARTS_OF_BIAS // biases_of_lines))
    sums_of_parts = np.zeros((biases_of_lines, parts, sizes.length**2), np.float32)

    def work_on_parts(first: int, last: int) -> None:
        for i, part in (divmod(number, parts) for number in range(first, last)):
            begin, end = i * lines + lines * part // parts, i * lines + lines * (part + 1) // parts
            work(begin, end, sums_of_parts[i, part])

    parallel_ranges(work_on_parts, biases_of_lines * parts)
    grads[3].copy_(torch.from_numpy(sums_of_parts.sum(axis=1)).view_as(grads[3]))


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


def _of_lines(
    lines: Sequence[Tensor],
    written: Sequence[Tensor],
    biases: Sequence[Tensor],
    axis: int,
    causal: bool,
    key_mask: Tensor | None,
    rotations: Tensor | None,
    sums: Tensor,
) -> tuple[Any, tuple[Any, ...], Sizes | None, int]:
    bias = biases[0] if biases else None
    check_lines(lines, axis, sums, grouped=bias is None)
    check_extras(lines[0], axis, key_mask, bias, rotations)
    arrays, strides = flat_lines([*lines, *written], axis)
    sizes = sizes_of(lines[0], lines[2], axis)
    if pieces := _pieces_of_short_lines(lines, axis, key_mask, bias, rotations):
        return short_line_kernels(), (*arrays, strides, sizes, causal), None, pieces
    group, count = sizes.heads // lines[1].shape[-2], sizes.outer * sizes.inner
    sizes = sizes._replace(
        lines_to_bias=count if bias is None else count // bias.shape[1],
        group=group,
        at_once=1 if bias is not None else heads_at_once(sizes, group),
    )
    kernels = line_kernels(lines[0].dtype == torch.bfloat16, sizes.length * sizes.width >= TILES_PAY_FROM)
    biases_of_lines = NONE if bias is None else bias.detach().flatten().numpy()
    turns = np.zeros((0, sizes.width), np.float32)
    if rotations is not None:
        turns = np.ascontiguousarray(rotations.detach()[: sizes.length].float().numpy())
    arguments = *arrays, strides, sizes, causal, _flat_mask(key_mask, axis), biases_of_lines, turns
    return kernels, arguments, sizes, len(sums) // (sizes.length * sizes.at_once)


def _pieces_of_short_lines(
    qkv: Sequence[Tensor], axis: int, key_mask: Tensor | None, bias: Tensor | None, rotations: Tensor | None
) -> int:
    lanes = short_line_kernels().LANES
    q, k, v = qkv[:3]
    outer, inner, heads, length, width, value_width, *_ = sizes_of(q, v, axis)
    plain = key_mask is None and bias is None and rotations is None and heads == k.shape[-2]
    fits = width % lanes == value_width % lanes == 0 and outer * inner >= lanes and length > 0
    pays = length * width <= SHORT * lanes
    return -(-outer * inner // lanes) * heads if plain and fits and pays else 0


def flat_lines(tensors: Sequence[Tensor], axis: int) -> tuple[list[NDArray[Any]], tuple[Strides, ...]]:
    """Return flat arrays and strides (outer axes, inner axes, heads, `axis`), or copies."""
    arrays, strides = [], []
    for x in tensors:
        found = strides_of_lines(x.shape, x.stride(), axis)
        if found is None:
            x = x.contiguous()
            found = strides_of_lines(x.shape, x.stride(), axis)
        assert found is not None, "contiguous tensors have such strides"
        flat = x.detach().as_strided((found[0],), (1,))
        arrays.append((flat.view(torch.int16) if x.dtype == torch.bfloat16 else flat).numpy())
        strides.append(Strides(*found[1]))
    return arrays, tuple(strides)


def sizes_of(q: Tensor, v: Tensor, axis: int) -> Sizes:
    """Return the sizes, without shares."""
    outer, inner = q.shape[:axis].numel(), q.shape[axis + 1 : -2].numel()
    return Sizes(outer, inner, q.shape[-2], q.shape[axis], q.shape[-1], v.shape[-1])


def heads_at_once(sizes: Sizes, group: int = 1) -> int:
    """Return the heads to load together."""
    heads, of_head = sizes.heads, sizes.length * (4 * sizes.width + 3 * sizes.value_width)
    return max(n for n in range(group, heads + 1, group) if heads % n == 0 and (n == group or n * of_head <= AT_ONCE))


def _flat_mask(key_mask: Tensor | None, axis: int) -> NDArray[np.uint8]:
    if key_mask is None:
        return np.zeros(0, np.uint8)
    outer = key_mask.shape[:axis].numel()
    return key_mask.reshape(outer, key_mask.shape[axis], -1).mT.contiguous().view(torch.uint8).flatten().numpy()


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
