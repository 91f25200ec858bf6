"""Slow and obvious twins of the operations: one site at a time, as the equations say. The oracles of every fast path."""

from itertools import product
from math import sqrt

import torch
from jaxtyping import Float
from torch import Tensor


def axial_attention(
    q: Float[Tensor, "b *a n k"],
    k: Float[Tensor, "b *a n k"],
    v: Float[Tensor, "b *a n w"],
    axis: int,
    causal: bool = False,
) -> Float[Tensor, "b *a n w"]:
    """out[site] = sum over s of softmax_s(q[site] . k[s] / sqrt(K)) v[s], s on the site's line along `axis` (<= site if causal)."""
    q, k, v = q.movedim(axis, -2), k.movedim(axis, -2), v.movedim(axis, -2)  # heads are one more axis to walk
    out = torch.zeros(v.shape, dtype=v.dtype, device=v.device)
    for line in product(*(range(size) for size in q.shape[:-2])):
        for t in range(q.shape[-2]):
            seen = t + 1 if causal else k.shape[-2]
            scores = torch.stack([(q[line][t] * k[line][s]).sum() for s in range(seen)]) / sqrt(q.shape[-1])
            weights = scores.exp() / scores.exp().sum()
            out[line][t] = sum(weights[s] * v[line][s] for s in range(seen))
    return out.movedim(-2, axis)


def shift(x: Float[Tensor, "..."], axis: int) -> Float[Tensor, "..."]:
    """y[.., i, ..] = x[.., i - 1, ..], and 0 at i = 0."""
    y = torch.zeros_like(x)
    for i in range(1, x.shape[axis]):
        y.select(axis, i).copy_(x.select(axis, i - 1))
    return y
