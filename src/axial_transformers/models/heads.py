"""What makes outputs of the last states: numbers that stand for the distribution of each value."""

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn

from axial_transformers.layers.blocks import ModuleListOf
from axial_transformers.layers.initialisation import Dense, LayerNorm
from axial_transformers.models.values.kind import NumbersOfCodes
from axial_transformers.ops.elementwise import quick_gelu


class Head(nn.Sequential):
    """A linear layer of LayerNorm(state), for positions of one value."""

    def __init__(self, dim: int, outputs: int):
        super().__init__(LayerNorm(dim), Dense(dim, outputs, residual=True))

    def outputs(self, state: Float[Tensor, "*s d"], before: Integer[Tensor, "*s p"]) -> Float[Tensor, "*s o"]:
        """Return the outputs of the value of each position; `before` has no codes."""
        return self(state)

    def last_layers(self) -> list[Dense]:
        """Return the last layer of each value of a position."""
        last = self[1]
        assert isinstance(last, Dense)
        return [last]


class ChainedHead(nn.Module):
    """A head for each value of a position, which also takes the features f of the values before it:

    outputs of value p = contract(quick_gelu(expand(LayerNorm(state), f of values 0 .. p - 1)))
    """

    def __init__(self, dim: int, outputs: int, features: NumbersOfCodes, depth: int):
        super().__init__()
        self.features = features
        self.norm = LayerNorm(dim)
        self.heads = ModuleListOf(HiddenHead(dim + p * features.size, dim, outputs) for p in range(depth))

    def forward(self, state: Float[Tensor, "*s d"], before: Integer[Tensor, "*s p"]) -> Float[Tensor, "*s o"]:
        """Return the outputs of value p of each position, from the codes of the values before it."""
        features = self.features(before, state.dtype).flatten(-2)
        return self.heads[before.shape[-1]](torch.cat([self.norm(state), features], dim=-1))

    def outputs(self, state: Float[Tensor, "*s d"], before: Integer[Tensor, "*s p"]) -> Float[Tensor, "*s o"]:
        """See `forward`."""
        return self(state, before)

    def last_layers(self) -> list[Dense]:
        """Return the last layer of each value of a position."""
        return [head.contract for head in self.heads]


class HiddenHead(nn.Module):
    """Two linear layers, with quick GELU between them."""

    def __init__(self, inputs: int, hidden: int, outputs: int):
        super().__init__()
        self.expand = Dense(inputs, hidden)
        self.contract = Dense(hidden, outputs, residual=True)

    def forward(self, x: Float[Tensor, "*s i"]) -> Float[Tensor, "*s o"]:
        return self.contract(quick_gelu(self.expand(x)))
