"""A trained model, with the source of its data."""

import logging
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from axial_transformers.data import DataConfig, EmptySplitError, Examples, Split, is_hub_dataset, load
from axial_transformers.data.blocks_of_arrays import Blocks
from axial_transformers.data.images import SUFFIXES
from axial_transformers.data.kinds import kind_of
from axial_transformers.data.scans import Scan, is_scan, read_scan
from axial_transformers.data.value_range import ValueRange
from axial_transformers.models import AxialTransformer, AxialTransformerConfig
from axial_transformers.models.baselines.by_name import read_model
from axial_transformers.progress import bar
from axial_transformers.training.checkpoints import raw_weights
from axial_transformers.training.config import find_device
from axial_transformers.training.run_folder import read_run

Weights = Literal["ema", "raw"]

log = logging.getLogger("axial_transformers")


@dataclass(frozen=True)
class TrainedModel:
    """A model, the name of its weights, and the source and options of its training data."""

    model: AxialTransformer
    weights: str
    source: str | None
    data: DataConfig
    class_names: tuple[str, ...] | None
    folder: str

    @property
    def kind(self) -> str:
        """Return what an example is called; see `data.kinds`."""
        return kind_of(self.model.config, self.data.axes)

    def examples(self, source: str | Path | None, split: Split | None) -> tuple[Examples, str]:
        """Return examples of `source`, read as the model's data was, and their description.

        Args:
            source: None: the model's own data.
            split: None: all of a given `source`; otherwise the test part, or else the validation part.
        """
        if source is None and self.source is None:
            raise ValueError("this model does not know its data: name a folder, an .npz file, or digits")
        if source is None and self.source is not None:
            check_recorded(self.folder, self.source)
        where = str(source or self.source or "")
        options = self.data if split is None and source is None else self._data_of(source)
        options = replace(options, grid=self.model.config.grid)
        wanted: list[Split] = [split] if split else ["all"] if source else ["test", "validation"]
        examples, split = _first_there(where, options, wanted)
        check_shape(examples, self.model.config, where)
        check_values(examples, self.model.config, where)
        return examples, f"{where}, {split}"

    def scan(self, source: str | Path | None = None) -> Scan | None:
        """Return the file of `source`, or of the model's data, if it is a scan."""
        where = source or self.source
        return read_scan(where) if where is not None and is_scan(where) else None

    def label(self, word: str | None) -> torch.Tensor | None:
        """Return the class of this name or number as a tensor without axes."""
        if word is None:
            return None
        count, names = self.model.config.num_classes, self.class_names or ()
        if count is None:
            raise ValueError(f"label={word}: this model was trained without classes")
        if word in names:
            return torch.tensor(names.index(word))
        if word.isdecimal() and len(word) < 19 and int(word) < count:
            return torch.tensor(int(word))
        called = ", called " * bool(names) + ", ".join(names)
        raise ValueError(f"label={word}: the classes are 0 to {count - 1}{called}")

    def _data_of(self, source: str | Path | None) -> DataConfig:
        if self.data.size is None and source is not None and is_scan(source):
            return replace(self.data, size=self.model.config.shape)
        pictures = source is not None and (Path(source).is_dir() or Path(source).suffix.lower() in SUFFIXES)
        in_colour: dict[int, Literal["rgb", "rgba"]] = {3: "rgb", 4: "rgba"}
        mode = in_colour.get(self.model.config.channels)
        return replace(self.data, mode=mode) if pictures and mode and self.data.mode == "auto" else self.data


def _first_there(source: str, options: DataConfig, splits: Sequence[Split]) -> tuple[Examples, Split]:
    for split in splits:
        with suppress(EmptySplitError):
            return load(source, options, split, bar("reading")), split
    raise ValueError(f"{source} has no {' or '.join(splits)} examples: take split=all, or other data")


def check_shape(examples: Examples, config: AxialTransformerConfig, source: str) -> None:
    """Raise ValueError, with advice, where examples and model differ in shape."""
    here, there = [*examples.shape, examples.channels], [*config.shape, config.channels]
    if here != there:
        ways = "data.size, data.fit=crop, stretch or tiles, and data.mode=gray, rgb or rgba change images"
        raise ValueError(f"{source} holds {here} values an example, the model is of {there}: {ways}")


def check_values(examples: Examples, config: AxialTransformerConfig, source: str, advise: bool = False) -> None:
    """Raise ValueError where values in memory are beyond those of the model; others are checked when they are read."""
    if found := range_of_examples(examples):
        found.require_within(config.range, source, advise)


def range_of_examples(examples: Examples) -> ValueRange | None:
    """Return the range of values in memory; None for those that are read on demand, and checked then."""
    values: object = examples.values
    if not isinstance(values, np.ndarray | Blocks):
        return None
    return values.range if isinstance(values, Blocks) else ValueRange.of(values)._replace(grid=examples.range.grid)


def check_recorded(folder: str | Path, source: str) -> None:
    """Log which data a run's record names; refuse those of the hub, since a foreign run may name anything."""
    shown = source[:300]
    if source == "digits":
        return
    if is_hub_dataset(source):
        raise ValueError(f"{folder} is of {shown}, which is fetched only if it is named: add it after the folder")
    path = Path(source.split("::")[0])  # file::dataset
    if not os.path.lexists(path):
        raise FileNotFoundError(f"the data of {folder}, {shown}, is gone: name its new path after the folder")
    log.info("reading %s, the data that %s names", shown, folder)


def open_model(folder: str | Path, weights: Weights = "ema", device: str = "auto") -> TrainedModel:
    """Read a run, an exported model or a hub id, in evaluation mode."""
    model = read_model(folder)
    record = read_run(folder)
    described = "EMA" if record else "as stored"
    if weights == "raw":
        step, tensors = raw_weights(folder, model.state_dict())
        model.load_state_dict(tensors)
        described = f"raw, {step}"
    return TrainedModel(
        model.to(find_device(device)),
        described,
        None if record is None else record.run.source,
        DataConfig() if record is None else replace(record.run.data, offsets="fixed"),
        None if record is None else record.facts.class_names,
        str(folder),
    )
