"""Masked attentions over a sequence with sparse patterns."""

from functools import cached_property
from math import prod, sqrt

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from axial_transformers.layers.lines import KeyValueCache, LineAttention
from axial_transformers.ops.attention_call import AttentionCall
from axial_transformers.ops.axial_attention import attend_step
from axial_transformers.ops.backends import attend


def local_attention(
    q: Float[Tensor, "m n l k"],
    k: Float[Tensor, "m n l k"],
    v: Float[Tensor, "m n l w"],
    block: int,
    memory: int,
    window: int | None = None,
) -> Float[Tensor, "m n l w"]:
    """Attend within a block, and to the `memory` positions before it.

    "1D local attention" of the Image Transformer (Parmar et al. 2018, section 3.3); `window` bounds it.
    """
    length = q.shape[-2]
    padding = -length % block
    queries = F.pad(q, (0, 0, 0, padding)).unflatten(-2, (-1, block))
    keys, values = (F.pad(x, (0, 0, memory, padding)).unfold(-2, memory + block, block).mT for x in (k, v))
    position = torch.arange(length + padding, device=q.device).view(-1, block, 1)
    other = position[:, :1] - memory + torch.arange(memory + block, device=q.device)
    visible = (other >= 0) & (other <= position)
    if window is not None:
        visible &= other >= position - window
    scores = (queries / sqrt(q.shape[-1])) @ keys.mT
    weights = torch.softmax(scores.masked_fill(~visible, -torch.inf), dim=-1)
    return (weights.to(values.dtype) @ values).flatten(-3, -2)[..., :length, :]


def causal_attention(
    q: Float[Tensor, "m n l k"], k: Float[Tensor, "m n l k"], v: Float[Tensor, "m n l w"]
) -> Float[Tensor, "m n l w"]:
    """Attend to the position itself and to earlier ones."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return attend(AttentionCall(q, k, v, axis=1, causal=True, full=True)).transpose(1, 2)


class SequenceAttention(LineAttention):
    """Masked self-attention over a sequence; subclasses define the pattern."""

    def __init__(self, dim: int, heads: int):
        super().__init__(dim, heads, axis=-2, causal=True, residual=True)

    def attended(self, i: int) -> list[slice] | list[list[int]]:
        """Return the positions of query i, by group of heads; slices copy no index to the device."""
        raise NotImplementedError

    def attend(
        self, q: Float[Tensor, "b n l k"], k: Float[Tensor, "b n l k"], v: Float[Tensor, "b n l k"]
    ) -> Float[Tensor, "b n l k"]:
        raise NotImplementedError

    def forward(self, x: Float[Tensor, "b l d"]) -> Float[Tensor, "b l d"]:  # type: ignore[override]
        q, k, v = (part.transpose(1, 2) for part in self._project(x))
        return self.out(self.attend(q, k, v).transpose(1, 2).flatten(-2))

    def step(self, x: Float[Tensor, "b d"], i: int, cache: KeyValueCache) -> Float[Tensor, "b d"]:  # type: ignore[override]
        q, k, v = (part.flatten(0, -3) for part in self._project(x))
        cache.keys[:, :, i], cache.values[:, :, i] = k, v
        groups = self.attended(i)
        shares = zip(groups, *(t.chunk(len(groups), dim=1) for t in (q, *cache)))
        return self.out(
            torch.cat([attend_step(q, k[:, :, at], v[:, :, at]) for at, q, k, v in shares], dim=1).flatten(1)
        )


class LocalAttention(SequenceAttention):
    """1D local attention of the Image Transformer (Parmar et al. 2018, section 3.3)."""

    def __init__(self, dim: int, heads: int, block: int, memory: int):
        super().__init__(dim, heads)
        self.block, self.memory = block, memory

    def attended(self, i: int) -> list[slice]:
        first = i // self.block * self.block - self.memory
        return [slice(max(0, first), i + 1)]

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return local_attention(q, k, v, self.block, self.memory)


class StridedAttention(SequenceAttention):
    """Strided Sparse Transformer (Child et al. 2019, section 4.2, A(1) and A(2)).

    Half of the heads attend to the last `stride` positions, half to every stride-th one before.
    """

    def __init__(self, dim: int, heads: int, stride: int):
        super().__init__(dim, heads)
        if heads % 2:
            raise ValueError(f"model.heads must be even, half for rows and half for columns, not {heads}")
        self.stride = stride

    def attended(self, i: int) -> list[slice]:
        return [slice(max(0, i - self.stride), i + 1), slice(i % self.stride, i + 1, self.stride)]

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        (q1, q2), (k1, k2), (v1, v2) = (x.chunk(2, dim=1) for x in (q, k, v))
        row = local_attention(q1, k1, v1, self.stride, self.stride, window=self.stride)
        return torch.cat([row, self._columns(q2, k2, v2)], dim=1)

    def _columns(self, *qkv: Tensor) -> Tensor:
        length = qkv[0].shape[-2]
        padded = (F.pad(x, (0, 0, 0, -length % self.stride)) for x in qkv)  # behind all that is attended to
        q, k, v = (x.unflatten(-2, (-1, self.stride)).movedim(-2, 1).flatten(0, 1) for x in padded)
        out = causal_attention(q, k, v).unflatten(0, (-1, self.stride)).movedim(1, -2)
        return out.flatten(-3, -2)[..., :length, :]


class BlockAttention(SequenceAttention):
    """Attention within blocks of a grid (Weissenborn et al. 2019, "Scaling autoregressive video models")."""

    def __init__(self, dim: int, heads: int, grid: tuple[int, ...], block: tuple[int, ...]):
        super().__init__(dim, heads)
        if len(block) != len(grid) or any(size % part for size, part in zip(grid, block)):
            raise ValueError(f"blocks {block} do not tile the grid {grid}: give a divisor of each size")
        self.grid, self.block = grid, block

    def attended(self, i: int) -> list[list[int]]:
        return [[position for position in self._block_of[i] if position <= i]]

    @cached_property
    def _block_of(self) -> dict[int, list[int]]:
        pairs = [size for pair in zip(self._blocks, self.block) for size in pair]
        axes = np.arange(prod(self.grid)).reshape(pairs)
        blocks = axes.transpose(*range(0, len(pairs), 2), *range(1, len(pairs), 2)).reshape(-1, prod(self.block))
        return {i: positions for positions in blocks.tolist() for i in positions}

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        blocks = causal_attention(self._split(q), self._split(k), self._split(v))
        return self._join(blocks, len(q))

    def _split(self, x: Tensor) -> Tensor:
        axes = len(self.grid)
        x = x.unflatten(2, [size for pair in zip(self._blocks, self.block) for size in pair])
        blocks, inside = range(2, 2 + 2 * axes, 2), range(3, 3 + 2 * axes, 2)
        return x.permute(0, *blocks, 1, *inside, -1).flatten(-1 - axes, -2).flatten(0, axes)

    def _join(self, x: Tensor, batch: int) -> Tensor:
        axes = len(self.grid)
        x = x.unflatten(-2, self.block).unflatten(0, (batch, *self._blocks))
        pairs = [dim for axis in range(axes) for dim in (1 + axis, 2 + axes + axis)]
        return x.permute(0, 1 + axes, *pairs, -1).flatten(2, -2)

    @property
    def _blocks(self) -> list[int]:
        return [size // part for size, part in zip(self.grid, self.block)]
