"""Models to compare with: each is an `AxialTransformer` with another inner decoder over a raster sequence."""

from typing import TYPE_CHECKING

from axial_transformers.doors import opened_at_first_use

if TYPE_CHECKING:
    from axial_transformers.models.baselines.config import (
        BlockTransformerConfig,
        ImageTransformerConfig,
        SparseTransformerConfig,
    )
    from axial_transformers.models.baselines.residual_network import AxialResNet, AxialResNetConfig
    from axial_transformers.models.baselines.sequence_models import (
        BlockTransformer,
        ImageTransformer,
        SparseTransformer,
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
]

__getattr__ = opened_at_first_use(
    __name__,
    {
        "AxialResNet": "residual_network",
        "AxialResNetConfig": "residual_network",
        "BlockTransformer": "sequence_models",
        "BlockTransformerConfig": "config",
        "ImageTransformer": "sequence_models",
        "ImageTransformerConfig": "config",
        "SparseTransformer": "sequence_models",
        "SparseTransformerConfig": "config",
    },
)
