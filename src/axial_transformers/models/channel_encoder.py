"""The channel encoder: the channels before the current one as context of every site (section 3.2.2)."""

from typing import Literal

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn

from axial_transformers.layers.blocks import ModuleListOf, TransformerBlock
from axial_transformers.layers.embeddings import Positions
from axial_transformers.layers.initialisation import Dense
from axial_transformers.models.axis_attention import axis_attention
from axial_transformers.models.config import AxialTransformerConfig
from axial_transformers.ops.shift import shifted_copies


class ChannelEncoder(nn.Module):
    """Unmasked attention over every axis of the channels before c, from an input that names c:

    x[channels < c] / divisor, planes that name c -> 3-wide convolution -> + position + conditioning -> blocks -> e

    The divisor is the largest value, V - 1, or the configuration's.
    """

    def __init__(self, config: AxialTransformerConfig):
        super().__init__()
        shape, self.channels = config.bijection.shape, config.bijection.channels
        self.planes: Literal["one_hot", "index"] = config.channel_planes
        self.divisor = config.divisor
        inputs = self.channels + (self.channels if self.planes == "one_hot" else 1)
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
        """x [B, *A, C], channel of each example [B], embedded conditioning [B, *A or 1s, D] -> e [B, *A, D]."""
        h = self.convolve(x, channel, conditioning)
        for block in self.blocks:
            h = block(h)
        return h

    def convolve(
        self,
        x: Integer[Tensor, "b *a c"],
        channel: Integer[Tensor, " b"],
        conditioning: Float[Tensor, "b *g d"] | float,
    ) -> Float[Tensor, "b *a d"]:
        """The input of the blocks [B, *A, D], from the arguments of `forward`."""
        site = (-1,) + (1,) * (x.ndim - 2)
        number = torch.arange(self.channels, device=x.device)
        before = (number < channel.unsqueeze(-1)).view(*site, self.channels)
        if self.planes == "one_hot":
            planes = (number == channel.unsqueeze(-1)).view(*site, self.channels)
        else:
            planes = (channel / self.channels).view(*site, 1)
        dtype = self.convolution.weight.dtype
        values = torch.where(before, x, 0).to(dtype) / self.divisor
        h = self.convolution(shifted_copies(torch.cat([values, planes.to(dtype).expand(*x.shape[:-1], -1)], dim=-1)))
        h = h + self.position()
        return h if isinstance(conditioning, float) else h + conditioning
