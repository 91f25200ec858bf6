"""Attention by a matrix product, a softmax and a matrix product: the backend that takes what others refuse."""

from collections.abc import Callable, Sequence
from math import sqrt

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from axial_transformers.ops.attention_call import AttentionCall
from axial_transformers.ops.line_groups import additive_mask, attend_in_groups, zero_without_keys


def refuses(call: AttentionCall) -> str | None:
    """Return why it does not take a call, or None."""
    return "equation 4 has terms of its own" if call.tables else None


def run(call: AttentionCall) -> Float[Tensor, "b *a n w"]:
    """Compute a call."""
    return attend_in_groups(call, composed)


def composed(
    q: Float[Tensor, "... l k"],
    k: Float[Tensor, "... s k"],
    v: Float[Tensor, "... s w"],
    bias: Float[Tensor, "..."] | None,
    allowed: Bool[Tensor, "..."] | None,
    dropout: float,
) -> Float[Tensor, "... l w"]:
    """Return dropout(softmax(q k^T / sqrt(K) + bias)) v; a query without any key gets zeros."""
    weights = attention_weights(q, k, bias, allowed)
    if dropout:
        weights = F.dropout(weights, dropout)
    return zero_without_keys(weights @ v, allowed)


def attention_weights(
    q: Float[Tensor, "... l k"],
    k: Float[Tensor, "... s k"],
    bias: Float[Tensor, "..."] | None,
    allowed: Bool[Tensor, "..."] | None,
) -> Float[Tensor, "... l s"]:
    """Return softmax(q k^T / sqrt(K) + bias); arbitrary numbers for a query without any key."""
    scores = _scaled(q) @ k.mT
    mask = additive_mask(bias, allowed, q)
    return softmax(scores if mask is None else scores + mask).to(q.dtype)


def gradients_by(
    formula: Callable[..., Tensor],
    tensors: Sequence[Tensor],
    needed: Sequence[bool],
    grad: Tensor,
) -> list[Tensor | None]:
    """Return the gradients of a formula's arguments, differentiable if grad mode is on; None where not needed."""
    again = torch.is_grad_enabled()
    with torch.enable_grad():
        own = [x.view_as(x) for x in tensors]  # apart, where one tensor is two arguments
        out = formula(*own)
    wanted = [x for x, needs in zip(own, needed) if needs]
    gradients = iter(torch.autograd.grad(out, wanted, grad, create_graph=again, allow_unused=True))
    return [next(gradients) if needs else None for needs in needed]


def softmax(scores: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Return the softmax over the last dimension."""
    keys = scores.shape[-1]
    # On a CPU, half precision is up to ten times slower in rows that do not fill registers.
    if scores.dtype.itemsize == 2 and (isinstance(keys, torch.SymInt) or keys % 32):
        scores = scores.float()
    return torch.softmax(scores, dim=-1)


def _scaled(q: Float[Tensor, "... k"]) -> Float[Tensor, "... k"]:
    width = q.shape[-1]
    if isinstance(width, torch.SymInt):  # a number would fix the width in the exported graph
        return q * torch.scalar_tensor(width, dtype=q.dtype, device=q.device).rsqrt()
    return q / sqrt(width)
