"""Inner decoders, along the last axis: masked attention (section 3.2.1), or the LSTM of the paper's ablation."""

from collections.abc import Iterable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from axial_transformers.layers.blocks import Dropout, ModuleListOf, TransformerBlock
from axial_transformers.layers.lines import KeyValueCache, LineAttention
from axial_transformers.models.config import AxialTransformerConfig


class InnerAttention(nn.Module):
    """Masked attention over the last axis, a transformer block for each of `attentions`.

    Raises:
        ValueError: the configuration has rotary positions, and these attentions have not.
    """

    def __init__(self, config: AxialTransformerConfig, attentions: Iterable[LineAttention]):
        super().__init__()
        self.length = config.bijection.shape[-1]
        attentions = list(attentions)
        for kind in {type(attention) for attention in attentions if attention.rotations is None}:
            if config.rotary is not None:
                raise ValueError(f"rotary must be None: {kind.__name__} has no rotary positions")
        self.blocks = ModuleListOf(
            TransformerBlock(attention, config.hidden, config.dropout) for attention in attentions
        )

    def forward(self, r: Float[Tensor, "b *a d"]) -> Float[Tensor, "b *a d"]:
        """[B, *A, D] -> [B, *A, D]."""
        for block in self.blocks:
            r = block(r)
        return r

    def start(self, batch: int) -> list[KeyValueCache]:
        """Empty caches for the steps along one row."""
        return [block.start(batch, (), self.length) for block in self.blocks]

    def step(self, r: Float[Tensor, "b d"], i: int, state: list[Any]) -> Float[Tensor, "b d"]:
        """The output at site `i` of a row, whose earlier sites are in the caches: [B, D] -> [B, D]."""
        for block, cache in zip(self.blocks, state):
            r = block.step(r, i, cache)
        return r


class InnerLSTM(nn.Module):
    """r + Dropout(LSTM(LayerNorm(r))) over the last axis, one layer."""

    def __init__(self, config: AxialTransformerConfig):
        super().__init__()
        self.norm = nn.LayerNorm(config.dim)
        self.lstm = nn.LSTM(config.dim, config.dim, batch_first=True)
        self.dropout = Dropout(config.dropout)

    def forward(self, r: Float[Tensor, "b *a d"]) -> Float[Tensor, "b *a d"]:
        """[B, *A, D] -> [B, *A, D]."""
        rows, _ = self.lstm(self.norm(r).flatten(0, -3))
        return self.dropout.add_to(r, rows.view(r.shape))

    def start(self, batch: int) -> list[Tensor]:
        """Hidden and cell state [B, D] before the row."""
        zeros = self.norm.weight.new_zeros(batch, self.lstm.hidden_size)
        return [zeros, zeros]

    def step(self, r: Float[Tensor, "b d"], i: int, state: list[Any]) -> Float[Tensor, "b d"]:
        """The output at the next site of a row; updates the state: [B, D] -> [B, D]."""
        state[:] = torch.lstm_cell(self.norm(r), state, *self.lstm.all_weights[0])
        return r + self.dropout(state[0])
