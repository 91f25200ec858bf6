"""Block Transformer (Weissenborn, Tackstrom, Uszkoreit 2019): attention within blocks of the grid (section 3.1)."""

from dataclasses import dataclass

from axial_transformers.baselines.sequence_attention import BlockAttention
from axial_transformers.models.axial_transformer import AxialTransformer
from axial_transformers.models.config import AxialTransformerConfig
from axial_transformers.models.inner_decoder import InnerAttention


@dataclass(frozen=True, kw_only=True)
class BlockTransformerConfig(AxialTransformerConfig):
    """`inner_layers` is the number of layers; they take the shapes of `blocks` in turn."""

    layout: str = "raster"  # type: ignore[assignment]
    blocks: tuple[tuple[int, ...], ...] = ()
    """Shapes of blocks, at least one: sizes that divide those of `grid`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.blocks:
            raise ValueError(f"blocks must name at least one shape that tiles {self.grid}")

    @property
    def grid(self) -> tuple[int, ...]:
        """Sizes of the grid of sites: the data's axes, with the channels interleaved along the last one."""
        return (*self.shape[:-1], self.shape[-1] * self.channels)


class BlockTransformer(AxialTransformer):
    """Masked attention in raster order, within blocks whose shape changes from layer to layer."""

    name = "block_transformer"
    config_class = BlockTransformerConfig

    @staticmethod
    def build_inner(config: AxialTransformerConfig) -> InnerAttention:
        assert isinstance(config, BlockTransformerConfig)
        shapes = (config.blocks[i % len(config.blocks)] for i in range(config.inner_layers))
        return InnerAttention(
            config, (BlockAttention(config.dim, config.heads, config.grid, block) for block in shapes)
        )
