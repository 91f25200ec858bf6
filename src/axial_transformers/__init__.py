"""Axial-attention models of multidimensional data: exact likelihood, fast sampling, lossless compression."""

from typing import TYPE_CHECKING

from axial_transformers.doors import opened_at_first_use

if TYPE_CHECKING:
    from axial_transformers.compression import compress, decompress, open_archive
    from axial_transformers.decoding.sampling import complete, sample
    from axial_transformers.importers.official import import_official
    from axial_transformers.layers.attention import AxialAttention, ChannelsFirst, CrossAttention, FullAttention
    from axial_transformers.layers.axial_block import AxialBlock
    from axial_transformers.layers.lines import AttentionOptions, LineAttention, TiedAxialAttention
    from axial_transformers.layers.position_sensitive import PositionSensitiveAxialAttention
    from axial_transformers.layers.triangle_attention import TriangleAttention
    from axial_transformers.likelihood.bits import bits_map, bits_per_dim, random_slice_loss
    from axial_transformers.models import AxialTransformer, AxialTransformerConfig
    from axial_transformers.models.residual_network import AxialResNet, AxialResNetConfig
    from axial_transformers.ops.axial_attention import axial_attention, tied_axial_attention
    from axial_transformers.ops.positions import relative_bias, rotary

__version__ = "0.2.0"

_HOMES = {
    "AttentionOptions": "layers.lines",
    "AxialAttention": "layers.attention",
    "AxialBlock": "layers.axial_block",
    "AxialResNet": "models.residual_network",
    "AxialResNetConfig": "models.residual_network",
    "AxialTransformer": "models",
    "AxialTransformerConfig": "models",
    "ChannelsFirst": "layers.attention",
    "CrossAttention": "layers.attention",
    "FullAttention": "layers.attention",
    "LineAttention": "layers.lines",
    "PositionSensitiveAxialAttention": "layers.position_sensitive",
    "TiedAxialAttention": "layers.lines",
    "TriangleAttention": "layers.triangle_attention",
    "axial_attention": "ops.axial_attention",
    "bits_map": "likelihood.bits",
    "bits_per_dim": "likelihood.bits",
    "complete": "decoding.sampling",
    "compress": "compression",
    "decompress": "compression",
    "import_official": "importers.official",
    "open_archive": "compression",
    "random_slice_loss": "likelihood.bits",
    "relative_bias": "ops.positions",
    "rotary": "ops.positions",
    "sample": "decoding.sampling",
    "tied_axial_attention": "ops.axial_attention",
}

__all__ = [
    "AttentionOptions",
    "AxialAttention",
    "AxialBlock",
    "AxialResNet",
    "AxialResNetConfig",
    "AxialTransformer",
    "AxialTransformerConfig",
    "ChannelsFirst",
    "CrossAttention",
    "FullAttention",
    "LineAttention",
    "PositionSensitiveAxialAttention",
    "TiedAxialAttention",
    "TriangleAttention",
    "axial_attention",
    "bits_map",
    "bits_per_dim",
    "complete",
    "compress",
    "decompress",
    "import_official",
    "open_archive",
    "random_slice_loss",
    "relative_bias",
    "rotary",
    "sample",
    "tied_axial_attention",
]


__getattr__ = opened_at_first_use(__name__, _HOMES)


def __dir__() -> list[str]:
    return __all__
