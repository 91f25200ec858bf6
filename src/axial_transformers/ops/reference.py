"""Slow reference implementations of the operations, for tests."""

from itertools import product
from math import sqrt

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def axial_attention(  # noqa: PLR0913
    q: Float[Tensor, "b *a n k"],
    k: Float[Tensor, "b *a h k"],
    v: Float[Tensor, "b *a h w"],
    axis: int,
    causal: bool = False,
    key_mask: Bool[Tensor, " b *a"] | None = None,
    attn_bias: Float[Tensor, "..."] | None = None,
    *,
    span: int | None = None,
    dilation: int = 1,
) -> Float[Tensor, "b *a n w"]:
    """Return out[o] = sum_p softmax_p(q[o] . k[p] / sqrt(K) + bias[o, p]) v[p]."""
    q, k, v = q.movedim(axis, -2), k.movedim(axis, -2), v.movedim(axis, -2)  # heads are one more axis
    mask = (
        torch.ones(q.shape[:-3] + q.shape[-2:-1], dtype=torch.bool) if key_mask is None else key_mask.movedim(axis, -1)
    )
    length, radius, out = q.shape[-2], q.shape[-2] * dilation if span is None else span // 2, {}
    for line in product(*(range(size) for size in q.shape[:-2])):
        keys = (*line[:-1], line[-1] * k.shape[-3] // q.shape[-3])
        for o in range(length):
            offsets = {p: (p - o) // dilation for p in range(length) if (p - o) % dilation == 0}
            seen = [p for p in offsets if abs(offsets[p]) <= radius and mask[line[:-1]][p] and (p <= o or not causal)]
            columns = seen if span is None else [radius + offsets[p] for p in seen]
            bias = None if attn_bias is None else [attn_bias[line][o, column] for column in columns]
            out[*line, o] = _attend(
                q[line][o], [k[keys][p] for p in seen], [v[keys][p] for p in seen], v[keys][o], bias
            )
    return _gather(out, (*q.shape[:-1], v.shape[-1])).movedim(-2, axis)


def tied_axial_attention(
    q: Float[Tensor, "b r l n k"],
    k: Float[Tensor, "b r l n k"],
    v: Float[Tensor, "b r l n w"],
    key_mask: Bool[Tensor, "b r l"],
) -> Float[Tensor, "b r l n w"]:
    """Return out[r, o] = sum_p softmax_p(sum_s q[s, o] . k[s, p] / sqrt(R K)) v[r, p]; R counts present rows."""
    out: dict[tuple[int, ...], Tensor] = {}
    for b, r, o, n in product(*(range(size) for size in q.shape[:-1])):
        there, out[b, r, o, n] = key_mask[b], torch.zeros_like(v[b, r, o, n])
        rows, exps = int(there.any(dim=1).sum()), {}
        for p in range(k.shape[2]):
            if there[:, p].any():
                both = (there[:, o] & there[:, p])[:, None]
                exps[p] = ((q[b, :, o, n] * k[b, :, p, n] * both).sum() / sqrt(rows * q.shape[-1])).exp()
        for p in exps:
            out[b, r, o, n] = out[b, r, o, n] + exps[p] / sum(exps.values()) * v[b, r, p, n] * there[r, p]
    return _gather(out, v.shape)


def rotary(
    x: Float[Tensor, "b *a n k"], coordinates: Float[Tensor, " b *a"], base: float = 10000.0
) -> Float[Tensor, "b *a n k"]:
    """Multiply i and i + K/2, a complex number, by exp(1j * coordinate * base^(-2i/K))."""
    out = {}
    half = x.shape[-1] // 2
    for *site, n in product(*(range(size) for size in x.shape[:-1])):
        pairs = torch.complex(x[*site, n][:half], x[*site, n][half:])
        angles = torch.stack([coordinates[*site] * base ** (-i / half) for i in range(half)])
        turned = pairs * torch.polar(torch.ones_like(angles), angles)
        out[*site, n] = torch.cat([turned.real, turned.imag])
    return _gather(out, x.shape)


def full_attention(
    q: Float[Tensor, "b *a n k"],
    k: Float[Tensor, "b *e n k"],
    v: Float[Tensor, "b *e n w"],
    key_mask: Bool[Tensor, " b *e"] | None = None,
) -> Float[Tensor, "b *a n w"]:
    """Return out[o] = sum_p softmax_p(q[o] . k[p] / sqrt(K)) v[p]."""
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
    """Return equation 4 of Axial-DeepLab; table row R + (p - o) is of offset p - o."""
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
    """Return y[.., i, ..] = x[.., i - 1, ..], and 0 at i = 0."""
    y = torch.zeros_like(x)
    for i in range(1, x.shape[axis]):
        y.select(axis, i).copy_(x.select(axis, i - 1))
    return y


def _attend(
    q: Tensor, keys: list[Tensor], values: list[Tensor], like: Tensor, bias: list[Tensor] | None = None
) -> Tensor:
    if not keys:
        return torch.zeros_like(like)
    scores = torch.stack([(q * key).sum() / sqrt(len(q)) for key in keys])
    if bias is not None:
        scores = scores + torch.stack(bias)
    weights = scores.exp() / scores.exp().sum()
    return torch.stack([weight * value for weight, value in zip(weights, values)]).sum(0)


def _gather(sites: dict[tuple[int, ...], Tensor], shape: tuple[int, ...]) -> Tensor:
    return torch.stack([sites[site] for site in product(*(range(size) for size in shape[:-1]))]).view(shape)
