"""Axial-attention models of multidimensional data: exact likelihood, fast sampling, lossless compression."""

from typing import TYPE_CHECKING

from axial_transformers.doors import opened_at_first_use

if TYPE_CHECKING:
    from axial_transformers.compression import (
        compress as compress,
        decompress as decompress,
        open_archive as open_archive,
    )
    from axial_transformers.decoding.sampling import complete as complete, sample as sample
    from axial_transformers.importers.official import import_official as import_official
    from axial_transformers.layers.attention import (
        AxialAttention as AxialAttention,
        ChannelsFirst as ChannelsFirst,
        CrossAttention as CrossAttention,
        FullAttention as FullAttention,
    )
    from axial_transformers.layers.axial_block import AxialBlock as AxialBlock
    from axial_transformers.layers.lines import (
        AttentionOptions as AttentionOptions,
        LineAttention as LineAttention,
        TiedAxialAttention as TiedAxialAttention,
    )
    from axial_transformers.layers.position_sensitive import (
        PositionSensitiveAxialAttention as PositionSensitiveAxialAttention,
    )
    from axial_transformers.layers.triangle_attention import TriangleAttention as TriangleAttention
    from axial_transformers.likelihood.bits import (
        bits_map as bits_map,
        bits_per_dim as bits_per_dim,
        random_slice_loss as random_slice_loss,
    )
    from axial_transformers.models import (
        AxialTransformer as AxialTransformer,
        AxialTransformerConfig as AxialTransformerConfig,
    )
    from axial_transformers.models.residual_network import (
        AxialResNet as AxialResNet,
        AxialResNetConfig as AxialResNetConfig,
    )
    from axial_transformers.ops.axial_attention import (
        axial_attention as axial_attention,
        tied_axial_attention as tied_axial_attention,
    )
    from axial_transformers.ops.positions import relative_bias as relative_bias, rotary as rotary
    from axial_transformers.recipes.prepare import prepare as prepare

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
    "prepare": "recipes.prepare",
    "random_slice_loss": "likelihood.bits",
    "relative_bias": "ops.positions",
    "rotary": "ops.positions",
    "sample": "decoding.sampling",
    "tied_axial_attention": "ops.axial_attention",
}
__getattr__ = opened_at_first_use(__name__, _HOMES)


def __dir__() -> list[str]:
    return [*_HOMES]
