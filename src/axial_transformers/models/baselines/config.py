"""The configurations of the other rows of table 1."""

from dataclasses import dataclass

from axial_transformers.models.config import AxialTransformerConfig


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
        """Return the data's axes, with channels interleaved along the last one."""
        return (*self.shape[:-1], self.shape[-1] * self.channels)


@dataclass(frozen=True, kw_only=True)
class SparseTransformerConfig(AxialTransformerConfig):
    """A Sparse Transformer of `inner_layers` layers; the stride is the last axis times the channels."""

    layout: str = "raster"  # type: ignore[assignment]


CONFIGS = {
    "image_transformer": ImageTransformerConfig,
    "block_transformer": BlockTransformerConfig,
    "sparse_transformer": SparseTransformerConfig,
}
"""The configurations by the names of their models; all others are of the Axial Transformer."""
