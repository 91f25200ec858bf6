"""Weights of other implementations."""

from axial_transformers.importers.axial_attention_package import from_axial_attention
from axial_transformers.importers.axial_deeplab import load_axial_deeplab
from axial_transformers.importers.official import import_official, import_official_to
from axial_transformers.importers.official_variables import VariablesError
from axial_transformers.storage.tensorflow import FormatError

__all__ = [
    "FormatError",
    "VariablesError",
    "from_axial_attention",
    "import_official",
    "import_official_to",
    "load_axial_deeplab",
]
