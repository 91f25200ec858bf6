"""The Axial Transformer of Ho et al. 2019."""

from axial_transformers.models.arguments import UNCONDITIONAL, Conditioning
from axial_transformers.models.axial_transformer import AxialTransformer
from axial_transformers.models.config import AxialTransformerConfig

__all__ = ["UNCONDITIONAL", "AxialTransformer", "AxialTransformerConfig", "Conditioning"]
