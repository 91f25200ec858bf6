"""Attention, feedforward and transformer block (Ho et al. 2019, section 3.1)."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from math import prod
from typing import Generic, TypeVar, cast

import torch
import torch.nn.functional as F
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


PartState = tuple[Tensor, ...]
"""What the slabs so far leave for the next, in a residual block: tensors that a step changes."""


class AttentionBlock(nn.Module):
    """x + Dropout(Attention(LayerNorm(x)))."""

    def __init__(self, attention: LineAttention, dropout: float):
        super().__init__()
        self.norm = LayerNorm(attention.dim)
        self.attention = attention
        self.dropout = Dropout(dropout)

    def forward(self, x: Float[Tensor, "b *a d"]) -> Float[Tensor, "b *a d"]:
        return self.dropout.add_to(x, self.attention(self.norm(x)))

    def start(self, batch: int, slab: tuple[int, ...], length: int) -> PartState:
        """Return an empty cache of keys and values, if attention is masked; else it is inside a slab."""
        return self.attention.start(batch, slab, length) if self.attention.causal else ()

    def step(
        self,
        x: Float[Tensor, "b *s d"],
        i: Index,
        state: PartState,
    ) -> Float[Tensor, "b *s d"]:
        """Return slab `i` of the output."""
        if not state:
            return self(x)
        return x + self.dropout(self.attention.step(self.norm(x), i, KeyValueCache(*state)))


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

    def start(self, batch: int, slab: tuple[int, ...], length: int) -> PartState:
        """Return nothing: positions do not see each other."""
        return ()

    def step(self, x: Float[Tensor, "b *s d"], i: Index, state: PartState) -> Float[Tensor, "b *s d"]:
        """Return slab `i` of the output."""
        return self(x)


class Convolution(Dense):
    """A linear layer of windows, y = W (x of the window) + b, of positions whose window is whole."""

    def __init__(self, dim: int, outputs: int, window: tuple[int, ...]):
        self.window = window
        super().__init__(prod(window) * dim, outputs)

    def forward(self, x: Float[Tensor, "b *a d"]) -> Float[Tensor, "b *w o"]:
        outside = x.ndim - 1 - len(self.window)
        weight = self.weight.unflatten(1, (*self.window, -1))
        return _convolved(x.flatten(0, outside - 1), weight, self.bias).unflatten(0, x.shape[:outside])


def _convolved(
    x: Float[Tensor, "n *a d"],
    weight: Float[Tensor, "o *k d"],
    bias: Float[Tensor, " o"] | None,
) -> Float[Tensor, "n *w o"]:
    """Convolve along all axes between the first and the last."""
    axes = weight.ndim - 2
    if axes == 1:  # slower along one axis than along two
        return _convolved(x.unsqueeze(1), weight.unsqueeze(1), bias).squeeze(1)
    if axes > 3:  # more than torch knows: a sum over the slabs of a window
        size = x.shape[1] - weight.shape[1] + 1
        parts = []
        for start, of_slab in enumerate(weight.unbind(1)):
            slabs = x.narrow(1, start, size).flatten(0, 1)
            parts.append(_convolved(slabs, of_slab, None if start else bias))
        return torch.stack(parts).sum(0).unflatten(0, (-1, size))
    convolve = F.conv2d if axes == 2 else F.conv3d
    return convolve(x.movedim(-1, 1), weight.movedim(-1, 1), bias).movedim(1, -1)


class GatedConvolution(nn.Module):
    """x + Dropout(W (a sigmoid(b))), where a and b are convolutions of LayerNorm(x) (Dauphin et al. 2017).

    The window of a position reaches `reach` slabs back along one axis, and one position to each side along the `inside`
    axes behind it. Outside the data are zeros.
    """

    def __init__(self, dim: int, hidden: int, reach: int, inside: int, dropout: float = 0.0):
        super().__init__()
        self.reach = reach
        self.around = (0, 0) + (1, 1) * inside
        self.norm = LayerNorm(dim)
        self.near = Convolution(dim, 2 * hidden, (reach + 1, *(3,) * inside))
        self.out = Dense(hidden, dim, residual=True)
        self.dropout = Dropout(dropout)

    def forward(self, x: Float[Tensor, "b *a d"]) -> Float[Tensor, "b *a d"]:
        return self._add(x, F.pad(self.norm(x), (*self.around, self.reach, 0)))

    def start(self, batch: int, slab: tuple[int, ...], length: int) -> PartState:
        """Return the normalised inputs of the last slabs, [B, reach, *S, D]: zeros."""
        return (self.norm.weight.new_zeros(batch, self.reach, *slab, *self.norm.normalized_shape),)

    def step(self, x: Float[Tensor, "b *s d"], i: Index, state: PartState) -> Float[Tensor, "b *s d"]:
        """Return slab `i` of the output, the next one."""
        (kept,) = state
        seen = torch.cat([kept, self.norm(x).unsqueeze(1).to(kept.dtype)], dim=1)
        kept.copy_(seen[:, 1:])
        return self._add(x.unsqueeze(1), F.pad(seen, self.around)).squeeze(1)

    def _add(self, x: Float[Tensor, "*s d"], seen: Float[Tensor, "*w d"]) -> Float[Tensor, "*s d"]:
        return self.dropout.add_to(x, self.out(F.glu(self.near(seen), dim=-1)))


class TransformerBlock(nn.Module):
    """An attention block, then a feedforward block: one layer in the paper's count.

    Gated convolutions can take the place of the feedforward block. Half of them, rounded down, come before attention.
    """

    feedforward: FeedforwardBlock | None
    convolutions: ModuleListOf[GatedConvolution]

    def __init__(
        self,
        attention: LineAttention,
        hidden: int,
        dropout: float = 0.0,
        convolutions: Iterable[GatedConvolution] = (),
    ):
        super().__init__()
        self.attention = AttentionBlock(attention, dropout)
        self.convolutions = ModuleListOf(convolutions)
        replaced = len(self.convolutions) > 0
        self.feedforward = None if replaced else FeedforwardBlock(attention.dim, hidden, Dropout(dropout))

    @property
    def parts(self) -> list[GatedConvolution | AttentionBlock | FeedforwardBlock]:
        """Return the residual blocks in their order."""
        before = len(self.convolutions) // 2
        convolutions = list(self.convolutions)
        last = [self.feedforward] if self.feedforward else []
        return [*convolutions[:before], self.attention, *convolutions[before:], *last]

    def forward(self, x: Float[Tensor, "b *a d"]) -> Float[Tensor, "b *a d"]:
        for part in self.parts:
            x = part(x)
        return x

    def start(self, batch: int, slab: tuple[int, ...], length: int) -> list[PartState]:
        """Return the states of `parts` before the first of `length` slabs."""
        return [part.start(batch, slab, length) for part in self.parts]

    def step(self, x: Float[Tensor, "b *s d"], i: Index, state: list[PartState]) -> Float[Tensor, "b *s d"]:
        """Return slab `i` of the output for slab `i` of the input; add it to the state."""
        for part, kept in zip(self.parts, state):
            x = part.step(x, i, kept)
        return x


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
    """Return the matrices inside transformer blocks, and how many each stacks: 3 for queries, keys and values."""
    counts: dict[Tensor, int] = {}
    for block in _transformer_blocks(module):
        attention = block.attention.attention
        for child in block.modules():
            if isinstance(child, nn.Linear):
                counts[child.weight] = 1
        if len(set(attention.widths)) == 1:
            counts[attention.qkv.weight] = 3
        for convolution in block.convolutions:
            counts[convolution.near.weight] = 2
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
