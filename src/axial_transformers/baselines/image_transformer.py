"""Image Transformer (Parmar et al. 2018, section 3.3): blocks of queries attend to a local memory of keys."""

from dataclasses import dataclass

from axial_transformers.baselines.sequence_attention import LocalAttention
from axial_transformers.models.axial_transformer import AxialTransformer
from axial_transformers.models.config import AxialTransformerConfig
from axial_transformers.models.inner_decoder import InnerAttention


@dataclass(frozen=True, kw_only=True)
class ImageTransformerConfig(AxialTransformerConfig):
    """`inner_layers` is the number of layers."""

    layout: str = "raster"  # type: ignore[assignment]
    block: int = 256
    """Positions in a block of queries, l_q."""
    memory: int = 256
    """Positions before the block that its queries attend to, l_m."""


class ImageTransformer(AxialTransformer):
    """1D local attention: a position attends to its own block up to itself, and to the memory before the block."""

    name = "image_transformer"
    config_class = ImageTransformerConfig

    @staticmethod
    def build_inner(config: AxialTransformerConfig) -> InnerAttention:
        assert isinstance(config, ImageTransformerConfig)
        layers = range(config.inner_layers)
        return InnerAttention(
            config, (LocalAttention(config.dim, config.heads, config.block, config.memory) for _ in layers)
        )
