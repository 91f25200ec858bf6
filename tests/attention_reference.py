"""The specification of the operations: slow, position by position as in the equations, for tests of the fast ones.

Where a fast implementation and this file differ, the fast one is wrong.
"""

from itertools import product
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
    if key_mask is not None:
        q = torch.where(key_mask[..., None, None] | q.isfinite(), q, 0)
    q, k, v = q.movedim(axis, -2), k.movedim(axis, -2), v.movedim(axis, -2)  # heads are one more axis
    mask = (
        torch.ones(q.shape[:-3] + q.shape[-2:-1], dtype=torch.bool) if key_mask is None else key_mask.movedim(axis, -1)
    )
    length, radius, out = q.shape[-2], q.shape[-2] * dilation if window is None else window // 2, {}
    of_q, of_k, of_v, rows = _vectors(q), _vectors(k), _vectors(v), {} if attn_bias is None else _vectors(attn_bias)
    for line in product(*(range(size) for size in q.shape[:-2])):
        keys = (*line[:-1], line[-1] * k.shape[-3] // q.shape[-3])
        present = mask[line[:-1]].tolist()
        for o in range(length):
            offsets = {p: (p - o) // dilation for p in range(length) if (p - o) % dilation == 0}
            seen = [p for p in offsets if abs(offsets[p]) <= radius and present[p] and (p <= o or not causal)]
            columns = seen if window is None else [radius + offsets[p] for p in seen]
            bias = None if attn_bias is None else rows[*line, o][columns]
            out[*line, o] = _attend(
                of_q[*line, o], [of_k[*keys, p] for p in seen], [of_v[*keys, p] for p in seen], of_v[*keys, o], bias
            )
    return _gather(out, (*q.shape[:-1], v.shape[-1])).movedim(-2, axis)


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
    q, k, v = q.movedim(axis, -2), k.movedim(axis, -2), v.movedim(axis, -2)
    radius, out = len(query_table) // 2, {}
    of_q, of_k, of_v, rq, rk, rv = (_vectors(x) for x in (q, k, v, query_table, key_table, value_table))
    for *here, n, o in of_q:
        head = n if query_table.shape[1] > 1 else 0
        window = [p for p in range(k.shape[-2]) if abs(p - o) <= radius and (p <= o or not causal)]
        query, scores, values = of_q[*here, n, o], [], []
        for p in window:
            key, row = of_k[*here, n, p], (radius + p - o, head)
            scores.append((query * key + query * rq[row] + key * rk[row]).sum() / sqrt(q.shape[-1]))
            values.append(of_v[*here, n, p] + rv[row])
        weights = torch.stack(scores).exp() / torch.stack(scores).exp().sum()
        out[*here, n, o] = weights @ torch.stack(values)
    return _gather(out, v.shape).movedim(-2, axis)


def shift(x: Float[Tensor, "..."], axis: int) -> Float[Tensor, "..."]:
    """Return y[.., i, ..] = x[.., i - 1, ..], and 0 at i = 0."""
    places = [x.select(axis, i - 1) if i else torch.zeros_like(x.select(axis, 0)) for i in range(x.shape[axis])]
    return torch.stack(places, dim=axis)


def _vectors(x: Tensor) -> dict[tuple[int, ...], Tensor]:
    """Return the vectors along the last axis by their position; gradients of a view by index would cost more."""
    return dict(zip(product(*(range(size) for size in x.shape[:-1])), x.flatten(0, -2).unbind(), strict=True))


def _attend(q: Tensor, keys: list[Tensor], values: list[Tensor], like: Tensor, bias: Tensor | None = None) -> Tensor:
    """Attend from one query to lists of keys and values; without keys, return zeros like `like`."""
    if not keys:
        return torch.zeros_like(like)
    scores = torch.stack(keys) @ q / sqrt(len(q))
    if bias is not None:
        scores = scores + bias
    weights = scores.exp() / scores.exp().sum()
    return weights @ torch.stack(values)


def _gather(found: dict[tuple[int, ...], Tensor], shape: tuple[int, ...]) -> Tensor:
    return torch.stack([found[position] for position in product(*(range(size) for size in shape[:-1]))]).view(shape)
