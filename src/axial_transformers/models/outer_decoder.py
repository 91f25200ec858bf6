"""An outer decoder: the context from earlier positions of one axis, a whole slab at a time (section 3.2.1)."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from axial_transformers.layers.blocks import ModuleListOf, TransformerBlock
from axial_transformers.layers.lines import KeyValueCache
from axial_transformers.models.axis_attention import axis_attention
from axial_transformers.models.config import AxialTransformerConfig
from axial_transformers.ops.shift import shift


class OuterDecoder(nn.Module):
    """Unmasked attention over the axes inside its own, masked over its own; the upper context is its output, shifted.

    For an image: unmasked rows, masked columns, ShiftDown. Axes are counted from the end, so that a layer has the same
    axis in the whole tensor and in a slab of it: outer decoder `level` of d has axis -(d - level) - 1, which its slabs
    lack.
    """

    def __init__(self, config: AxialTransformerConfig, level: int):
        super().__init__()
        shape = config.bijection.shape
        inside = len(shape) - level - 1
        self.axis = -(inside + 2)
        self.length, self.slab = shape[level], shape[level + 1 :]
        self.blocks = ModuleListOf(
            TransformerBlock(axis_attention(config, axis, axis == self.axis), config.hidden, config.dropout)
            for _ in range(config.layers_of_outer_decoders[level] // (inside + 1))
            for axis in range(-2, self.axis - 1, -1)
        )

    def forward(self, h: Float[Tensor, "b *a d"], context: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """h [B, *A, D] and context, [B, *A, D] or [*A, D] -> context + upper context.

        The upper context depends on earlier positions of the axis only.
        """
        if not self.blocks:
            return context
        u = h + context
        for block in self.blocks:
            u = block(u)
        return context + shift(u, self.axis)

    def start(self, batch: int) -> list[KeyValueCache | None]:
        """Empty caches for the steps along the axis: one for each causal layer, None for the others."""
        return [block.start(batch, self.slab, self.length) if block.causal else None for block in self.blocks]

    def step(self, u: Float[Tensor, "b *s d"], i: int, state: list[KeyValueCache | None]) -> Float[Tensor, "b *s d"]:
        """Slab `i` of h + context [B, *S, D] -> the upper context of slab i + 1 [B, *S, D]."""
        if not self.blocks:
            return torch.zeros_like(u)
        for block, cache in zip(self.blocks, state):
            u = block(u) if cache is None else block.step(u, i, cache)
        return u
