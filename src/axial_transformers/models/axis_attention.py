"""Attention along one axis of a model's sites, as its configuration describes it."""

from axial_transformers.layers.lines import LineAttention
from axial_transformers.models.config import AxialTransformerConfig
from axial_transformers.ops.positions import rotation_table


def axis_attention(config: AxialTransformerConfig, axis: int, causal: bool) -> LineAttention:
    """Attention along `axis`, -2 being the innermost; with rotary positions if the model has them."""
    length, width = config.bijection.shape[axis + 1], config.dim // config.heads
    rotations = None if config.rotary is None else rotation_table(length, width, config.rotary)
    return LineAttention(config.dim, config.heads, axis, causal, residual=True, rotations=rotations)
