"""Attention along one axis of an N-D tensor. The oracle is `ops.reference`."""

from math import sqrt

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor


def axial_attention(
    q: Float[Tensor, "b *a n k"],
    k: Float[Tensor, "b *a n k"],
    v: Float[Tensor, "b *a n w"],
    axis: int,
    causal: bool = False,
) -> Float[Tensor, "b *a n w"]:
    """Every site attends to the sites of its own line along one axis: softmax(q . k / sqrt(K)) v.

    Args:
        q, k, v: [B, *A, heads, head_dim], floating point. One example and one head never see another.
        axis: the dimension of q that is attended along, 1..d (or counted from the end, -3 for the innermost axis).
        causal: a site sees itself and what comes before it on its line (Ho et al. 2019, masked attention).

    Returns:
        [B, *A, heads, value_dim], the dtype of v.

    Raises:
        ValueError: `axis` is not one of the axes of the data.
    """
    axis = axis % q.ndim if -q.ndim <= axis < q.ndim else axis
    if not 1 <= axis <= q.ndim - 3:
        raise ValueError(
            f"axis {axis} is not an axis of q {tuple(q.shape)}: [B, *A, heads, head_dim] has axes 1..{q.ndim - 3}"
        )
    out = _attend(_lines(q, axis), _lines(k, axis), _lines(v, axis), causal)
    rest = [size for dim, size in enumerate(q.shape[:-2]) if dim != axis]
    return out.transpose(1, 2).unflatten(0, rest).movedim(-3, axis)


def attend_step(
    q: Float[Tensor, "m n k"], keys: Float[Tensor, "m n s k"], values: Float[Tensor, "m n s w"]
) -> Float[Tensor, "m n w"]:
    """One query a line over the s keys and values that a cache holds so far."""
    weights = torch.softmax((q.unsqueeze(-2) @ keys.mT) / sqrt(q.shape[-1]), dim=-1)
    return (weights @ values).squeeze(-2)


def _lines(x: Tensor, axis: int) -> Tensor:
    """[B, *A, N, K] -> [lines, N, L, K], what the kernels take."""
    return x.movedim(axis, -3).flatten(0, -4).transpose(1, 2)


def _attend(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
    # Measured by benchmarks/attention_kernels.py: on CPU in bfloat16 the fused kernel's backward is several times slower.
    if q.device.type == "cpu" and q.dtype == torch.bfloat16 and torch.is_grad_enabled():
        return _attend_by_matmul(q, k, v, causal)
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal)


def _attend_by_matmul(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
    scores = (q / sqrt(q.shape[-1])) @ k.mT
    if causal:
        future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        scores = scores.masked_fill(future, -torch.inf)
    return torch.softmax(scores, dim=-1) @ v
