"""Data: integers [N, *A, C] with names, labels and a fingerprint, from sources of every kind."""

from typing import TYPE_CHECKING

from axial_transformers.doors import opened_at_first_use

if TYPE_CHECKING:
    from axial_transformers.data.arrays import imagenet_version, save_arrays
    from axial_transformers.data.config import DataConfig, Split, is_hub_dataset
    from axial_transformers.data.examples import Examples, examples_from
    from axial_transformers.data.loading import load, picture_sizes, scan_axes
    from axial_transformers.data.splits import EmptySplitError

__all__ = [
    "DataConfig",
    "EmptySplitError",
    "Examples",
    "Split",
    "examples_from",
    "imagenet_version",
    "is_hub_dataset",
    "load",
    "picture_sizes",
    "save_arrays",
    "scan_axes",
]

__getattr__ = opened_at_first_use(
    __name__,
    {
        "DataConfig": "config",
        "EmptySplitError": "splits",
        "Examples": "examples",
        "Split": "config",
        "examples_from": "examples",
        "imagenet_version": "arrays",
        "is_hub_dataset": "config",
        "load": "loading",
        "picture_sizes": "loading",
        "save_arrays": "arrays",
        "scan_axes": "loading",
    },
)
