"""Slow implementations of the operations, site by site as in the equations, for tests of the fast ones."""

from itertools import product
from math import sqrt

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def axial_attention(
    q: Float[Tensor, "b *a n k"],
    k: Float[Tensor, "b *a n k"],
    v: Float[Tensor, "b *a n w"],
    axis: int,
    causal: bool = False,
    key_mask: Bool[Tensor, " b *a"] | None = None,
) -> Float[Tensor, "b *a n w"]:
    """out[o] = sum_p softmax_p(q[o] . k[p] / sqrt(K)) v[p] over p on the line of o along `axis` (p <= o if causal)."""
    q, k, v = q.movedim(axis, -2), k.movedim(axis, -2), v.movedim(axis, -2)  # heads are one more axis
    mask = (
        torch.ones(q.shape[:-3] + q.shape[-2:-1], dtype=torch.bool) if key_mask is None else key_mask.movedim(axis, -1)
    )
    out = {}
    for line in product(*(range(size) for size in q.shape[:-2])):
        for o in range(q.shape[-2]):
            seen = [p for p in range(k.shape[-2]) if mask[line[:-1]][p] and (p <= o or not causal)]
            out[*line, o] = _attend(q[line][o], [k[line][p] for p in seen], [v[line][p] for p in seen], v[line][o])
    return _gather(out, v.shape).movedim(-2, axis)


def full_attention(
    q: Float[Tensor, "b *a n k"],
    k: Float[Tensor, "b *e n k"],
    v: Float[Tensor, "b *e n w"],
    key_mask: Bool[Tensor, " b *e"] | None = None,
) -> Float[Tensor, "b *a n w"]:
    """out[o] = sum_p softmax_p(q[o] . k[p] / sqrt(K)) v[p] over all sites p."""
    out = {}
    for b, *site, n in product(*(range(size) for size in q.shape[:-1])):
        keys = product(*(range(size) for size in k.shape[1:-2]))
        seen = [p for p in keys if key_mask is None or key_mask[b, *p]]
        out[b, *site, n] = _attend(
            q[b, *site, n], [k[b, *p, n] for p in seen], [v[b, *p, n] for p in seen], v.flatten(1, -3)[b, 0, n]
        )
    return _gather(out, (*q.shape[:-1], v.shape[-1]))


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
    """Equation 4 of Axial-DeepLab with scores over sqrt(K); row R + (p - o) of a table belongs to the offset p - o."""
    q, k, v = q.movedim(axis, -2), k.movedim(axis, -2), v.movedim(axis, -2)
    radius, out = len(query_table) // 2, {}
    for *line, n in product(*(range(size) for size in q.shape[:-2])):
        here = (*line, n)
        head = n if query_table.shape[1] > 1 else 0
        for o in range(q.shape[-2]):
            span = [p for p in range(k.shape[-2]) if abs(p - o) <= radius and (p <= o or not causal)]
            scores = []
            for p in span:
                rq, rk = query_table[radius + p - o, head], key_table[radius + p - o, head]
                scores.append((q[here][o] * k[here][p] + q[here][o] * rq + k[here][p] * rk).sum() / sqrt(q.shape[-1]))
            weights = torch.stack(scores).exp() / torch.stack(scores).exp().sum()
            out[*here, o] = torch.stack(
                [w * (v[here][p] + value_table[radius + p - o, head]) for w, p in zip(weights, span)]
            ).sum(0)
    return _gather(out, v.shape).movedim(-2, axis)


def shift(x: Float[Tensor, "..."], axis: int) -> Float[Tensor, "..."]:
    """y[.., i, ..] = x[.., i - 1, ..], and 0 at i = 0."""
    y = torch.zeros_like(x)
    for i in range(1, x.shape[axis]):
        y.select(axis, i).copy_(x.select(axis, i - 1))
    return y


def _attend(q: Tensor, keys: list[Tensor], values: list[Tensor], like: Tensor) -> Tensor:
    """Attention of one query to lists of keys and values; zeros, as `like`, where they are empty."""
    if not keys:
        return torch.zeros_like(like)
    scores = torch.stack([(q * key).sum() / sqrt(len(q)) for key in keys])
    weights = scores.exp() / scores.exp().sum()
    return torch.stack([weight * value for weight, value in zip(weights, values)]).sum(0)


def _gather(sites: dict[tuple[int, ...], Tensor], shape: tuple[int, ...]) -> Tensor:
    return torch.stack([sites[site] for site in product(*(range(size) for size in shape[:-1]))]).view(shape)
