"""Masked attentions over a sequence with sparse patterns: the layers of the baselines.

Each is a `LineAttention` over the last axis of [B, L, D], with steps over a cache. `attended(i)` lists the positions
that the query at position i attends to: a step uses it, and tests compare `attend` with it.
"""

from functools import cached_property
from math import prod, sqrt

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from axial_transformers.layers.lines import KeyValueCache, LineAttention
from axial_transformers.ops.axial_attention import attend_step
from axial_transformers.ops.torch_attention import attend


def local_attention(
    q: Float[Tensor, "m n l k"],
    k: Float[Tensor, "m n l k"],
    v: Float[Tensor, "m n l w"],
    block: int,
    memory: int,
    window: int | None = None,
) -> Float[Tensor, "m n l w"]:
    """Attention to the position itself, to earlier ones of its block, and to the `memory` ones before the block.

    "1D local attention" of the Image Transformer (Parmar et al. 2018, section 3.3): the queries of a block share one
    memory, so that everything is a dense matrix product.

    Args:
        q, k, v: [lines, heads, L, width].
        block: positions in a block of queries.
        memory: positions before a block that its queries attend to.
        window: if given, a position attends to no more than the `window` positions before itself.

    Returns:
        [lines, heads, L, value width]. Operations and memory grow as L * (block + memory).
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


class SequenceAttention(LineAttention):
    """Masked self-attention over a sequence; subclasses define its pattern, and compute all positions at once."""

    def __init__(self, dim: int, heads: int):
        super().__init__(dim, heads, axis=-2, causal=True, residual=True)

    def attended(self, i: int) -> list[slice] | list[list[int]]:
        """The positions among 0..i that query i attends to, as an index: one for each of equal groups of heads.

        Slices, where positions are evenly spaced: no index is copied to the device at each site.
        """
        raise NotImplementedError

    def attend(
        self, q: Float[Tensor, "b n l k"], k: Float[Tensor, "b n l k"], v: Float[Tensor, "b n l k"]
    ) -> Float[Tensor, "b n l k"]:
        """The attention of all positions at once."""
        raise NotImplementedError

    def products(self, length: int) -> float:
        """Pairs of a query and a key that `attend` multiplies, masked ones included: a mean over the heads."""
        raise NotImplementedError

    def pairs(self, length: int) -> float:
        """Pairs of a query and a key that the pattern has: a mean over the heads."""
        groups = [self.attended(i) for i in range(length)]
        sizes = [_size(positions, length) for group in groups for positions in group]
        return sum(sizes) / len(groups[0])

    def forward(self, x: Float[Tensor, "b l d"]) -> Float[Tensor, "b l d"]:  # type: ignore[override]
        """[B, L, D] -> [B, L, D]."""
        q, k, v = (part.transpose(1, 2) for part in self._project(x))
        return self.out(self.attend(q, k, v).transpose(1, 2).flatten(-2))

    def step(self, x: Float[Tensor, "b d"], i: int, cache: KeyValueCache) -> Float[Tensor, "b d"]:
        """The output at position `i`, from the cached keys and values of the positions it attends to."""
        q, k, v = (part.flatten(0, -3) for part in self._project(x))
        cache.keys[:, :, i], cache.values[:, :, i] = k, v
        groups = self.attended(i)
        shares = zip(groups, *(t.chunk(len(groups), dim=1) for t in (q, *cache)))
        return self.out(
            torch.cat([attend_step(q, k[:, :, at], v[:, :, at]) for at, q, k, v in shares], dim=1).flatten(1)
        )


class LocalAttention(SequenceAttention):
    """Attention of a block of queries to itself and the memory before it: "1D local attention" of the Image Transformer
    (Parmar et al. 2018, section 3.3).

    Args:
        dim, heads: width D and number of heads.
        block: positions in a block of queries, l_q in the paper.
        memory: positions before the block that it attends to, l_m.
    """

    def __init__(self, dim: int, heads: int, block: int, memory: int):
        super().__init__(dim, heads)
        self.block, self.memory = block, memory

    def attended(self, i: int) -> list[slice]:
        first = i // self.block * self.block - self.memory
        return [slice(max(0, first), i + 1)]

    def products(self, length: int) -> float:
        return (length + -length % self.block) * (self.block + self.memory)

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return local_attention(q, k, v, self.block, self.memory)


class StridedAttention(SequenceAttention):
    """Attention of half of the heads to the last `stride` positions, of half to every stride-th position before:
    strided Sparse Transformer (Child et al. 2019, section 4.2, A(1) and A(2)), in standard operations.

    Args:
        dim, heads: width D and number of heads, an even one.
        stride: the length of a row.
    """

    def __init__(self, dim: int, heads: int, stride: int):
        super().__init__(dim, heads)
        if heads % 2:
            raise ValueError(f"heads must be even, half for rows and half for columns, not {heads}")
        self.stride = stride

    def attended(self, i: int) -> list[slice]:
        return [slice(max(0, i - self.stride), i + 1), slice(i % self.stride, i + 1, self.stride)]

    def products(self, length: int) -> float:
        padded = length + -length % self.stride
        return padded * (2 * self.stride + padded // self.stride) / 2

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        (q1, q2), (k1, k2), (v1, v2) = (x.chunk(2, dim=1) for x in (q, k, v))
        row = local_attention(q1, k1, v1, self.stride, self.stride, window=self.stride)
        return torch.cat([row, self._columns(q2, k2, v2)], dim=1)

    def _columns(self, *qkv: Tensor) -> Tensor:
        length = qkv[0].shape[-2]
        padded = (F.pad(x, (0, 0, 0, -length % self.stride)) for x in qkv)  # after all that is attended to
        q, k, v = (x.unflatten(-2, (-1, self.stride)).movedim(-2, 1).flatten(0, 1) for x in padded)
        out = attend(q, k, v, causal=True).unflatten(0, (-1, self.stride)).movedim(1, -2)
        return out.flatten(-3, -2)[..., :length, :]


class BlockAttention(SequenceAttention):
    """Attention within blocks of a grid that is flattened in raster order: block-local self-attention of
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

    def attended(self, i: int) -> list[list[int]]:
        return [[position for position in self._block_of[i] if position <= i]]

    def products(self, length: int) -> float:
        return length * prod(self.block)

    @cached_property
    def _block_of(self) -> dict[int, list[int]]:
        """The positions of the block that each position is in."""
        pairs = [size for pair in zip(self._blocks, self.block) for size in pair]
        axes = np.arange(prod(self.grid)).reshape(pairs)
        blocks = axes.transpose(*range(0, len(pairs), 2), *range(1, len(pairs), 2)).reshape(-1, prod(self.block))
        return {i: positions for positions in blocks.tolist() for i in positions}

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        blocks = attend(self._split(q), self._split(k), self._split(v), causal=True)
        return self._join(blocks, len(q))

    def _split(self, x: Tensor) -> Tensor:
        """[B, N, L, K] -> [B * blocks, N, sites of a block, K]; raster order within a block is that of the sequence."""
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


def _size(positions: slice | list[int], length: int) -> int:
    """Number of positions that an index takes of so many."""
    return len(range(length)[positions]) if isinstance(positions, slice) else len(positions)
