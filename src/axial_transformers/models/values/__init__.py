"""What the values of a model are: how layers see them, and how the last state becomes a distribution.

    categorical   a table of V rows; a softmax of V logits (the paper)
    ordinal       features of numbers; a mixture of K logistic distributions, discretised

Each kind is one class, `Values` says what it has. The network reads the *code* of a position: its value or, if values
are centred, value + V * prediction. So one integer tensor flows through the model, and each part takes from it what it
needs.
"""

from axial_transformers.models.config import AxialTransformerConfig
from axial_transformers.models.values.categorical import CategoricalValues
from axial_transformers.models.values.kind import Distribution, Values
from axial_transformers.models.values.ordinal import OrdinalValues

KINDS: dict[str, type[Values]] = {"categorical": CategoricalValues, "ordinal": OrdinalValues}
"""By `AxialTransformerConfig.values`."""

__all__ = ["KINDS", "Distribution", "Values", "values_class"]


def values_class(config: AxialTransformerConfig) -> type[Values]:
    """Return the class of the values of a model."""
    return KINDS[config.values]
