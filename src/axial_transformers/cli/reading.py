"""Options of reading data for a model that exists: what is not given is as when it was trained."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Annotated, Literal

import numpy as np
import torch
from tyro.conf import arg

from axial_transformers.cli import did_you_mean
from axial_transformers.cli.runs import TrainedModel
from axial_transformers.data import Examples

Fit = Literal["exact", "crop", "stretch", "tiles"]


@dataclass(frozen=True, kw_only=True)
class Reading:
    """Settings that replace those of the run; None: as when the model was trained."""

    size: int | None = None
    """Side in pixels of the square images and frames that a folder is fitted to."""
    fit: Fit | None = None
    """Fitting to the size: exact refuses other sizes, crop cuts out the centre, stretch resizes both sides, tiles cuts
    without overlap."""
    frames: int | None = None
    """Frames of a clip."""
    stride: int | None = None
    """Every stride-th frame of a video is taken, from the first."""
    mode: Literal["auto", "rgb", "gray"] | None = None
    """Channels of a folder's images and videos."""
    channels_last: bool | None = None
    """The last axis of an array is channels."""
    axes: str | None = None
    """The axes of an array, one letter each, such as NCHW."""
    key: str | None = None
    """Name of the array within an .npz file."""
    skip_bad: Annotated[int | None, arg(aliases=("--skip-bad",))] = None
    """Leave out at most so many damaged examples."""

    def of(self, trained: TrainedModel) -> TrainedModel:
        """The same model, whose data is read with these settings; pictures are fitted to its size if to no other."""
        given = {each.name: getattr(self, each.name) for each in fields(self) if getattr(self, each.name) is not None}
        sides = trained.model.config.shape[-2:]
        if self.fit is not None and self.size is None and trained.data.size is None and len({*sides}) < len(sides):
            given["size"] = sides[0]
        return replace(trained, data=replace(trained.data, **given))


def limited(examples: Examples, limit: int | None) -> Examples:
    """At most `limit` of the examples, evenly spaced, since neighbours are often of one class or picture."""
    if limit is None or limit >= len(examples):
        return examples
    return examples[np.arange(limit) * len(examples) // limit]


def chosen(examples: Examples, words: Sequence[str]) -> Examples:
    """The examples of these names or positions (from 0), in this order.

    Raises:
        ValueError: there is no such example.
    """
    places = {name: place for place, name in reversed(list(enumerate(examples.names)))}
    found = []
    for word in words:
        place = places.get(word, int(word) if word.isdecimal() and len(word) < 19 else -1)
        if not 0 <= place < len(examples):
            raise ValueError(
                f"--only {word}: no such example; there are positions 0 to {len(examples) - 1:,}, and names such as"
                f" {examples.names[0]}"
            )
        found.append(place)
    return examples[np.array(found)]


def label_of(trained: TrainedModel, word: str | None) -> torch.Tensor | None:
    """The class that --label names, or numbers from 0, as a tensor without axes; None if none is named.

    Raises:
        ValueError: the model has no classes, or not this one.
    """
    if word is None:
        return None
    count, names = trained.model.config.num_classes, trained.class_names or ()
    if count is None:
        raise ValueError(f"--label {word}: this model was trained without classes")
    if word in names:
        return torch.tensor(names.index(word))
    if word.isdecimal() and len(word) < 19 and int(word) < count:
        return torch.tensor(int(word))
    known = did_you_mean(word, names) if names else ""
    raise ValueError(f"--label {word}: the classes are 0 to {count - 1}{known}")
