"""Masked attentions over a sequence that see a part of what comes before: the layers of the peers.

Each is an `AxisAttention` over the last axis of [B, L, D]: one-step decoding over a cache included. `seen(i)` says
which places the query at place i attends to; it is all that a step needs, and what tests hold `attend` against.
"""

from functools import cached_property
from math import prod

import torch
from jaxtyping import Float, Int
from torch import Tensor

from axial_transformers.baselines.local_attention import local_attention
from axial_transformers.layers.attention import AxisAttention, KeyValueCache
from axial_transformers.ops.axial_attention import attend_step
from axial_transformers.ops.torch_attention import attend


class SequenceAttention(AxisAttention):
    """Masked self-attention over a sequence; subclasses say which places of the past are seen, and compute it fast."""

    def __init__(self, dim: int, heads: int):
        super().__init__(dim, heads, axis=-2, masked=True)

    def seen(self, i: int) -> list[Int[Tensor, " s"]]:
        """The places 0..i that the query at place i attends to: one list for each head, or one for all."""
        raise NotImplementedError

    def attend(
        self, q: Float[Tensor, "b n l k"], k: Float[Tensor, "b n l k"], v: Float[Tensor, "b n l k"]
    ) -> Float[Tensor, "b n l k"]:
        """All places at once, a head at a time."""
        raise NotImplementedError

    def forward(self, x: Float[Tensor, "b l d"]) -> Float[Tensor, "b l d"]:  # type: ignore[override]
        """[B, L, D] -> [B, L, D]."""
        q, k, v = (part.transpose(1, 2) for part in self._project(x))
        return self.out(self.attend(q, k, v).transpose(1, 2).flatten(-2))

    def step(self, x: Float[Tensor, "b d"], i: int, cache: KeyValueCache) -> Float[Tensor, "b d"]:
        """The output at place `i`, over the keys and values of the places that it sees."""
        q, k, v = (part.flatten(0, -3) for part in self._project(x))
        cache.keys[:, :, i], cache.values[:, :, i] = k, v
        groups = self.seen(i)
        shares = zip(groups, *(t.chunk(len(groups), dim=1) for t in (q, *cache)))
        return self.out(
            torch.cat([attend_step(q, k[:, :, at], v[:, :, at]) for at, q, k, v in shares], dim=1).flatten(1)
        )


class LocalAttention(SequenceAttention):
    """Blocks of queries over themselves and the memory before them: Image Transformer (Parmar et al. 2018), 1D local.

    Args:
        dim, heads: width D and number of heads.
        block: places of a block of queries, l_q in the paper.
        memory: places before the block that it also sees, l_m.
    """

    def __init__(self, dim: int, heads: int, block: int, memory: int):
        super().__init__(dim, heads)
        self.block, self.memory = block, memory

    def seen(self, i: int) -> list[Int[Tensor, " s"]]:
        first = i // self.block * self.block - self.memory
        return [torch.arange(max(0, first), i + 1)]

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return local_attention(q, k, v, self.block, self.memory)


class StridedAttention(SequenceAttention):
    """Half of the heads see the last `stride` places, half every stride-th place before: strided Sparse Transformer
    (Child et al. 2019, section 4.2, A(1) and A(2)), through standard operations.

    Args:
        dim, heads: width D and number of heads, an even one.
        stride: the length of a row.
    """

    def __init__(self, dim: int, heads: int, stride: int):
        super().__init__(dim, heads)
        if heads % 2:
            raise ValueError(f"heads must be even, half for rows and half for columns, not {heads}")
        self.stride = stride

    def seen(self, i: int) -> list[Int[Tensor, " s"]]:
        return [torch.arange(max(0, i - self.stride), i + 1), torch.arange(i % self.stride, i + 1, self.stride)]

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        (q1, q2), (k1, k2), (v1, v2) = (x.chunk(2, dim=1) for x in (q, k, v))
        row = local_attention(q1, k1, v1, self.stride, self.stride, window=self.stride)
        return torch.cat([row, self._columns(q2, k2, v2)], dim=1)

    def _columns(self, *qkv: Tensor) -> Tensor:
        length = qkv[0].shape[-2]
        padded = (torch.nn.functional.pad(x, (0, 0, 0, -length % self.stride)) for x in qkv)  # behind all that is seen
        q, k, v = (x.unflatten(-2, (-1, self.stride)).movedim(-2, 1).flatten(0, 1) for x in padded)
        out = attend(q, k, v, causal=True).unflatten(0, (-1, self.stride)).movedim(1, -2)
        return out.flatten(-3, -2)[..., :length, :]


class BlockAttention(SequenceAttention):
    """Attention within blocks of a grid that lies in raster order in the sequence: block-local self-attention of
    "Scaling autoregressive video models" (Weissenborn et al. 2019, section 3.1).

    Args:
        dim, heads: width D and number of heads.
        grid: the grid's sizes, outermost axis first.
        block: a block's sizes, divisors of the grid's.
    """

    def __init__(self, dim: int, heads: int, grid: tuple[int, ...], block: tuple[int, ...]):
        super().__init__(dim, heads)
        if len(block) != len(grid) or any(size % part for size, part in zip(grid, block)):
            raise ValueError(f"blocks {block} do not tile the grid {grid}: give a divisor of each size")
        self.grid, self.block = grid, block

    def seen(self, i: int) -> list[Int[Tensor, " s"]]:
        places = self._block_of[i]
        return [places[places <= i]]

    @cached_property
    def _block_of(self) -> dict[int, Tensor]:
        """The places of the block that a place is in."""
        blocks = self._split(torch.arange(prod(self.grid), device="cpu").view(1, 1, -1, 1)).flatten(1)
        return {i: places for places in blocks for i in places.tolist()}

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        blocks = attend(self._split(q), self._split(k), self._split(v), causal=True)
        return self._join(blocks, len(q))

    def _split(self, x: Tensor) -> Tensor:
        """[B, N, L, K] -> [B * blocks, N, sites of a block, K]; raster order within a block is that of the sequence."""
        axes = len(self.grid)
        x = x.unflatten(2, [size for pair in zip(self._blocks, self.block) for size in pair])
        which, where = range(2, 2 + 2 * axes, 2), range(3, 3 + 2 * axes, 2)
        return x.permute(0, *which, 1, *where, -1).flatten(-1 - axes, -2).flatten(0, axes)

    def _join(self, x: Tensor, batch: int) -> Tensor:
        axes = len(self.grid)
        x = x.unflatten(-2, self.block).unflatten(0, (batch, *self._blocks))
        pairs = [dim for axis in range(axes) for dim in (1 + axis, 2 + axes + axis)]
        return x.permute(0, 1 + axes, *pairs, -1).flatten(2, -2)

    @property
    def _blocks(self) -> list[int]:
        return [size // part for size, part in zip(self.grid, self.block)]
