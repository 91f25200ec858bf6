"""Data: integers uint8 [N, *A, C] with names, labels and a fingerprint, from sources of every kind."""

from axial_transformers.data.arrays import save_arrays
from axial_transformers.data.config import DataConfig, Split
from axial_transformers.data.examples import Examples
from axial_transformers.data.imagenet_batches import imagenet_version
from axial_transformers.data.loading import load
from axial_transformers.data.movies import MOVIES, save_movie
from axial_transformers.data.own_datasets import examples_from
from axial_transformers.data.picture_sizes import picture_sizes
from axial_transformers.data.shards import names_shards
from axial_transformers.data.splits import EmptySplitError
from axial_transformers.data.uint16 import join_uint16, split_uint16

__all__ = [
    "MOVIES",
    "DataConfig",
    "EmptySplitError",
    "Examples",
    "Split",
    "examples_from",
    "imagenet_version",
    "join_uint16",
    "load",
    "names_shards",
    "picture_sizes",
    "save_arrays",
    "save_movie",
    "split_uint16",
]
