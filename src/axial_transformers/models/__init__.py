"""The Axial Transformer of Ho et al. 2019."""

from typing import TYPE_CHECKING

from axial_transformers.doors import opened_at_first_use

if TYPE_CHECKING:
    from axial_transformers.models.arguments import UNCONDITIONAL as UNCONDITIONAL, Conditioning as Conditioning
    from axial_transformers.models.axial_transformer import AxialTransformer as AxialTransformer
    from axial_transformers.models.config import AxialTransformerConfig as AxialTransformerConfig

_HOMES = {
    "UNCONDITIONAL": "arguments",
    "AxialTransformer": "axial_transformer",
    "AxialTransformerConfig": "config",
    "Conditioning": "arguments",
}
__getattr__ = opened_at_first_use(__name__, _HOMES)
