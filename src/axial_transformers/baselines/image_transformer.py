"""Image Transformer (Parmar et al. 2018, section 3.3): blocks of queries see a memory of local keys."""

from dataclasses import dataclass

from axial_transformers.baselines.sequence_attention import LocalAttention
from axial_transformers.models.axial_transformer import AxialTransformer
from axial_transformers.models.config import AxialTransformerConfig
from axial_transformers.models.inner_decoder import InnerAttention


@dataclass(frozen=True, kw_only=True)
class ImageTransformerConfig(AxialTransformerConfig):
    """Layers are counted by `inner_layers`; there are no others."""

    layout: str = "raster"  # type: ignore[assignment]
    block: int = 256
    """Places of a block of queries, l_q."""
    memory: int = 256
    """Places before the block that it also sees, l_m - l_q in the paper's count."""


class ImageTransformer(AxialTransformer):
    """1D local attention: a place sees its own block up to itself, and the memory before it."""

    name = "image_transformer"
    config_class = ImageTransformerConfig

    @staticmethod
    def build_inner(config: AxialTransformerConfig) -> InnerAttention:
        assert isinstance(config, ImageTransformerConfig)
        layers = range(config.inner_layers)
        return InnerAttention(
            config, (LocalAttention(config.dim, config.heads, config.block, config.memory) for _ in layers)
        )
