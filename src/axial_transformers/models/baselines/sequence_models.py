"""The other rows of table 1."""

from dataclasses import dataclass

from axial_transformers.models.axial_transformer import AxialTransformer
from axial_transformers.models.baselines.sequence_attention import BlockAttention, LocalAttention, StridedAttention
from axial_transformers.models.config import AxialTransformerConfig
from axial_transformers.models.stacks import InnerAttention


@dataclass(frozen=True, kw_only=True)
class ImageTransformerConfig(AxialTransformerConfig):
    """An Image Transformer of `inner_layers` layers."""

    layout: str = "raster"  # type: ignore[assignment]
    block: int = 256
    """Positions in a block of queries, l_q."""
    memory: int = 256
    """Positions before the block that its queries attend to, l_m."""


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


@dataclass(frozen=True, kw_only=True)
class BlockTransformerConfig(AxialTransformerConfig):
    """A block-local transformer of `inner_layers` layers, which take the shapes of `blocks` in turn."""

    layout: str = "raster"  # type: ignore[assignment]
    blocks: tuple[tuple[int, ...], ...] = ()
    """Sizes that divide those of `grid`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.blocks:
            raise ValueError(f"blocks must name at least one shape that tiles {self.grid}")

    @property
    def grid(self) -> tuple[int, ...]:
        """Return the data's axes, with channels interleaved along the last one."""
        return (*self.shape[:-1], self.shape[-1] * self.channels)


class BlockTransformer(AxialTransformer):
    """Masked attention in raster order, within blocks whose shape changes by layer."""

    name = "block_transformer"
    config_class = BlockTransformerConfig

    @staticmethod
    def build_inner(config: AxialTransformerConfig) -> InnerAttention:
        assert isinstance(config, BlockTransformerConfig)
        shapes = (config.blocks[i % len(config.blocks)] for i in range(config.inner_layers))
        return InnerAttention(
            config, (BlockAttention(config.dim, config.heads, config.grid, block) for block in shapes)
        )


@dataclass(frozen=True, kw_only=True)
class SparseTransformerConfig(AxialTransformerConfig):
    """A Sparse Transformer of `inner_layers` layers; the stride is the last axis times the channels."""

    layout: str = "raster"  # type: ignore[assignment]


class SparseTransformer(AxialTransformer):
    """Half of the heads attend to the last `stride` positions, half to the column so far."""

    name = "sparse_transformer"
    config_class = SparseTransformerConfig

    @staticmethod
    def build_inner(config: AxialTransformerConfig) -> InnerAttention:
        stride = config.shape[-1] * config.channels
        layers = range(config.inner_layers)
        return InnerAttention(config, (StridedAttention(config.dim, config.heads, stride) for _ in layers))
