"""Warnings of a validation or test part whose bits/dim mean little."""

import re
import warnings
from pathlib import Path

import numpy as np

from axial_transformers.data import bair_videos
from axial_transformers.data.config import Split
from axial_transformers.data.examples import Examples
from axial_transformers.progress import rank

FEW = 8
"""Examples, or files that they are cut from, of which a part has fewer with a warning."""
NEARLY_ALL = 0.99
"""Share of equal values of a part that is warned of."""


def warn_of_poor_part(source: str | Path, examples: Examples, split: Split) -> None:
    """Warns of a part that comes from few examples, or is nearly constant."""
    _say_small(source, examples, split)
    _say_constant(source, examples, split)


def _say_small(source: Path | str, examples: Examples, split: Split) -> None:
    """Warns of a part that comes from few pictures, videos or arrays, however many tiles or clips they are cut into."""
    origins = set[str]()
    for name in examples.names:
        origins.add(_origin(name, Path(source).name))
        if len(origins) == FEW:
            return
    if rank() == 0:  # of the processes that torchrun started, one speaks
        are_whole = len(origins) == len(examples) or name.partition("#")[0].isdecimal()  # of an array
        count = f"{len(origins)} {'example' if are_whole else 'file'}{'s'[: len(origins) != 1]}"
        way_out = f"its bits/dim mean little: train with a larger --data.{split}-fraction, or with more data"
        warnings.warn(f"the {split} part of {source} has only {count}: {way_out}", stacklevel=4)


def _say_constant(source: Path | str, examples: Examples, split: Split) -> None:
    """Warns of a part in memory that is nearly constant, such as the last slices of a scan."""
    if not isinstance(examples.values, np.ndarray):
        return
    values = examples.values.flat[:: 1 + (examples.values.size >> 20)]
    share = np.bincount(values).max() / len(values)
    if share >= NEARLY_ALL and rank() == 0:
        warnings.warn(
            f"the {split} part of {source} is nearly constant: {share:.1%} of its values are equal, and its bits/dim"
            f" mean little: take a larger --data.{split}-fraction, or put the examples into another order",
            stacklevel=4,
        )


def _origin(name: str, source: str) -> str:
    """The picture or video that an example of that name is cut from; itself where the source is one video, or records
    are videos."""
    origin = re.sub(r"(#\d{4,})?(#\d+,\d+)?$", "", name)
    return name if origin == source or any(f"{suffix}#" in name for suffix in bair_videos.SUFFIXES) else origin
