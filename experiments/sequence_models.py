"""The other rows of table 1: each is an `AxialTransformer` with another inner decoder over a raster sequence."""

from collections.abc import Iterable
from dataclasses import dataclass

from axial_transformers.models import AxialTransformer, AxialTransformerConfig
from axial_transformers.models.stacks import InnerAttention
from sequence_attention import BlockAttention, LocalAttention, SequenceAttention, StridedAttention


@dataclass(frozen=True, kw_only=True)
class ImageTransformerConfig(AxialTransformerConfig):
    """An Image Transformer of `inner_layers` layers."""

    layout: str = "raster"  # type: ignore[assignment]
    block: int = 256
    """Positions in a block of queries, l_q."""
    memory: int = 256
    """Positions before the block that its queries attend to, l_m."""


@dataclass(frozen=True, kw_only=True)
class BlockTransformerConfig(AxialTransformerConfig):
    """A block-local transformer of `inner_layers` layers, which take the shapes of `blocks` in turn."""

    layout: str = "raster"  # type: ignore[assignment]
    blocks: tuple[tuple[int, ...], ...] = ()
    """Sizes that divide those of `plane`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.blocks:
            raise ValueError(f"blocks must name at least one shape that tiles {self.plane}")

    @property
    def plane(self) -> tuple[int, ...]:
        """The data's axes, with channels interleaved along the last one."""
        return (*self.shape[:-1], self.shape[-1] * self.channels)


@dataclass(frozen=True, kw_only=True)
class SparseTransformerConfig(AxialTransformerConfig):
    """A Sparse Transformer of `inner_layers` layers; the stride is the last axis times the channels."""

    layout: str = "raster"  # type: ignore[assignment]


def sequence_decoder(config: AxialTransformerConfig, attentions: Iterable[SequenceAttention]) -> InnerAttention:
    """The inner decoder of a model, with one layer for each attention."""
    if config.rotary is not None:
        raise ValueError(f"rotary must be None, not {config.rotary}: these attentions have no rotary positions")
    return InnerAttention(config, attentions)


class ImageTransformer(AxialTransformer):
    """1D local attention: to the own block, and to the memory before it."""

    name = "image_transformer"
    config_class = ImageTransformerConfig

    @staticmethod
    def build_inner(config: AxialTransformerConfig) -> InnerAttention:
        assert isinstance(config, ImageTransformerConfig)
        layers = range(config.inner_layers)
        return sequence_decoder(
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
        return sequence_decoder(
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
        return sequence_decoder(config, (StridedAttention(config.dim, config.heads, stride) for _ in layers))
