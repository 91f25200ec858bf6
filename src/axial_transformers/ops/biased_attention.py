"""Attention along lines with an additive bias, any mask and dropout, in pieces of so many scores."""

from itertools import repeat

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from axial_transformers.ops.kernel_choice import choose_kernel
from axial_transformers.ops.torch_attention import scaled, softmax
from axial_transformers.torch_private import is_transformed

PIECE = {"cpu": 2**20}
"""Scores that exist at a time, by type of device: 4 MB of float32 on a CPU."""
PIECE_ELSEWHERE = 2**26


def attend(
    q: Float[Tensor, "g m n l k"],
    k: Float[Tensor, "g m n s k"],
    v: Float[Tensor, "g m n s w"],
    bias: Float[Tensor, "#g #m #n #l #s"] | None,
    allowed: Bool[Tensor, "#g #m #n #l #s"] | None,
    dropout: float = 0.0,
) -> Float[Tensor, "g m n l w"]:
    """Attention of groups of lines: dropout(softmax(q k^T / sqrt(K) + bias)) v.

    Calls of more scores than PIECE are computed piece by piece, in the backward pass again, so that no more scores
    exist at a time; can be differentiated any number of times.

    Args:
        q, k, v: [groups, lines, heads, length, width], one floating-point dtype.
        bias: added to the scores, broadcast to [groups, lines, heads, length, keys]; it may have a gradient. Minus
            infinity, or less than half the dtype's least number, excludes a key.
        allowed: True where a query may attend to a key, broadcast likewise. A query without any key gets zeros.
        dropout: the probability with which a weight is zero; the others are divided by 1 - dropout.

    Returns:
        [groups, lines, heads, length, value width], the dtype of v.
    """
    bias = None if bias is None else bias.to(q.dtype)
    if torch.compiler.is_compiling() or is_transformed() or q.shape[:-1].numel() * k.shape[-2] <= _piece(q):
        return _attend(q, k, v, bias, allowed, dropout)
    return _in_pieces(q, k, v, bias, allowed, dropout)


def _in_pieces(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, allowed: Tensor | None, dropout: float) -> Tensor:
    """`attend`, some whole groups at a time, or some lines of one group."""
    scores, dim = q.shape[:-1].numel() * k.shape[-2], 0 if len(q) > 1 else 1
    if scores <= _piece(q) or q.shape[:2].numel() <= 1:
        arguments = q, k, v, bias, allowed, dropout
        out: Tensor = checkpoint(_attend, *arguments, use_reentrant=False, preserve_rng_state=dropout > 0)
        return out
    step = max(1, _piece(q) * q.shape[dim] // scores)
    parts = zip(
        *(x.split(step, dim) for x in (q, k, v)),
        *(repeat(x) if x is None or x.shape[dim] == 1 else x.split(step, dim) for x in (bias, allowed)),
    )
    return torch.cat([_in_pieces(*part, dropout) for part in parts], dim)  # type: ignore[call-arg]


def _piece(q: Tensor) -> int:
    return PIECE.get(q.device.type, PIECE_ELSEWHERE)


def _attend(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, allowed: Tensor | None, dropout: float) -> Tensor:
    if bias is not None:  # otherwise keys that are not allowed would count beside keys with less
        reached = ~(bias <= _lowest(q.dtype))  # NaN stays NaN
        allowed = reached if allowed is None else allowed & reached
    only_composed = q.device.type == "cpu" and (dropout > 0 or (bias is not None and bias.requires_grad))
    if not only_composed and choose_kernel(q.device, q.dtype, k.shape[-2]) == "fused":
        return _fused(q, k, v, bias, allowed, dropout)
    return composed(q, k, v, bias, allowed, dropout)


def composed(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, allowed: Tensor | None, dropout: float) -> Tensor:
    """`attend` in one piece, of [.., length, width] with any dimensions before."""
    scores = scaled(q) @ k.mT
    if bias is not None:
        scores = scores + bias
    if allowed is not None:
        scores = scores.masked_fill(~allowed, _lowest(q.dtype))
    weights = softmax(scores).to(v.dtype)
    if allowed is not None:
        weights = weights * allowed  # a query without keys
    return F.dropout(weights, dropout) @ v


def _fused(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, allowed: Tensor | None, dropout: float) -> Tensor:
    mask = bias
    if allowed is not None:
        start = q.new_zeros(()) if bias is None else bias
        mask = torch.where(allowed, start, _lowest(q.dtype))
    if mask is not None:
        mask = mask.expand(*q.shape[:2], *mask.shape[2:]).flatten(0, 1).expand(-1, *q.shape[2:-1], k.shape[-2])
    lines = q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1)
    out = F.scaled_dot_product_attention(*lines, attn_mask=mask, dropout_p=dropout).unflatten(0, q.shape[:2])
    return out if allowed is None else out.masked_fill(~allowed.any(dim=-1, keepdim=True), 0)


def _lowest(dtype: torch.dtype) -> float:
    # Finite, so that a query without keys has a gradient; halved, so that adding a score stays finite.
    return torch.finfo(dtype).min / 2
