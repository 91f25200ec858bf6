"""Models to compare with: each is an `AxialTransformer` with another inner decoder over a raster sequence."""

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
