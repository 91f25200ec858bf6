"""Models that the axial ones are compared with, and the axial residual network of Axial-DeepLab.

The other rows of the paper's table 1 model one sequence in raster order under masked attentions of other patterns: each
is an `AxialTransformer` (embeddings, blocks, likelihood, cached decoding) with another inner decoder. The plain
Transformer (Vaswani et al. 2017) over the raster sequence is an `AxialTransformer` of layout "raster".
"""

from axial_transformers.models.baselines.residual_network import (
    AxialResNet,
    AxialResNetConfig,
    axial26s,
    axial50l,
    axial50m,
    axial50s,
)
from axial_transformers.models.baselines.sequence_models import (
    BlockTransformer,
    BlockTransformerConfig,
    ImageTransformer,
    ImageTransformerConfig,
    SparseTransformer,
    SparseTransformerConfig,
)

__all__ = [
    "AxialResNet",
    "AxialResNetConfig",
    "BlockTransformer",
    "BlockTransformerConfig",
    "ImageTransformer",
    "ImageTransformerConfig",
    "SparseTransformer",
    "SparseTransformerConfig",
    "axial26s",
    "axial50l",
    "axial50m",
    "axial50s",
]
