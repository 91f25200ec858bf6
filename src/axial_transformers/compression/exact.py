"""Copy of a model in float64, where two ways to compute the same logits differ by less than `frequencies` allows."""

import copy

from axial_transformers.models import AxialTransformer


def in_float64(model: AxialTransformer) -> AxialTransformer:
    """A copy of the model in float64, without dropout."""
    return copy.deepcopy(model).double().requires_grad_(False).eval()
