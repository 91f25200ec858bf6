"""The specification of the operations: slow, pair by pair as in the equations, for tests of the fast ones.

Where a fast implementation and this file differ, the fast one is wrong.
"""

from math import sqrt

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def axial_attention(
    q: Float[Tensor, "b *a n k"],
    k: Float[Tensor, "b *a h k"],
    v: Float[Tensor, "b *a h w"],
    axis: int,
    causal: bool = False,
    key_mask: Bool[Tensor, " b *a"] | None = None,
    attn_bias: Float[Tensor, "..."] | None = None,
    *,
    window: int | None = None,
    dilation: int = 1,
) -> Float[Tensor, "b *a n w"]:
    """Return out[o] = sum_p softmax_p(q[o] . k[p] / sqrt(K) + bias[o, p]) v[p] over p on the line of o along `axis`.

    Position o attends to position p if all of these hold:

    - `key_mask` is True at p;
    - causal: p <= o;
    - dilation: p - o is a multiple of it;
    - window 2R + 1: |p - o| <= R * dilation.

    Without any such p, the result is zero. Where `key_mask` is False, numbers of q that are not finite count as zeros.
    With N heads of q and H heads of k and v, head n of q attends to head floor(n H / N): successive heads of q share
    one of k and v.

    Args:
        attn_bias: [B, *A without axis, heads, L, L], bias[o, p] in row o and column p. With a window, the last size is
            the window, and column R + (p - o) / dilation is of the pair o, p.
    """
    if key_mask is None:
        key_mask = torch.ones(q.shape[:-2], dtype=torch.bool)
    present = key_mask[..., None, None]
    q = torch.where(present | q.isfinite(), q, 0)
    k, v = (torch.where(present, x, 0).repeat_interleave(q.shape[-2] // x.shape[-2], dim=-2) for x in (k, v))
    q, k, v = (x.movedim(axis, -2) for x in (q, k, v))  # heads are one more axis
    offsets = _offsets(q.shape[-2])
    seen = (offsets % dilation == 0) & key_mask.movedim(axis, -1)[..., None, None, :]
    if causal:
        seen = seen & (offsets <= 0)
    scores = q @ k.mT / sqrt(q.shape[-1])
    if window is not None:
        seen = seen & (offsets.abs() <= window // 2 * dilation)
    if attn_bias is not None and window is not None:
        columns = (window // 2 + offsets // dilation).clamp(0, window - 1)
        attn_bias = attn_bias.gather(-1, columns.expand(*attn_bias.shape[:-1], -1))
    if attn_bias is not None:
        scores = scores + attn_bias
    exps = torch.where(seen, scores.exp(), 0)
    sums = exps.sum(dim=-1, keepdim=True)
    return (exps / torch.where(sums > 0, sums, 1) @ v).movedim(-2, axis)


def tied_axial_attention(
    q: Float[Tensor, "b r l n k"],
    k: Float[Tensor, "b r l n k"],
    v: Float[Tensor, "b r l n w"],
    key_mask: Bool[Tensor, "b r l"],
) -> Float[Tensor, "b r l n w"]:
    """Return out[r, o] = sum_p softmax_p(sum_s q[s, o] . k[s, p] / sqrt(R K)) v[r, p], along axis 2, tied over axis 1.

    - Products and values of absent positions are zero.
    - p runs over the columns that some row has.
    - R counts the rows that have a position.
    """
    there, rows = key_mask[..., None, None], key_mask.any(dim=2).sum(dim=1)[:, None, None, None].to(q)
    scores = torch.einsum("bsonk,bspnk->bnop", q * there, k * there) / (rows * q.shape[-1]).sqrt()
    exps = scores.exp() * key_mask.any(dim=1)[:, None, None]
    return torch.einsum("bnop,brpnw->bronw", exps / exps.sum(dim=-1, keepdim=True), v * there)


def rotary(
    x: Float[Tensor, "b *a n k"], coordinates: Float[Tensor, " b *a"], base: float = 10000.0
) -> Float[Tensor, "b *a n k"]:
    """Multiply numbers i and i + K/2 of a head, as one complex number, by exp(1j * coordinate * base^(-2i/K))."""
    half = x.shape[-1] // 2
    angles = coordinates[..., None, None] * base ** (-torch.arange(half).to(x) / half)
    turned = torch.complex(x[..., :half], x[..., half:]) * torch.exp(1j * angles)
    return torch.cat([turned.real, turned.imag], dim=-1)


def full_attention(
    q: Float[Tensor, "b *a n k"],
    k: Float[Tensor, "b *e n k"],
    v: Float[Tensor, "b *e n w"],
    key_mask: Bool[Tensor, " b *e"] | None = None,
) -> Float[Tensor, "b *a n w"]:
    """Return out[o] = sum_p softmax_p(q[o] . k[p] / sqrt(K)) v[p] over all positions p of the grid of k."""
    on_line = [x.flatten(1, -3) for x in (q, k, v)]
    exps = (torch.einsum("bonk,bpnk->bonp", *on_line[:2]) / sqrt(q.shape[-1])).exp()
    if key_mask is not None:
        exps = exps * key_mask.flatten(1)[:, None, None]
    weights = exps / exps.sum(dim=-1, keepdim=True)
    return torch.einsum("bonp,bpnw->bonw", weights, on_line[2]).view(*q.shape[:-1], v.shape[-1])


def position_sensitive_attention(
    q: Float[Tensor, "b *a n k"],
    k: Float[Tensor, "b *a n k"],
    v: Float[Tensor, "b *a n w"],
    query_table: Float[Tensor, "r t k"],
    key_table: Float[Tensor, "r t k"],
    value_table: Float[Tensor, "r t w"],
    axis: int,
    causal: bool = False,
) -> Float[Tensor, "b *a n w"]:
    """Return equation 4 of Axial-DeepLab, its scores over sqrt(K).

    A table has 2R + 1 rows; row R + (p - o) belongs to the offset p - o. Position o attends to p if |p - o| <= R and,
    if causal, p <= o.
    """
    radius = len(query_table) // 2
    offsets = _offsets(q.shape[axis])
    rows = (radius + offsets).clamp(0, 2 * radius)
    rq, rk, rv = (table[rows].movedim(2, 0) for table in (query_table, key_table, value_table))  # [t, o, p, k]
    q, k, v = (x.movedim(axis, -2) for x in (q, k, v))
    q, k, v = q[..., :, None, :], k[..., None, :, :], v[..., None, :, :]
    scores = (q * k + q * rq + k * rk).sum(dim=-1) / sqrt(q.shape[-1])
    seen = (offsets.abs() <= radius) & ((offsets <= 0) | (not causal))
    weights = torch.where(seen, scores, -torch.inf).softmax(dim=-1)
    return (weights[..., None] * (v + rv)).sum(dim=-2).movedim(-2, axis)


def _offsets(length: int) -> Tensor:
    """Return [o, p]: p - o."""
    return torch.tensor([[p - o for p in range(length)] for o in range(length)])
