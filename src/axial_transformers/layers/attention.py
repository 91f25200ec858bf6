"""Multi-head attention along one axis, whole tensors at a time or, where masked, one slab at a time over a cache."""

from math import prod
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from axial_transformers.layers.initialisation import Dense
from axial_transformers.ops.attention import attend_step, axial_attention


class KeyValueCache(NamedTuple):
    """Keys and values of the slabs decoded so far: each [lines, heads, length, head_dim], one line a site of a slab."""

    keys: Tensor
    values: Tensor


class AxisAttention(nn.Module):
    """Multi-head self-attention along one axis: [B, *A, D] -> [B, *A, D].

    Args:
        dim: width D.
        heads: number of heads N, a divisor of D; scores are scaled by 1/sqrt(D / N).
        axis: dimension of the input attended along, counted from the end: -2 is the innermost axis. So counted, a layer
            serves a whole tensor and one slab of it alike.
        masked: a site sees itself and what comes before it along the axis.
    """

    def __init__(self, dim: int, heads: int, axis: int, masked: bool = False):
        super().__init__()
        self.heads, self.axis, self.masked = heads, axis, masked
        self.qkv = Dense(dim, 3 * dim)
        self.out = Dense(dim, dim, residual=True)

    def forward(self, x: Float[Tensor, "b *a d"]) -> Float[Tensor, "b *a d"]:
        """[B, *A, D] -> [B, *A, D]."""
        q, k, v = self._project(x)
        return self.out(axial_attention(q, k, v, self.axis - 1, causal=self.masked).flatten(-2))

    def start(self, batch: int, slab: tuple[int, ...], length: int) -> KeyValueCache:
        """An empty cache for `length` steps along a masked axis, each a slab of the given shape."""
        assert self.masked, "only what looks back can be computed step by step"
        size = (batch * prod(slab), self.heads, length, self.out.in_features // self.heads)
        return KeyValueCache(self.out.weight.new_empty(size), self.out.weight.new_empty(size))

    def step(self, x: Float[Tensor, "b *s d"], i: int, cache: KeyValueCache) -> Float[Tensor, "b *s d"]:
        """The output at place `i` of the axis, for the slab x [B, *S, D] there; its key and value join the cache."""
        q, k, v = (part.flatten(0, -3) for part in self._project(x))
        cache.keys[:, :, i], cache.values[:, :, i] = k, v
        out = attend_step(q, cache.keys[:, :, : i + 1], cache.values[:, :, : i + 1])
        return self.out(out.reshape(x.shape))

    def _project(self, x: Tensor) -> tuple[Tensor, ...]:
        return self.qkv(x).unflatten(-1, (3, self.heads, -1)).unbind(-3)

    def extra_repr(self) -> str:  # noqa: D102
        return f"heads={self.heads}, axis={self.axis}, masked={self.masked}"
