"""Attention by torch's fused kernel, `scaled_dot_product_attention`."""

from functools import partial
from math import prod
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from axial_transformers.ops import torch_attention
from axial_transformers.ops.attention_call import AttentionCall
from axial_transformers.ops.line_groups import (
    additive_mask,
    attend_in_groups,
    from_lines,
    join_pieces,
    qkv_lines,
    zero_without_keys,
)
from axial_transformers.ops.torch_private import is_differentiated, is_traced, is_transformed

MAX_LINES = 2**16 - 1
"""The limit of CUDA's grid."""
MAX_NUMBERS = 2**31 - 1
"""The backward pass counts in 32 bits."""
ROUNDED_TO = 128


def refuses(call: AttentionCall) -> str | None:
    """Return why it does not take a call, or None."""
    if call.tables:
        return "equation 4 has terms of its own"
    if is_transformed():
        return "transforms of torch.func do not take it"
    if call.q.device.type != "cpu":
        return None
    if call.dropout or (call.bias is not None and call.bias.requires_grad and torch.is_grad_enabled()):
        return "on a CPU it has no dropout, and no gradient of a bias"
    block = call.block
    keys = sum(block) if block else call.k.shape[call.axis]
    if isinstance(keys, torch.SymInt) and torch.compiler.is_exporting():
        return "a comparison would tie the exported graph to the sizes that it was traced with"
    if keys <= (2048 if call.q.dtype.itemsize == 2 else 63):
        return "on a CPU it is slower for lines below 64 positions, in half precision up to 2048"
    return None


def run(call: AttentionCall) -> Float[Tensor, "b *a n w"]:
    """Compute a call."""
    masked = call.key_mask is not None or call.bias is not None or call.window is not None or call.dilation > 1
    if masked or call.dropout:
        return attend_in_groups(call, _fused_groups)
    return from_lines(fused(*qkv_lines(call), causal=call.causal), call)


def fused(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    causal: bool = False,
    dropout: float = 0.0,
) -> Tensor:
    """Attend along lines [lines, heads, L, width], as many at a time as the kernel takes."""
    most = max(1, _most_lines(q.shape[1], q, k, v))
    if q.shape[0] <= most:
        return _fused(q, k, v, mask, causal, dropout)
    return join_pieces(partial(_fused, causal=causal, dropout=dropout), (q, k, v, mask), most)


def _most_lines(
    heads: int,
    q: Tensor,
    k: Tensor,
    v: Tensor,
) -> int:
    """Return how many lines with this number of heads the kernel takes in a call."""
    if heads > MAX_LINES:
        return 0
    width = max(q.shape[-1], v.shape[-1])
    positions = -(-max(q.shape[-2], k.shape[-2]) // ROUNDED_TO) * ROUNDED_TO
    return min(MAX_LINES, MAX_NUMBERS // max(1, heads * positions * width))


def copies_count(device: torch.device) -> bool:
    """Return True if copies of lines cost time, as on a GPU."""
    return device.type != "cpu"


def _fused_groups(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None,
    allowed: Tensor | None,
    dropout: float,
) -> Tensor:
    """Attend within groups. The kernel takes two dimensions before those of a line: lines, and heads.

    It takes one mask for all heads without a copy. So, where copies cost time, what shares a mask becomes the heads.
    """
    order = [0, 1, 2]
    lines = 2
    mask = additive_mask(bias, allowed, q)
    if mask is not None and mask.shape[:2] not in ((1, 1), q.shape[:2]):
        shared = [dim for dim in order if mask.shape[dim] == 1]
        heads = prod([q.shape[dim] for dim in shared])
        if copies_count(q.device) and _most_lines(heads, q, k, v):
            order = [dim for dim in order if dim not in shared] + shared
            lines = 3 - len(shared)
        else:
            mask = mask.expand(*q.shape[:2], -1, -1, -1)

    def flat(x: Tensor) -> Tensor:
        return x.permute(*order, 3, 4).flatten(lines, 2).flatten(0, lines - 1)

    out = fused(flat(q), flat(k), flat(v), None if mask is None else flat(mask), dropout=dropout)
    sizes = [q.shape[dim] for dim in order]
    out = out.reshape(*sizes, *out.shape[2:]).movedim((0, 1, 2), order)
    return zero_without_keys(out, allowed)


def _fused(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    causal: bool,
    dropout: float,
) -> Tensor:
    mask = None if mask is None else mask.expand(-1, -1, -1, k.shape[-2])  # only this size may not be 1
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout, is_causal=causal)
    if not out.requires_grad or dropout or torch.compiler.is_compiling() or is_traced():
        return out  # torch refuses further derivatives
    differentiable: Tensor = _Differentiable.apply(out, causal, q, k, v, mask)
    return differentiable


class _Differentiable(torch.autograd.Function):
    """The result of torch's kernel, which has first derivatives only; a formula has the others."""

    @staticmethod
    def forward(
        ctx: Any,
        out: Tensor,
        causal: bool,
        *tensors: Tensor | None,
    ) -> Tensor:
        ctx.save_for_backward(*tensors)
        ctx.causal = causal
        return out.view_as(out)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        if not is_differentiated(grad):
            return grad, *[None] * 5  # the kernel's own backward pass goes on
        *lines, mask = ctx.saved_tensors

        def formula(
            q: Tensor,
            k: Tensor,
            v: Tensor,
            bias: Tensor | None = None,
        ) -> Tensor:
            q, k, v = (x.transpose(1, 2) for x in (q, k, v))
            call = AttentionCall(q, k, v, 1, ctx.causal, bias=bias)
            return torch_attention.run(call).transpose(1, 2)

        tensors = lines if mask is None else [*lines, mask]
        grads = torch_attention.gradients_by(formula, tensors, ctx.needs_input_grad[2:], grad)
        return None, None, *grads, *[None] * (4 - len(grads))
