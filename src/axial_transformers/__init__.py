"""Axial-attention models of multidimensional data: exact likelihood, fast sampling, lossless compression."""

from axial_transformers.likelihood import bits_map, bits_per_dim, random_slice_loss
from axial_transformers.models import AxialTransformer, AxialTransformerConfig
from axial_transformers.ops.attention import axial_attention
from axial_transformers.sampling import complete, sample

__all__ = [
    "AxialTransformer",
    "AxialTransformerConfig",
    "axial_attention",
    "bits_map",
    "bits_per_dim",
    "complete",
    "random_slice_loss",
    "sample",
]
