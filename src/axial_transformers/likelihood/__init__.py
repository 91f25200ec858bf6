"""Exact likelihood, evaluation and outliers."""

from axial_transformers.likelihood.bits import bits_map, bits_per_dim, random_slice_loss, slice_nats
from axial_transformers.likelihood.evaluation import Evaluation, bits_of_each, evaluate, summarise

__all__ = [
    "Evaluation",
    "bits_map",
    "bits_of_each",
    "bits_per_dim",
    "evaluate",
    "random_slice_loss",
    "slice_nats",
    "summarise",
]
