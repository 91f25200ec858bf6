"""Channel encoder, outer decoders, inner decoders."""

from collections.abc import Iterable
from typing import Any, Literal, Self

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn

from axial_transformers.layers.blocks import Dropout, GatedConvolution, ModuleListOf, PartState, TransformerBlock
from axial_transformers.layers.embeddings import Positions
from axial_transformers.layers.initialisation import Dense, LayerNorm
from axial_transformers.layers.lines import Index, LineAttention
from axial_transformers.models.config import AxialTransformerConfig
from axial_transformers.models.values import Values
from axial_transformers.ops.elementwise import shift, shifted_copies
from axial_transformers.ops.positions import rotation_table
from axial_transformers.ops.torch_private import is_bare


def axis_attention(config: AxialTransformerConfig, axis: int, causal: bool) -> LineAttention:
    """Return attention along `axis`."""
    length = config.bijection.shape[axis + 1]
    width = config.dim // config.heads
    rotations = rotation_table(length, width, config.rotary) if config.rotary else None
    return LineAttention(config.dim, config.heads, axis, causal, residual=True, rotations=rotations)


def decoder_block(
    config: AxialTransformerConfig, attention: LineAttention, reach: int, inside: int
) -> TransformerBlock:
    """Return a block of a decoder, whose gated convolutions, if the model has them, see windows of this size."""
    sizes = config.dim, config.hidden, reach, inside, config.dropout
    convolutions = (GatedConvolution(*sizes) for _ in range(config.gated_convolutions))
    return TransformerBlock(attention, config.hidden, config.dropout, convolutions)


class ChannelEncoder(nn.Module):
    """Unmasked attention over every axis of the channels before c:

    x[channels < c] / divisor, planes of c -> 3-wide convolution -> + position + conditioning -> blocks -> e
    """

    def __init__(self, config: AxialTransformerConfig, values: Values):
        super().__init__()
        shape = config.bijection.shape
        self.channels = config.bijection.channels
        self.features = values.features
        self.planes: Literal["one_hot", "index"] = config.channel_planes
        inputs = self.channels * values.features.size + (self.channels if self.planes == "one_hot" else 1)
        self.convolution = Dense(3 ** len(shape) * inputs, config.dim)
        self.position = Positions(shape, config.dim)
        axes = range(-2, -2 - len(shape), -1)  # innermost first
        self.blocks = ModuleListOf(
            TransformerBlock(axis_attention(config, axis, causal=False), config.hidden, config.dropout)
            for _ in range(config.layers_of_encoder // len(shape))
            for axis in axes
        )

    def forward(
        self,
        x: Integer[Tensor, "b *a c"],
        channel: Integer[Tensor, " b"],
        conditioning: Float[Tensor, "b *g d"] | float,
    ) -> Float[Tensor, "b *a d"]:
        h = self.convolution(self.windows(x, channel, self.position.tables[0].dtype)) + self.position()
        h = h if isinstance(conditioning, float) else h + conditioning
        for block in self.blocks:
            h = block(h)
        return h

    def windows(
        self, x: Integer[Tensor, "b *a c"], channel: Integer[Tensor, " b"], dtype: torch.dtype
    ) -> Float[Tensor, "b *a i"]:
        """Return what the convolution takes at each position."""
        per_example = (-1,) + (1,) * (x.ndim - 2)
        number = torch.arange(self.channels, device=x.device)
        before = (number < channel.unsqueeze(-1)).view(*per_example, self.channels)
        if self.planes == "one_hot":
            planes = (number == channel.unsqueeze(-1)).view(*per_example, self.channels)
        else:
            planes = (channel / self.channels).view(*per_example, 1)
        values = torch.where(before.unsqueeze(-1), self.features(x, dtype), 0).flatten(-2)
        return shifted_copies(torch.cat([values, planes.to(dtype).expand(*x.shape[:-1], -1)], dim=-1))


class OuterDecoder(nn.Module):
    """Unmasked attention over the axes inside its own, masked over its own; its output is shifted.

    For an image: unmasked rows, masked columns, ShiftDown.
    """

    def __init__(self, config: AxialTransformerConfig, level: int):
        super().__init__()
        shape = config.bijection.shape
        inside = len(shape) - level - 1
        self.axis = -(inside + 2)
        self.length = shape[level]
        self.slab = shape[level + 1 :]
        self.blocks = ModuleListOf(
            decoder_block(config, axis_attention(config, axis, axis == self.axis), reach=1, inside=inside)
            for _ in range(config.layers_of_outer_decoders[level] // (inside + 1))
            for axis in range(-2, self.axis - 1, -1)
        )

    def forward(self, h: Float[Tensor, "b *a d"], context: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        if not self.blocks:
            return context
        u = h + context
        for block in self.blocks:
            u = block(u)
        return context + shift(u, self.axis)

    def start(self, batch: int) -> list[list[PartState]]:
        return [block.start(batch, self.slab, self.length) for block in self.blocks]

    def step(self, u: Float[Tensor, "b *s d"], i: Index, state: list[list[PartState]]) -> Float[Tensor, "b *s d"]:
        if not self.blocks:
            return torch.zeros_like(u)
        for block, before in zip(self.blocks, state):
            u = block.step(u, i, before)
        return u


class InnerAttention(nn.Module):
    """Masked attention over the last axis."""

    def __init__(self, config: AxialTransformerConfig, attentions: Iterable[LineAttention]):
        super().__init__()
        self.length = config.bijection.shape[-1]
        self.blocks = ModuleListOf(decoder_block(config, attention, reach=2, inside=0) for attention in attentions)

    def forward(self, r: Float[Tensor, "b *a d"]) -> Float[Tensor, "b *a d"]:
        for block in self.blocks:
            r = block(r)
        return r

    def start(self, batch: int) -> list[list[PartState]]:
        return [block.start(batch, (), self.length) for block in self.blocks]

    def step(self, r: Float[Tensor, "b d"], i: int, state: list[Any]) -> Float[Tensor, "b d"]:
        for block, before in zip(self.blocks, state):
            r = block.step(r, i, before)
        return r


class InnerLSTM(nn.Module):
    """r + Dropout(LSTM(LayerNorm(r))) over the last axis, one layer.

    On a CPU it ignores autocast: many have no LSTM in bfloat16.
    """

    def __init__(self, config: AxialTransformerConfig):
        super().__init__()
        self.dim = config.dim
        self.norm = LayerNorm(config.dim)
        self.lstm = nn.LSTM(config.dim, config.dim, batch_first=True)
        self.dropout = Dropout(config.dropout)

    def train(self, mode: bool = True) -> Self:
        """Keep the LSTM in training mode, which changes nothing of one layer: cuDNN has gradients in that mode only."""
        super().train(mode)
        self.lstm.train()
        return self

    def forward(self, r: Float[Tensor, "b *a d"]) -> Float[Tensor, "b *a d"]:
        with torch.autocast("cpu", enabled=False):
            rows, _ = self.lstm(self.norm(r).flatten(0, -3))
        return self.dropout.add_to(r, rows.view(r.shape))

    def start(self, batch: int) -> list[Tensor]:
        zeros = next(self.parameters()).new_zeros(batch, self.dim)
        return [zeros, zeros]

    def step(self, r: Float[Tensor, "b d"], i: int, state: list[Any]) -> Float[Tensor, "b d"]:
        with torch.autocast("cpu", enabled=False):
            if is_bare(self.lstm, nn.LSTM):
                state[:] = torch.lstm_cell(self.norm(r), state, *self.lstm.all_weights[0])
                out = state[0]
            else:
                rows, after = self.lstm(self.norm(r)[:, None], tuple(part[None] for part in state))
                out = rows[:, 0]
                state[:] = [part[0] for part in after]
        return r + self.dropout(out)
