"""A model's exact twin: in float64, where two ways to compute the same logits hardly differ."""

import copy

from axial_transformers.models import AxialTransformer


def in_float64(model: AxialTransformer) -> AxialTransformer:
    """A copy of the model in float64, without dropout."""
    return copy.deepcopy(model).double().requires_grad_(False).eval()
