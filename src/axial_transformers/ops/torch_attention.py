"""Attention along lines, softmax(q k^T / sqrt(K)) v, by torch's operations: `fused`, `blocked` and `composed`."""

from collections.abc import Callable, Iterator
from itertools import repeat
from math import sqrt
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from axial_transformers.ops.kernel_choice import choose_kernel
from axial_transformers.torch_private import softmax_backward

BLOCK = 2**18
"""Scores that `blocked` works on at a time: 1 MB of float32, what a core's own cache holds."""
MOST_LINES = 2**16 - 1
"""Lines in one call of torch's fused kernels: CUDA has no more blocks in the dimension of the grid that counts them."""
MOST_NUMBERS = 2**31 - 1
"""Numbers of a tensor in one call of them, lengths rounded up: their backward pass counts in 32 bits."""
ROUNDED_TO = 128
"""Lengths are rounded up to a multiple of so many places by flash attention."""


def attend(
    q: Float[Tensor, "m n l k"],
    k: Float[Tensor, "m n s k"],
    v: Float[Tensor, "m n s w"],
    causal: bool = False,
    key_mask: Bool[Tensor, "m s"] | None = None,
) -> Float[Tensor, "m n l w"]:
    """Attention of lines of queries to lines of keys and values, by the fastest of torch's kernels.

    Args:
        q, k, v: [lines, heads, length, width], one floating-point dtype.
        causal: query i attends to keys 0..i.
        key_mask: [lines, keys], True where a key is present. A query without any key gets zeros.

    Returns:
        [lines, heads, length, value width], the dtype of v.
    """
    return KERNELS[choose_kernel(q.device, q.dtype, k.shape[-2])](q, k, v, causal, key_mask)


def weights(q: Tensor, k: Tensor, causal: bool = False, key_mask: Tensor | None = None) -> Float[Tensor, "m n l s"]:
    """The weights of `attend`, [lines, heads, length, keys]. A row sums to one, or to zero if it attends to no key."""
    scores = scaled(q) @ k.mT
    allowed = _allowed(q, k, causal, key_mask)
    if allowed is None:
        return softmax(scores).to(q.dtype)
    return (softmax(scores + _bias(allowed, q.dtype)) * allowed).to(q.dtype)


def scaled(q: Float[Tensor, "... k"]) -> Float[Tensor, "... k"]:
    """q / sqrt(K)."""
    width = q.shape[-1]
    if isinstance(width, torch.SymInt):  # a number would tie an exported graph to the width that it was traced with
        return q * torch.scalar_tensor(width, dtype=q.dtype, device=q.device).rsqrt()
    return q / sqrt(width)


def softmax(scores: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """The softmax over the last dimension; where that is faster, that of half precision in float32."""
    return torch.softmax(_wide(scores), dim=-1)


def fused(q: Tensor, k: Tensor, v: Tensor, causal: bool, key_mask: Tensor | None) -> Tensor:
    """torch's own fused kernel, for as many lines at a time as it takes."""
    most = max(1, most_lines(q.shape[1], max(q.shape[-2], k.shape[-2]), max(q.shape[-1], v.shape[-1])))
    if len(q) <= most:
        return _fused(q, k, v, causal, key_mask)
    masks = repeat(None) if key_mask is None else key_mask.split(most)
    parts = zip(q.split(most), k.split(most), v.split(most), masks)
    return torch.cat([_fused(q, k, v, causal, mask) for q, k, v, mask in parts])


def most_lines(heads: int, length: int, width: int) -> int:
    """The number of lines that `fused` computes in one call; 0 where one line has too many heads or numbers."""
    places = -(-length // ROUNDED_TO) * ROUNDED_TO
    most = min(MOST_LINES, MOST_NUMBERS // max(1, heads * places * width))
    return most if heads <= MOST_LINES else 0


def _fused(q: Tensor, k: Tensor, v: Tensor, causal: bool, key_mask: Tensor | None) -> Tensor:
    if key_mask is None:
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal)
    allowed = _allowed(q, k, causal, key_mask)
    assert allowed is not None
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=_bias(allowed, q.dtype).expand(*q.shape[:-1], -1))
    return _zero_without_keys(out, allowed)


def composed(q: Tensor, k: Tensor, v: Tensor, causal: bool, key_mask: Tensor | None) -> Tensor:
    """Matrix product, softmax, matrix product: can be traced, and differentiated any number of times."""
    return weights(q, k, causal, key_mask) @ v


def blocked(q: Tensor, k: Tensor, v: Tensor, causal: bool, key_mask: Tensor | None) -> Tensor:
    """Matrix product, softmax, matrix product, as many lines at a time as fit into cache; first derivatives only."""
    allowed = _allowed(q, k, causal, key_mask)
    bias = None if allowed is None else _bias(allowed, q.dtype)
    if bias is not None and len(bias) > 1:
        bias = bias.expand(-1, q.shape[1], -1, -1).flatten(0, 1)
    elif bias is not None:
        bias = bias.flatten(0, 1)
    matrices = (x.flatten(0, -3) for x in (q, k, v))
    out: Tensor = _Blocked.apply(*matrices, bias)  # type: ignore[no-untyped-call]
    out = out.unflatten(0, q.shape[:2])
    return out if allowed is None or key_mask is None else _zero_without_keys(out, allowed)


KERNELS: dict[str, Callable[[Tensor, Tensor, Tensor, bool, Tensor | None], Tensor]] = {
    "fused": fused,
    "blocked": blocked,
    "composed": composed,
}


class _Blocked(torch.autograd.Function):
    """q [M, L, K], k [M, S, K], v [M, S, W] and an additive bias [M or 1, L or 1, S], or None, to [M, L, W].

    The weights are kept for the backward pass where they take no more memory than keys and values; elsewhere they are
    computed again, so that memory stays linear in the length.
    """

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        keys = k.shape[-2]
        out = v.new_empty(*q.shape[:-1], v.shape[-1])
        kept = q.new_empty(*q.shape[:-1], keys) if keys <= k.shape[-1] + v.shape[-1] else None
        with torch.autocast(q.device.type, enabled=False):
            for block in _blocks(len(q), q.shape[-2] * keys):
                p = _block_weights(q, k, bias, block).to(q.dtype)
                if kept is not None:
                    kept[block] = p
                torch.bmm(p, v[block], out=out[block])
        ctx.save_for_backward(q, k, v, bias, kept)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, bias, kept = ctx.saved_tensors
        grad = grad.contiguous()
        dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        with torch.autocast(q.device.type, enabled=False):
            for block in _blocks(len(q), q.shape[-2] * k.shape[-2]):
                p = _block_weights(q, k, bias, block) if kept is None else _wide(kept[block])
                torch.bmm(p.to(q.dtype).mT, grad[block], out=dv[block])
                dp = _wide(torch.bmm(grad[block], v[block].mT))
                ds = softmax_backward(dp, p, -1, p.dtype)
                ds = ds.mul_(1 / sqrt(q.shape[-1])).to(q.dtype)
                torch.bmm(ds, k[block], out=dq[block])
                torch.bmm(ds.mT, q[block], out=dk[block])
        return dq, dk, dv, None


def _block_weights(q: Tensor, k: Tensor, bias: Tensor | None, block: slice) -> Tensor:
    if bias is None:
        start, beta = q.new_zeros(1), 0
    else:
        start, beta = bias if len(bias) == 1 else bias[block], 1
    return softmax(torch.baddbmm(start, q[block], k[block].mT, beta=beta, alpha=1 / sqrt(q.shape[-1])))


def _blocks(lines: int, scores: int) -> Iterator[slice]:
    step = max(1, BLOCK // max(1, scores))
    return (slice(i, min(i + step, lines)) for i in range(0, lines, step))


def _allowed(q: Tensor, k: Tensor, causal: bool, key_mask: Tensor | None) -> Tensor | None:
    """True where a query may attend to a key, [M or 1, 1, L or 1, S]; None if it may to all."""
    if key_mask is None and not causal:
        return None
    present = None if key_mask is None else key_mask[:, None, None, :]
    if not causal:
        return present
    past = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device).tril()
    return past[None, None] if present is None else past & present


def _bias(allowed: Tensor, dtype: torch.dtype) -> Tensor:
    # Finite, so that a query without keys has a gradient; halved, so that adding a score stays finite.
    return torch.zeros(allowed.shape, dtype=dtype, device=allowed.device).masked_fill(
        ~allowed, torch.finfo(dtype).min / 2
    )


def _zero_without_keys(out: Tensor, allowed: Tensor) -> Tensor:
    return out.masked_fill(~allowed.any(dim=-1, keepdim=True), 0)


def _wide(x: Tensor) -> Tensor:
    # On CPU, a softmax of half precision takes up to ten times as long over rows that do not fill whole registers.
    return x.float() if x.dtype.itemsize == 2 and x.shape[-1] % 32 else x
