"""The other rows of table 1."""

from axial_transformers.models.axial_transformer import AxialTransformer
from axial_transformers.models.baselines.config import (
    BlockTransformerConfig,
    ImageTransformerConfig,
    SparseTransformerConfig,
)
from axial_transformers.models.baselines.sequence_attention import BlockAttention, LocalAttention, StridedAttention
from axial_transformers.models.config import AxialTransformerConfig
from axial_transformers.models.stacks import InnerAttention


class ImageTransformer(AxialTransformer):
    """1D local attention: to the own block, and to the memory before it."""

    name = "image_transformer"
    config_class = ImageTransformerConfig

    @staticmethod
    def build_inner(config: AxialTransformerConfig) -> InnerAttention:
        assert isinstance(config, ImageTransformerConfig)
        layers = range(config.inner_layers)
        return InnerAttention(
            config, (LocalAttention(config.dim, config.heads, config.block, config.memory) for _ in layers)
        )


class BlockTransformer(AxialTransformer):
    """Masked attention in raster order, within blocks whose shape changes by layer."""

    name = "block_transformer"
    config_class = BlockTransformerConfig

    @staticmethod
    def build_inner(config: AxialTransformerConfig) -> InnerAttention:
        assert isinstance(config, BlockTransformerConfig)
        shapes = (config.blocks[i % len(config.blocks)] for i in range(config.inner_layers))
        return InnerAttention(
            config, (BlockAttention(config.dim, config.heads, config.plane, block) for block in shapes)
        )


class SparseTransformer(AxialTransformer):
    """Half of the heads attend to the last `stride` positions, half to the column so far."""

    name = "sparse_transformer"
    config_class = SparseTransformerConfig

    @staticmethod
    def build_inner(config: AxialTransformerConfig) -> InnerAttention:
        stride = config.shape[-1] * config.channels
        layers = range(config.inner_layers)
        return InnerAttention(config, (StridedAttention(config.dim, config.heads, stride) for _ in layers))
