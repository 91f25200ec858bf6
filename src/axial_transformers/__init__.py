"""Axial-attention models of multidimensional data: exact likelihood, fast sampling, lossless compression."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from axial_transformers.compression import compress, decompress
    from axial_transformers.decoding.sampling import complete, sample
    from axial_transformers.importers.official import import_official
    from axial_transformers.layers.attention import AxialAttention, CrossAttention, FullAttention
    from axial_transformers.layers.position_sensitive import PositionSensitiveAxialAttention
    from axial_transformers.likelihood.bits import bits_map, bits_per_dim, random_slice_loss
    from axial_transformers.models import AxialTransformer, AxialTransformerConfig
    from axial_transformers.ops.axial_attention import axial_attention

__version__ = "0.1.0"

_HOMES = {
    "AxialAttention": "layers.attention",
    "AxialTransformer": "models",
    "AxialTransformerConfig": "models",
    "CrossAttention": "layers.attention",
    "FullAttention": "layers.attention",
    "PositionSensitiveAxialAttention": "layers.position_sensitive",
    "axial_attention": "ops.axial_attention",
    "bits_map": "likelihood.bits",
    "bits_per_dim": "likelihood.bits",
    "complete": "decoding.sampling",
    "compress": "compression",
    "decompress": "compression",
    "import_official": "importers.official",
    "random_slice_loss": "likelihood.bits",
    "sample": "decoding.sampling",
}

__all__ = [
    "AxialAttention",
    "AxialTransformer",
    "AxialTransformerConfig",
    "CrossAttention",
    "FullAttention",
    "PositionSensitiveAxialAttention",
    "axial_attention",
    "bits_map",
    "bits_per_dim",
    "complete",
    "compress",
    "decompress",
    "import_official",
    "random_slice_loss",
    "sample",
]


def __getattr__(name: str) -> Any:
    """Public names are imported when they are first used: `axial --help` need not wait for torch."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
