"""Data: integers [N, *A, C] with names, labels and a fingerprint, from sources of every kind."""

from typing import TYPE_CHECKING

from axial_transformers.doors import opened_at_first_use

if TYPE_CHECKING:
    from axial_transformers.data.arrays import save_arrays as save_arrays
    from axial_transformers.data.config import (
        DataConfig as DataConfig,
        Split as Split,
        is_hub_dataset as is_hub_dataset,
    )
    from axial_transformers.data.examples import Examples as Examples, examples_from as examples_from
    from axial_transformers.data.source import Source as Source, load as load, open_source as open_source
    from axial_transformers.data.splits import EmptySplitError as EmptySplitError

_HOMES = {
    "DataConfig": "config",
    "EmptySplitError": "splits",
    "Examples": "examples",
    "Source": "source",
    "Split": "config",
    "examples_from": "examples",
    "is_hub_dataset": "config",
    "load": "source",
    "open_source": "source",
    "save_arrays": "arrays",
}
__getattr__ = opened_at_first_use(__name__, _HOMES)
