"""Quick GELU and dropout, with little traffic to memory and few random numbers."""

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from axial_transformers.ops.kernel_choice import is_transformed

STEEPNESS = 1.702
BLOCK = 2**18
"""Numbers that several operations in a row work on at a time on a CPU: they stay in its cache."""


def quick_gelu(x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """x * sigmoid(1.702 x), the authors' nonlinearity; only x is saved for the gradient; first derivatives only.

    Under torch.func any derivatives.
    """
    if torch.compiler.is_compiling() or is_transformed():  # the compiler fuses by itself
        return x * torch.sigmoid(STEEPNESS * x)
    return _QuickGELU.apply(x)  # type: ignore[no-untyped-call]


def dropout(x: Float[Tensor, "..."], p: float) -> Float[Tensor, "..."]:
    """Each number is zero with probability p, otherwise x / (1 - p). On a CPU, p is rounded to a multiple of 2^-16."""
    dropped = round(p * 2**16)
    if x.device.type != "cpu" or not 0 < dropped < 2**16:
        return F.dropout(x, p)
    return x * _kept(x.detach(), dropped).to(x.dtype).mul_(2**16 / (2**16 - dropped))


@torch.library.custom_op(  # opaque to torch.compile, whose own random numbers take longer
    "axial_transformers::kept", mutates_args=(), device_types="cpu", tags=(torch.Tag.nondeterministic_seeded,)
)
def _kept(x: Tensor, dropped: int) -> Tensor:
    """A bool of x's shape, False with probability dropped / 2^16.

    One draw of 64 bits serves four numbers; torch's own dropout draws one for each and takes four times as long.
    """
    draws = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
    return draws.view(torch.int16)[: x.numel()].view(x.shape) >= dropped - 2**15


@_kept.register_fake
def _(x: Tensor, dropped: int) -> Tensor:
    return x.new_empty(x.shape, dtype=torch.bool)


class _QuickGELU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        x = x.contiguous()
        ctx.save_for_backward(x)
        out = torch.empty_like(x)
        for part, result in _blocks(x, out):
            torch.mul(part, STEEPNESS, out=result).sigmoid_().mul_(part)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        out = torch.empty_like(x)
        for part, part_grad, result in _blocks(x, grad.contiguous(), out):
            torch.mul(part, STEEPNESS, out=result)  # the derivative of quick_gelu at x is that of silu at 1.702 x
            torch.ops.aten.silu_backward.grad_input(part_grad, result, grad_input=result)
        return out


def _blocks(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Parts of contiguous tensors of one shape, flat, that fit into a CPU's cache."""
    size = BLOCK if tensors[0].device.type == "cpu" else max(1, tensors[0].numel())
    return zip(*(tensor.view(-1).split(size) for tensor in tensors), strict=True)
