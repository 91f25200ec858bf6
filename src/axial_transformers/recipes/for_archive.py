"""A model for one archive: trained on all that the archive will hold, and of the size that pays."""

import logging
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from axial_transformers.compression.archive import UNLIMITED, Limit, input_limit, tell
from axial_transformers.compression.contents import Contents, read_contents
from axial_transformers.data import Examples, Source, open_source
from axial_transformers.data.source import source_name
from axial_transformers.likelihood.evaluation import Fill
from axial_transformers.models import AxialTransformer
from axial_transformers.pictures.other_codecs import coded_sizes
from axial_transformers.progress import Display, NamedProgress, silent
from axial_transformers.recipes.custom import (
    BYTES_OF_WEIGHT,
    MAX_WHOLE,
    block_of,
    narrow_for_archive,
    of_own_data,
    with_levels,
)
from axial_transformers.recipes.prepare import Prepared, begin_with, decide_cut, decide_model, finish_preparing
from axial_transformers.training import RunConfig, RunState, read_run
from axial_transformers.training.fit import Evaluate
from axial_transformers.training.metrics import Metric

MINUTES = 5.0
"""Minutes of training, unless the user says another number."""
ENOUGH_STEPS = 1_000_000
"""The time ends the training."""
ANY_NUMBER = 1 << 62
"""Files that are not trained on, at most: the archive stores them nevertheless."""
LEARNS = 1.2
"""What an archive at an evaluation may exceed its limit by: the model will be better."""
SAMPLED = 1 << 19
"""Values that other codecs code before the training, at most."""

log = logging.getLogger("axial_transformers")


@dataclass(frozen=True, kw_only=True)
class PreparedArchive:
    """A run that is ready to train a model for an archive."""

    prepared: Prepared
    contents: Contents
    """What goes into the archive."""
    limit: Limit
    """The bytes that the archive may take."""

    @property
    def other_bytes(self) -> float:
        """Bytes of the model, about, and of stored files."""
        return BYTES_OF_WEIGHT * self.prepared.costs.parameters + len(self.contents.stored)

    def train(self, display: Display | None = None, *, command: Sequence[str] | None = None) -> RunState:
        """Train, and end what would not pay; see `Prepared.train`.

        Raises:
            NoGainError: the archive would be too large; a ValueError.
        """
        wrap = partial(_foreseeing, self.contents.values, self.other_bytes, self.limit)
        return self.prepared.train(display, command=command, wrap=wrap)


def prepare_for_archive(
    source: str | Path,
    folder: Path,
    settings: Mapping[str, Any],
    *,
    start_from: str | None = None,
    only_data: bool = False,
    force: bool = False,
    progress: NamedProgress = silent,
) -> PreparedArchive:
    """Read all of a source, and decide on a model of it that pays; a run that is in the folder goes on.

    Args:
        source: as `data.load` takes it.
        folder: of the run.
        settings: of the run, by name, such as training.minutes or data.size.
        start_from: a model that gives the first weights.
        only_data: leave out files that are no data.
        force: prepare even if the archive will not pay.
        progress: returns the wrapper of a loop with this name.

    Raises:
        NoGainError: the archive would be too large; a ValueError.
        ValueError: the folder's run is of other data, or reads them in another way.
    """
    begun = read_run(folder)
    if begun:
        run = replace(begun.run, source=source_name(source)).changed({"training.minutes": MINUTES, **settings})
        if run.data != begun.run.data:
            raise ValueError(f"{folder} was begun with other settings of data: remove it, or name another archive")
    else:
        run = _new_run(source, folder, start_from).changed(settings)
    opened = open_source(source, run.data, progress("reading files"))
    block = None if begun or run.data.size else _slice_block(opened)
    if block is not None:
        run = run.changed({"data.size": block})
    run, opened = decide_cut(run, opened)
    with warnings.catch_warnings(action="ignore"):  # `tell` says what is not modelled
        examples = opened.part("all")
    run = with_levels(decide_model(run, examples), run, [examples], least=1)
    if begun is not None and examples.fingerprint != begun.facts.fingerprint:
        raise ValueError(f"{folder} was trained on other data: remove it, or name another archive")
    contents = read_contents(opened, run.model, only_data)
    tell(contents)
    if begun is None and not run.start_from:
        run = narrow_for_archive(run, _value_bytes(examples, progress) * contents.values)
    prepared = finish_preparing(run, opened, examples, examples, None, begun, progress)
    limit = UNLIMITED if force else input_limit(contents, run.model)
    ready = PreparedArchive(prepared=prepared, contents=contents, limit=limit)
    if begun is None:
        limit.check(ready.other_bytes)
        weights = prepared.costs.parameters
        log.info(
            f"a model of {source}, width {run.model.dim}: {weights:,} weights, about"
            f" {BYTES_OF_WEIGHT * weights:,.0f} bytes"
        )
    return ready


def _new_run(source: str | Path, folder: Path, start_from: str | None) -> RunConfig:
    """Return a run on all that a source holds."""
    run = replace(of_own_data(source_name(source)), out=folder, samples=0)
    if start_from is not None:
        run = begin_with(run, start_from)
    return run.changed(
        {
            "model.num_classes": None,
            "training.label_dropout": 0.0,
            "training.steps": ENOUGH_STEPS,
            "training.minutes": MINUTES,
            "data.skip_bad": ANY_NUMBER,
        }
    )


def _slice_block(source: Source) -> tuple[int, ...] | None:
    """Return the block of large images in one array that are slices of a volume: neighbours are alike, as rows are."""
    if source.listing.kind != "array" or not source.listing.is_one_file:
        return None
    _, sizes = source.example_axes
    if not sizes or len(sizes[0]) != 2 or max(sizes[0]) <= MAX_WHOLE:
        return None
    values = source.part("all").values
    if values.shape[-1] > 1:
        return None
    slices = values[: max(2, SAMPLED // prod(values.shape[1:]))].astype(np.int64)
    between_slices = np.abs(np.diff(slices, axis=0)).mean()
    between_rows = np.abs(np.diff(slices, axis=1)).mean()
    return block_of(values.shape[:3]) if between_slices < 1.5 * between_rows else None


def _foreseeing(values: int, others: float, limit: Limit, usual: Evaluate) -> Evaluate:
    """Return a callback that evaluates, says how large the archive will be, and ends what would not pay."""

    def evaluate(model: AxialTransformer, step: int, fill: Fill) -> Mapping[str, Metric]:
        metrics = usual(model, step, fill)
        expected = float(metrics["bits_per_dim"]) * values / 8 + others
        log.info(
            f"step {step}: about {expected:,.0f} bytes expected, {others:,.0f} of them for the model and stored files"
        )
        if expected > LEARNS * limit.size:
            limit.check(expected)
        return metrics

    return evaluate


def _value_bytes(examples: Examples, progress: NamedProgress) -> float:
    """Return how many bytes a value the best of PNG, WebP and xz takes for a sample.

    The width of the model depends on it, so no codec counts that not everyone has.
    """
    count = max(1, SAMPLED // prod(examples.values.shape[1:]))
    values = np.asarray(examples.spread(count)[:].values)
    return min(coded.bytes for coded in coded_sizes([*values], progress, extras=False)) / values.size
