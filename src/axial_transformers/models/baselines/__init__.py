"""Models that the axial ones are compared with, and the axial residual network of Axial-DeepLab.

Each other row of the paper's table 1 is an `AxialTransformer` with another inner decoder over one raster sequence. The
plain Transformer (Vaswani et al. 2017) has layout "raster".
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
