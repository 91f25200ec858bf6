"""Rotation of packed queries and keys by a table of cosines and sines: rotary positions (Su et al. 2021) of a model.

`ops.positions.rotary` computes angles at each call, of any coordinates. Here the numbers are a table, which is stored
with a model's weights: cosines differ from machine to machine, and archives must not.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from axial_transformers.kernels.threads import parallel_ranges
from axial_transformers.ops.elementwise import flat_array, pays
from axial_transformers.ops.kernel_choice import is_transformed


def rotation_table(length: int, width: int, base: float) -> Float[Tensor, "l k"]:
    """For places 0..length - 1 the cosines of `width` / 2 angles, then their sines: float32.

    The angle of number j at place p is p base^(-2j / width).
    """
    frequencies = base ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    angles = torch.arange(length, dtype=torch.float64)[:, None] * frequencies
    return torch.cat([angles.cos(), angles.sin()], dim=1).float()


def rotate_packed(
    qkv: Float[Tensor, "b *a e"], table: Float[Tensor, "l k"], heads: int, axis: int
) -> Float[Tensor, "b *a e"]:
    """qkv with its first `heads` heads rotated: the numbers j and j + K/2 of each, as a vector of the plane.

    Args:
        qkv: [B, *A, E], queries and keys, K wide each, then the rest; first derivatives only where a compiled kernel
            takes them.
        table: see `rotation_table`; row p is of place p along the axis, which may be shorter than the table.
        heads: those of queries and of keys together.
        axis: 1..d, or counted from the end.
    """
    if torch.compiler.is_compiling() or is_transformed() or not pays(qkv):
        return _composed(qkv, table, heads, axis)
    return _Rotation.apply(qkv, table.detach(), heads, axis % qkv.ndim)  # type: ignore[no-untyped-call]


def rotate(x: Float[Tensor, "b *a n k"], table: Float[Tensor, "l k"], axis: int) -> Float[Tensor, "b *a n k"]:
    """Heads x [B, *A, heads, K] rotated by the table's rows along `axis`: in float32 at least, the dtype of x."""
    length = x.shape[axis]
    of_places = [1] * x.ndim
    of_places[axis], of_places[-1] = length, -1
    cos, sin = (part.reshape(of_places) for part in table[:length].chunk(2, dim=-1))
    first, second = x.to(torch.promote_types(x.dtype, torch.float32)).chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1).to(x.dtype)


class _Rotation(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, qkv: Tensor, table: Tensor, heads: int, axis: int) -> Tensor:
        ctx.save_for_backward(table)
        ctx.heads, ctx.axis = heads, axis
        return _rotated(qkv, table, heads, axis)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        cos, sin = ctx.saved_tensors[0].chunk(2, dim=-1)
        return _rotated(grad, torch.cat([cos, -sin], dim=-1), ctx.heads, ctx.axis), None, None, None


def _rotated(x: Tensor, table: Tensor, heads: int, axis: int) -> Tensor:
    if not pays(x):
        return _composed(x, table, heads, axis)
    from axial_transformers.kernels.rotated_rows import rotate_rows  # takes a second

    x = x.contiguous()
    out = torch.empty_like(x)
    length, stride, row = x.shape[axis], x.shape[axis + 1 : -1].numel(), x.shape[-1]
    angles = table[:length].float().contiguous().numpy()
    source, target = flat_array(x), flat_array(out)

    def work(first: int, last: int) -> None:
        rotate_rows(source, row, heads, angles, length, stride, target, first, last)

    parallel_ranges(work, x.shape[:-1].numel())
    return out


def _composed(qkv: Tensor, table: Tensor, heads: int, axis: int) -> Tensor:
    q_and_k = qkv[..., : heads * table.shape[1]]
    rotated = rotate(q_and_k.unflatten(-1, (heads, -1)), table, axis if axis > 0 else axis - 1).flatten(-2)
    return torch.cat([rotated, qkv[..., rotated.shape[-1] :]], dim=-1)
