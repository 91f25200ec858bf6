"""Strided Sparse Transformer (Child et al. 2019, section 4.2): rows in half of the heads, columns in the others."""

from dataclasses import dataclass

from axial_transformers.baselines.sequence_attention import StridedAttention
from axial_transformers.models.axial_transformer import AxialTransformer
from axial_transformers.models.config import AxialTransformerConfig
from axial_transformers.models.inner_decoder import InnerAttention


@dataclass(frozen=True, kw_only=True)
class SparseTransformerConfig(AxialTransformerConfig):
    """Layers are counted by `inner_layers`; the stride is a row: the last axis, channels included."""

    layout: str = "raster"  # type: ignore[assignment]


class SparseTransformer(AxialTransformer):
    """Half of the heads see the last row's length of places, half the same column of all rows before."""

    name = "sparse_transformer"
    config_class = SparseTransformerConfig

    @staticmethod
    def build_inner(config: AxialTransformerConfig) -> InnerAttention:
        stride = config.shape[-1] * config.channels
        layers = range(config.inner_layers)
        return InnerAttention(config, (StridedAttention(config.dim, config.heads, stride) for _ in layers))
