"""Strided Sparse Transformer (Child et al. 2019, section 4.2): rows in half of the heads, columns in the others."""

from dataclasses import dataclass

from axial_transformers.baselines.sequence_attention import StridedAttention
from axial_transformers.models.axial_transformer import AxialTransformer
from axial_transformers.models.config import AxialTransformerConfig
from axial_transformers.models.inner_decoder import InnerAttention


@dataclass(frozen=True, kw_only=True)
class SparseTransformerConfig(AxialTransformerConfig):
    """`inner_layers` is the number of layers; the stride is the length of a row: the last axis times the channels."""

    layout: str = "raster"  # type: ignore[assignment]


class SparseTransformer(AxialTransformer):
    """Half of the heads attend to the last `stride` positions, half to the same column of all earlier rows."""

    name = "sparse_transformer"
    config_class = SparseTransformerConfig

    @staticmethod
    def build_inner(config: AxialTransformerConfig) -> InnerAttention:
        stride = config.shape[-1] * config.channels
        layers = range(config.inner_layers)
        return InnerAttention(config, (StridedAttention(config.dim, config.heads, stride) for _ in layers))
