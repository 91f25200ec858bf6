"""The models, assembled from layers. Opening this folder shows the paper."""

from axial_transformers.models.axial_transformer import AxialTransformer
from axial_transformers.models.conditioning import UNCONDITIONAL, Conditioning
from axial_transformers.models.config import AxialTransformerConfig

__all__ = ["UNCONDITIONAL", "AxialTransformer", "AxialTransformerConfig", "Conditioning"]
