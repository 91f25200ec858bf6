"""Attention, feedforward and transformer block (Ho et al. 2019, section 3.1)."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Generic, TypeVar, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from axial_transformers.layers.initialisation import Dense, LayerNorm
from axial_transformers.layers.lines import Index, KeyValueCache, LineAttention
from axial_transformers.ops.elementwise import add_dropped, dropout, quick_gelu, repeated_dropout

Part = TypeVar("Part", bound=nn.Module)


class ModuleListOf(nn.ModuleList, Generic[Part]):
    """A ModuleList of one static type."""

    def __init__(self, parts: Iterable[Part]):
        super().__init__(parts)

    def __iter__(self) -> Iterator[Part]:
        return cast(Iterator[Part], super().__iter__())


class Dropout(nn.Module):
    """Dropout by `ops.elementwise`."""

    def __init__(self, p: float):
        super().__init__()
        self.p = p

    def forward(self, x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        return dropout(x, self.p) if self.training and self.p else x

    def add_to(self, x: Float[Tensor, "*s"], y: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
        return add_dropped(x, y, self.p) if self.training and self.p else x + y

    def extra_repr(self) -> str:
        return f"p={self.p}"


class Branch(Dropout):
    """The end of a residual branch, as in timm: x + DropPath(gamma * Dropout(y)).

    `drop_path` is stochastic depth (Huang et al. 2016), `gamma` [D] a LayerScale (Touvron et al. 2021).
    """

    gamma: nn.Parameter | None

    def __init__(
        self,
        p: float,
        drop_path: float = 0.0,
        gamma: Float[Tensor, " d"] | None = None,
    ):
        super().__init__(p)
        if not 0 <= drop_path < 1:
            raise ValueError(f"drop_path must be a probability below 1, not {drop_path}")
        self.drop_path = drop_path
        self.register_parameter("gamma", None if gamma is None else nn.Parameter(gamma))

    def add_to(self, x: Float[Tensor, "b *a d"], y: Float[Tensor, "b *a d"]) -> Float[Tensor, "b *a d"]:
        dropped = self.training and self.drop_path > 0
        if self.gamma is None and not dropped:
            return super().add_to(x, y)
        y = self(y) if self.gamma is None else self(y) * self.gamma
        if dropped:
            kept = y.new_empty(y.shape[0], *(1,) * (y.ndim - 1)).bernoulli_(1 - self.drop_path)
            y = y * kept.div_(1 - self.drop_path)
        return x + y


class AttentionBlock(nn.Module):
    """x + Dropout(Attention(LayerNorm(x)))."""

    def __init__(self, attention: LineAttention, dropout: float):
        super().__init__()
        self.norm = LayerNorm(attention.dim)
        self.attention = attention
        self.dropout = Dropout(dropout)

    def forward(self, x: Float[Tensor, "b *a d"]) -> Float[Tensor, "b *a d"]:
        return self.dropout.add_to(x, self.attention(self.norm(x)))

    def step(
        self,
        x: Float[Tensor, "b *s d"],
        i: Index,
        cache: KeyValueCache,
    ) -> Float[Tensor, "b *s d"]:
        return x + self.dropout(self.attention.step(self.norm(x), i, cache))


class FeedforwardBlock(nn.Module):
    """x + Dropout(W2 quick_gelu(W1 LayerNorm(x)))."""

    def __init__(
        self,
        dim: int,
        hidden: int,
        end: Dropout,
        residual: bool = True,
    ):
        super().__init__()
        self.norm = LayerNorm(dim)
        self.expand = Dense(dim, hidden)
        self.contract = Dense(hidden, dim, residual=residual)
        self.dropout = end

    def forward(self, x: Float[Tensor, "*a d"]) -> Float[Tensor, "*a d"]:
        return self.dropout.add_to(x, self.contract(quick_gelu(self.expand(self.norm(x)))))


class TransformerBlock(nn.Module):
    """An attention block, then a feedforward block: one layer in the paper's count."""

    def __init__(
        self,
        attention: LineAttention,
        hidden: int,
        dropout: float = 0.0,
    ):
        super().__init__()
        self.attention = AttentionBlock(attention, dropout)
        self.feedforward = FeedforwardBlock(attention.dim, hidden, Dropout(dropout))

    @property
    def causal(self) -> bool:
        return self.attention.attention.causal

    def forward(self, x: Float[Tensor, "b *a d"]) -> Float[Tensor, "b *a d"]:
        return self.feedforward(self.attention(x))

    def start(
        self,
        batch: int,
        slab: tuple[int, ...],
        length: int,
    ) -> KeyValueCache:
        return self.attention.attention.start(batch, slab, length)

    def step(
        self,
        x: Float[Tensor, "b *s d"],
        i: Index,
        cache: KeyValueCache,
    ) -> Float[Tensor, "b *s d"]:
        return self.feedforward(self.attention.step(x, i, cache))


def compile_blocks(module: nn.Module) -> None:
    """Compile each transformer block in place; blocks of equal sizes share one graph.

    Do so before `checkpoint_blocks`; call the module within `torch_private.whole_graphs`.
    """
    for block in _transformer_blocks(module):
        block.forward = torch.compile(block.forward, dynamic=False)  # type: ignore[method-assign]


def checkpoint_blocks(module: nn.Module) -> None:
    """Make each transformer block keep its input only, and recompute the rest."""
    for block in _transformer_blocks(module):
        block.forward = partial(  # type: ignore[method-assign]
            checkpoint, block.forward, use_reentrant=False, context_fn=repeated_dropout
        )


@contextmanager
def blocks_restored(module: nn.Module) -> Iterator[None]:
    """Undo `compile_blocks` and `checkpoint_blocks` at the end."""
    before = {block: vars(block).get("forward") for block in _transformer_blocks(module)}
    try:
        yield
    finally:
        for block, forward in before.items():
            vars(block).pop("forward", None)
            if forward:
                block.forward = forward  # type: ignore[method-assign]


def _transformer_blocks(module: nn.Module) -> Iterator[TransformerBlock]:
    return (child for child in module.modules() if isinstance(child, TransformerBlock))


def block_matrices(module: nn.Module) -> dict[Tensor, int]:
    """Return the matrices inside transformer blocks: 3 for queries, keys and values, else 1."""
    counts: dict[Tensor, int] = {}
    for block in _transformer_blocks(module):
        attention = block.attention.attention
        for child in block.modules():
            if isinstance(child, nn.Linear):
                counts[child.weight] = 1
        if len(set(attention.widths)) == 1:
            counts[attention.qkv.weight] = 3
    return counts


@contextmanager
def without_dropout(module: nn.Module) -> Iterator[None]:
    """Enter evaluation mode, then restore the former mode of each module."""
    with modes_kept(module):
        module.eval()
        yield


@contextmanager
def modes_kept(module: nn.Module) -> Iterator[None]:
    """Restore the mode of each module at the end: a user may have frozen some by `eval`."""
    modes = {child: child.training for child in module.modules()}
    try:
        yield
    finally:
        for child, training in modes.items():
            child.training = training
