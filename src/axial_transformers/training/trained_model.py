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

from axial_transformers.data import (
    DataConfig,
    EmptySplitError,
    Examples,
    Source,
    Split,
    is_hub_dataset,
    open_source,
    tables,
)
from axial_transformers.data.blocks import Blocks
from axial_transformers.data.images import SUFFIXES
from axial_transformers.data.kinds import kind_of
from axial_transformers.data.scans import Scan, is_scan, read_scan
from axial_transformers.data.splits import part_of_file, part_of_folder
from axial_transformers.data.value_range import ValueRange
from axial_transformers.models import AxialTransformer, AxialTransformerConfig
from axial_transformers.progress import bar
from axial_transformers.training.config import find_device
from axial_transformers.training.run_folder import Facts, read_run

Weights = Literal["ema", "raw"]

log = logging.getLogger("axial_transformers")


@dataclass(frozen=True)
class TrainedModel:
    """A model, the name of its weights, and the source and options of its training data."""

    model: AxialTransformer
    weights: str
    source: str | None
    data: DataConfig
    facts: Facts | None
    """What was found in these data; None: it is not known."""
    folder: str
    trained_on: tuple[DataConfig, str] | None = None
    """How the training part was read, and its fingerprint."""

    @property
    def inputs(self) -> list[str | Path | None]:
        """Return what was read: files of the model, and the source of its data, if it is known."""
        return [*Path(self.folder).glob("*.json"), self.source]

    @property
    def class_names(self) -> tuple[str, ...] | None:
        return None if self.facts is None else self.facts.class_names

    @property
    def columns(self) -> tuple[str, ...] | None:
        """Return the titles of the columns, if the data are a table."""
        return None if self.facts is None else self.facts.columns

    @property
    def kind(self) -> str:
        """Return what an example is called; see `data.kinds`."""
        return kind_of(self.model.config, self.data.axes)

    def examples(self, source: str | Path | None, split: Split | None) -> tuple[Examples, str]:
        """Return examples of `source`, read as the model's data was, and their description.

        Columns of a table come in the model's order, by their titles.

        Args:
            source: None: the model's own data.
            split: None: all of other data than the model's own; of these the test part, or else the validation part.
        """
        if source is None:
            if self.source is None:
                raise ValueError("this model does not know its data: name a folder, an .npz file, or digits")
            check_recorded(self.folder, self.source)
        where = str(source or self.source)
        own = source is None or self._is_own(source)
        opened = None
        if not own and split is None:
            opened = self._open_own_copy(where)
            own = opened is not None
        if opened is None:
            options = self.data if own else self._data_options(where)
            opened = open_source(where, replace(options, grid=self.model.config.grid), bar("reading files"))
        splits: list[Split] = ["test", "validation"] if own else ["all"]
        examples, taken = _first_part(opened, [split] if split else splits)
        if own and source is not None and split is None:
            log.info(
                "%s is what %s was trained on: only its %s part is taken; split=all takes all",
                where,
                self.folder,
                taken,
            )
        check_shape(examples, self.model.config, where)
        examples = examples.with_columns(self.columns, where)
        check_values(examples, self.model.config, where)
        return examples, f"{where}, {taken}"

    def _is_own(self, source: str | Path) -> bool:
        """Return True for the source of the model's data; warn of a part of it that may have trained the model."""
        if self.source is None:
            return False
        if "digits" in (source, self.source) or is_hub_dataset(source) or is_hub_dataset(self.source):
            return str(source).partition("@")[0] == self.source.partition("@")[0]
        path = Path(source).resolve()
        own = Path(self.source).resolve()
        if own in path.parents:
            first = path.relative_to(own).parts[0]
            split = part_of_folder(first) or part_of_file(Path(first).stem)
            if split not in ("validation", "test"):
                log.warning("%s is a part of the data of %s, which may have trained on it", source, self.folder)
        return path == own

    def _open_own_copy(self, source: str | Path) -> Source | None:
        """Return the model's data at another path, by their training part; None for other data.

        That is read only if the data have the same name, or are not where they were. Of a model in the package, whose
        data have no place, only a single file is.
        """
        if self.trained_on is None or (self.source is None and Path(source).is_dir()):
            return None
        own = self.source
        if own and Path(source).name != Path(own).name and (own == "digits" or is_hub_dataset(own) or _is_there(own)):
            return None
        data, fingerprint = self.trained_on
        with suppress(ValueError, OSError):  # other data
            opened = open_source(source, data, bar("reading files"))
            if opened.part("train").fingerprint == fingerprint:
                return opened
        return None

    def labels(self, examples: Examples, where: str, wanted: bool = False) -> torch.Tensor | None:
        """Return the model's numbers of the examples' classes [N], by the names of these; None: without labels.

        Args:
            where: what messages call the examples.
            wanted: give labels to a model that can do without.

        Raises:
            ValueError: the examples have no labels, or the model does not know their classes.
        """
        config = self.model.config
        if not (wanted or config.needs_label):
            return None
        if config.num_classes is None:
            raise ValueError(f"labels of {where}: {self.folder} was trained without classes")
        if examples.labels is None:
            raise ValueError(f"{where} has no labels, and {self.folder} was trained with labels: {self._classes}")
        numbers = examples.classes_among(self.known_classes, where)
        if not wanted:
            log.info("the labels of %s are used: %s was trained with labels only", where, self.folder)
        return torch.from_numpy(numbers)

    def examples_to_use(self, source: str | Path | None, split: Split | None) -> Examples:
        """Return `examples` with the labels that the model needs, in its numbers; with none if it needs none."""
        examples, where = self.examples(source, split)
        labels = self.labels(examples, where)
        return replace(examples, labels=None if labels is None else labels.numpy())

    @property
    def known_classes(self) -> tuple[str, ...]:
        """Return a name for each class of the model, its number if there is no other."""
        return self.model.config.names_of_classes(self.class_names)

    def require_columns(self, source: str | Path) -> None:
        """Raise ValueError for a table whose titles are not those of the model in the same order."""
        if self.columns is None or Path(source).suffix.lower() not in tables.SUFFIXES:
            return
        titles = tables.read_table(Path(source), self.data.label_column, self.data.decimal).titles
        if titles is not None and titles != self.columns:
            both = f"the columns {', '.join(titles)}, not {', '.join(self.columns)}"
            raise ValueError(f"{source} has {both}: bring them into this order, or leave out the model")

    def scan(self, source: str | Path | None = None) -> Scan | None:
        """Return the file of `source`, or of the model's data, if it is a scan."""
        where = source or self.source
        return read_scan(where, self.data.axes) if where is not None and is_scan(where) else None

    def label(self, word: str | None) -> torch.Tensor | None:
        """Return the class of this name or number as a tensor without axes; None: without a label.

        Raises:
            ValueError: there is no such class, or the model needs one.
        """
        config = self.model.config
        names = self.class_names or ()
        if word is None:
            if config.needs_label:
                raise ValueError(f"label=None: {self.folder} was trained with labels only: {self._classes}")
            return None
        if config.num_classes is None:
            raise ValueError(f"label={word}: this model was trained without classes")
        if word in names:
            number = names.index(word)
        elif word.isdecimal() and len(word) < 19 and int(word) < config.num_classes:
            number = int(word)
        else:
            raise ValueError(f"label={word}: {self._classes}")
        return torch.tensor(number, device="cpu")

    @property
    def _classes(self) -> str:
        """Return in words which classes there are."""
        text = f"the classes are 0 to {(self.model.config.num_classes or 0) - 1}"
        if self.class_names:
            text += f", called {', '.join(self.class_names)}"
        return text

    def _data_options(self, source: str | Path) -> DataConfig:
        if self.data.size is None and is_scan(source):
            return replace(self.data, size=self.model.config.shape)
        images = Path(source).is_dir() or Path(source).suffix.lower() in SUFFIXES
        channels = self.model.config.channels
        if images and channels in (3, 4) and self.data.mode == "auto":
            return replace(self.data, mode="rgb" if channels == 3 else "rgba")
        return self.data


def _first_part(source: Source, splits: Sequence[Split]) -> tuple[Examples, Split]:
    """Return the first of the splits that has examples."""
    for split in splits:
        with suppress(EmptySplitError):
            return source.part(split), split
    raise ValueError(f"{source.name} has no {' or '.join(splits)} examples: take split=all, or other data")


def check_shape(examples: Examples, config: AxialTransformerConfig, source: str) -> None:
    """Raise ValueError, with advice, where examples and model differ in shape."""
    here = (*examples.shape, examples.channels)
    there = (*config.shape, config.channels)
    if here != there:
        sizes = [" x ".join(map(str, lengths)) for lengths in (here, there)]
        raise ValueError(
            f"an example of {source} has {sizes[0]} values, the model is of {sizes[1]}: images can be changed by "
            "data.size with data.cut=crop, stretch or tiles, and data.mode=gray, rgb or rgba"
        )


def check_values(examples: Examples, config: AxialTransformerConfig, source: str, advise: bool = False) -> None:
    """Raise ValueError where values in memory are beyond those of the model; others are checked when they are read."""
    values = range_of_examples(examples)
    if values is not None:
        values.require_within(config.range, source, advise)
    counts = examples.value_counts(config.range) if config.levels else None
    if counts is not None:
        counts[np.array(config.levels) - config.lowest] = 0
        if counts.any():
            other = int(counts.argmax()) + config.lowest
            raise ValueError(
                f"{source} holds {other}, which is none of the {config.num_values:,} values that the model knows: for"
                " all of the range, train one with data.num_values"
            )


def range_of_examples(examples: Examples) -> ValueRange | None:
    """Return the range of values in memory; None for those that are read on demand, and checked then."""
    values = examples.values
    if isinstance(values, Blocks):
        return values.range
    if isinstance(values, np.ndarray):
        return ValueRange.of(values)._replace(grid=examples.range.grid)
    return None


def check_recorded(folder: str | Path, source: str) -> None:
    """Log which data a run's record names; refuse those of the hub, since a foreign run may name anything."""
    shown = source[:300]
    if source == "digits":
        return
    if is_hub_dataset(source):
        raise ValueError(f"{folder} is of {shown}, which is fetched only if it is named: add it after the folder")
    if not _is_there(source):
        raise FileNotFoundError(f"the data of {folder}, {shown}, is gone: name its new path after the folder")
    log.info("reading %s, the data that %s names", shown, folder)


def _is_there(source: str) -> bool:
    return os.path.lexists(source.split("::")[0])  # of file::dataset


def open_model(folder: str | Path, weights: Weights = "ema", device: str = "auto") -> TrainedModel:
    """Read a run, an exported model or a hub id, in evaluation mode."""
    model = AxialTransformer.from_pretrained(folder)
    record = read_run(folder)
    described = "EMA" if record else "as stored"
    if weights == "raw":
        from axial_transformers.training.checkpoints import raw_weights  # of training, which takes long to import

        step, tensors = raw_weights(folder, model.state_dict())
        model.load_state_dict(tensors)
        described = f"raw, {step}"
    model.to(find_device(device))
    if record is None:
        return TrainedModel(model, described, None, DataConfig(), None, str(folder))
    run = record.run
    return TrainedModel(
        model,
        described,
        source=run.source,
        data=replace(run.data, offsets="fixed"),
        facts=record.facts,
        folder=str(folder),
        trained_on=(run.data, record.facts.fingerprint),
    )
