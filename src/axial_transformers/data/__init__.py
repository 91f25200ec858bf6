"""Data: integers [N, *A, C] with names, labels and a fingerprint, from sources of every kind."""

from typing import TYPE_CHECKING

from axial_transformers.doors import opened_at_first_use

if TYPE_CHECKING:
    from axial_transformers.data.arrays import save_arrays
    from axial_transformers.data.config import DataConfig, Split, is_hub_dataset
    from axial_transformers.data.examples import Examples, examples_from
    from axial_transformers.data.loading import example_sizes, load
    from axial_transformers.data.splits import EmptySplitError

__all__ = [
    "DataConfig",
    "EmptySplitError",
    "Examples",
    "Split",
    "example_sizes",
    "examples_from",
    "is_hub_dataset",
    "load",
    "save_arrays",
]

__getattr__ = opened_at_first_use(
    __name__,
    {
        "DataConfig": "config",
        "EmptySplitError": "splits",
        "Examples": "examples",
        "Split": "config",
        "example_sizes": "loading",
        "examples_from": "examples",
        "is_hub_dataset": "config",
        "load": "loading",
        "save_arrays": "arrays",
    },
)
