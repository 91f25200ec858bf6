"""Attention along one axis by compiled kernels on a CPU: see `line_kernels`."""

import logging
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable

from axial_transformers.kernels.threads import over_threads

HAS_NUMBA = find_spec("numba") is not None
PAYS_FROM = 2**18
"""Scores in a call: for fewer, what torch does in more steps costs less than the call itself. On lines of less than 32
places, torch's vectors are never full: these count as if of 32."""
LONGEST = {torch.float32: 2048, torch.bfloat16: 512}
"""Places on a line up to which these kernels were the fastest, or all that was measured."""

log = logging.getLogger(__name__)


def suits(sites: torch.Size, heads: int, axis: int, dtype: torch.dtype, device: torch.device) -> bool:
    """Whether `attend` takes such tensors, [*sites, ..], and is the fastest: benchmarks/attention_kernels.py.

    Along the columns of what a linear map left, the best of the others took 1.0 to 2 times its time, for lines of 8 to
    512 places.
    """
    length = sites[axis]
    return (
        device.type == "cpu"
        and length <= LONGEST.get(dtype, -1)
        and max(length, 32) * heads * sites.numel() >= PAYS_FROM
        and not torch.compiler.is_exporting()
        and HAS_NUMBA
    )


def attend(
    q: Float[Tensor, "b *a n k"],
    k: Float[Tensor, "b *a n k"],
    v: Float[Tensor, "b *a n w"],
    axis: int,
    causal: bool = False,
    key_mask: Bool[Tensor, " b *a"] | None = None,
) -> Float[Tensor, "b *a n w"]:
    """`axial_attention` of float32 or bfloat16 tensors on a CPU, 1 <= axis <= d; first derivatives only."""
    out: Tensor = _Attention.apply(None, axis, causal, key_mask, q, k, v)  # type: ignore[no-untyped-call]
    return out


def attend_packed(
    qkv: Float[Tensor, "b *a e"],
    heads: int,
    widths: tuple[int, int, int],
    axis: int,
    causal: bool = False,
    key_mask: Bool[Tensor, " b *a"] | None = None,
) -> Float[Tensor, "b *a n w"]:
    """`attend` for queries, keys and values beside each other, `widths` wide, whose gradients are wanted so too."""
    out: Tensor = _Attention.apply((heads, *widths), axis, causal, key_mask, qkv)  # type: ignore[no-untyped-call]
    return out


Packing = tuple[int, int, int, int] | None
"""Heads and the widths of queries, keys and values that lie beside each other in one tensor; None: three tensors."""


def unpacked(tensors: tuple[Tensor, ...], packing: Packing) -> tuple[Tensor, ...]:
    """Queries, keys and values [B, *A, heads, width]."""
    if packing is None:
        return tensors
    heads, *widths = packing
    return tuple(part.unflatten(-1, (heads, -1)) for part in tensors[0].split(widths, dim=-1))


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, packing: Packing, axis: int, causal: bool, key_mask: Tensor | None, *tensors: Tensor
    ) -> Tensor:
        q, k, v = unpacked(tensors, packing)
        out = v.new_empty(v.shape)
        sums = q.new_empty((q.shape[:-1].numel(), 2), dtype=torch.float32)
        _forward(q, k, v, axis, causal, key_mask, out, sums)
        ctx.save_for_backward(key_mask, sums, *tensors)
        ctx.packing, ctx.axis, ctx.causal = packing, axis, causal
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        key_mask, sums, *tensors = ctx.saved_tensors
        grads = tuple(x.new_empty(x.shape) for x in tensors)
        qkv, d_qkv = unpacked(tensors, ctx.packing), unpacked(grads, ctx.packing)
        _backward(*qkv, grad, ctx.axis, ctx.causal, key_mask, sums, *d_qkv)
        return None, None, None, None, *grads


@torch.library.custom_op("axial_transformers::attend_lines", mutates_args=("out", "sums"), device_types="cpu")
def _forward(
    q: Tensor, k: Tensor, v: Tensor, axis: int, causal: bool, key_mask: Tensor | None, out: Tensor, sums: Tensor
) -> None:
    from axial_transformers.kernels import line_attention as line_kernels  # a second, for those who need it

    numbers, steps = _in_lines([q, k, v, out], axis)
    sizes, seen = _sizes(q, v, axis), _seen(key_mask, axis)
    if not line_kernels.forward.signatures:
        log.info("preparing compiled attention: from disk, or once on this machine in about 10 seconds")

    def part(first: int, last: int) -> None:
        line_kernels.forward(*numbers, steps, sizes, causal, seen, sums.numpy(), first, last)

    over_threads(part, len(sums) // q.shape[axis])


@torch.library.custom_op(
    "axial_transformers::attend_lines_backward", mutates_args=("dq", "dk", "dv"), device_types="cpu"
)
def _backward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    grad: Tensor,
    axis: int,
    causal: bool,
    key_mask: Tensor | None,
    sums: Tensor,
    dq: Tensor,
    dk: Tensor,
    dv: Tensor,
) -> None:
    from axial_transformers.kernels import line_attention as line_kernels

    numbers, steps = _in_lines([q, k, v, grad, dq, dk, dv], axis)
    sizes, seen = _sizes(q, v, axis), _seen(key_mask, axis)

    def part(first: int, last: int) -> None:
        line_kernels.backward(*numbers, steps, sizes, causal, seen, sums.numpy(), first, last)

    over_threads(part, len(sums) // q.shape[axis])


def _in_lines(tensors: list[Tensor], axis: int) -> tuple[list[NDArray[Any]], NDArray[np.int64]]:
    """The numbers of tensors [B, *A, N, K] as flat arrays, and the steps to outer axes, inner ones, heads and places.

    What does not lie in memory as a linear map leaves it is copied first.
    """
    numbers, steps = [], []
    for x in tensors:
        x = x.detach()
        lines = x.reshape(x.shape[:axis].numel(), x.shape[axis], x.shape[axis + 1 : -2].numel(), *x.shape[-2:])
        lines = lines if lines.stride(-1) == 1 else lines.contiguous()
        span = 1 + sum((size - 1) * step for size, step in zip(lines.shape, lines.stride()))
        flat = lines.as_strided((span,), (1,))
        numbers.append((flat.view(torch.int16) if x.dtype == torch.bfloat16 else flat).numpy())
        outer, place, inner, head, _ = lines.stride()
        steps.append((outer, inner, head, place))
    return numbers, np.array(steps)


def _sizes(q: Tensor, v: Tensor, axis: int) -> NDArray[np.int64]:
    """Outer, inner, heads, length, key width, value width."""
    inner = q.shape[axis + 1 : -2].numel()
    return np.array([q.shape[:axis].numel(), inner, q.shape[-2], q.shape[axis], q.shape[-1], v.shape[-1]])


def _seen(key_mask: Tensor | None, axis: int) -> NDArray[np.uint8]:
    if key_mask is None:
        return np.zeros(0, np.uint8)
    outer = key_mask.shape[:axis].numel()
    return key_mask.reshape(outer, key_mask.shape[axis], -1).mT.contiguous().view(torch.uint8).flatten().numpy()
