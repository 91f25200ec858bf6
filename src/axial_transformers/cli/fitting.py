"""The work of `axial compress` without a model: train a model on the source itself, for an archive that carries it."""

import warnings
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from axial_transformers.cli.console import say
from axial_transformers.cli.train import from_model
from axial_transformers.cli.training import facts_of, fit_examples, planned, read_training
from axial_transformers.compression.archive import UNLIMITED, Limit, limit_of, tell
from axial_transformers.compression.contents import read_contents
from axial_transformers.data import DataConfig, Examples, is_hub_dataset, load
from axial_transformers.data.scans import is_scan
from axial_transformers.likelihood.evaluation import Fill
from axial_transformers.models import AxialTransformer
from axial_transformers.pictures.other_codecs import coded_sizes
from axial_transformers.progress import bar
from axial_transformers.recipes import of_own_data
from axial_transformers.recipes.custom import BYTES_OF_WEIGHT, MAX_WHOLE, block_of, for_archive
from axial_transformers.training import RunConfig, RunRecord, read_run
from axial_transformers.training.fit import Evaluate
from axial_transformers.training.metrics import Metric

MINUTES = 5.0
"""Of the training, unless --minutes says another number."""
ENOUGH_STEPS = 1_000_000
"""The time ends the training."""
ANY_NUMBER = 1 << 62
"""Of files that are not trained on: the archive stores them nevertheless."""
LEARNS = 1.2
"""What an archive at an evaluation may exceed its limit by: the model will be better."""
SAMPLED = 1 << 19
"""Values that other codecs code before the training, at most."""


def fitted(options: Any, source: Path, archive: Path) -> Path:
    """Train as the options say; return the folder of the run, beside the archive. A run that is there goes on."""
    folder = archive.with_name(f"{archive.name}.run")
    run, begun = _requested(options, source, folder)
    with warnings.catch_warnings(action="ignore"):  # `tell` says what is not modelled
        run, examples = read_training(run, "all")
    if begun is not None and examples.fingerprint != begun.facts.fingerprint:
        raise ValueError(f"{folder} was trained on other data: remove it, or name another archive")
    contents = read_contents(source, run.model, run.data, options.only_data)
    tell(contents)
    limit, values = UNLIMITED if options.force else limit_of(contents, run.model), contents.tiles.values
    stored = len(contents.stored)
    if begun is None and not run.start_from:
        run = for_archive(run, _bytes_of_value(examples) * values)
    run, costs = planned(run, begun)
    of_model = BYTES_OF_WEIGHT * costs.parameters
    if begun is None:
        limit.check(of_model + stored)
        say(f"a model of {source}, width {run.model.dim}: {costs.parameters:,} weights, about {of_model:,.0f} bytes")

    facts = replace(facts_of(run, examples, examples), command=("compress", str(source), str(archive)))
    result = fit_examples(run, begun, examples, examples, facts, partial(_foreseeing, values, of_model + stored, limit))
    if result.ending == "interrupted":
        say(f"stopped at step {result.step}: the archive gets the best weights so far; Ctrl-C again leaves it out")
    say(f"the training is in {folder}: the same command continues it; remove the folder to begin anew")
    return folder


def _requested(options: Any, source: Path, folder: Path) -> tuple[RunConfig, RunRecord | None]:
    named = str(source) if source.is_absolute() or is_hub_dataset(source) else f"./{source}"  # which is no recipe
    begun, minutes = read_run(folder), MINUTES if options.minutes is None else options.minutes
    if begun is not None:
        return replace(begun.run, source=named).changed({"training.minutes": minutes}), begun
    run = replace(of_own_data(named), out=folder, samples=0)
    if options.start_from is not None:
        run = from_model(run, options.start_from)
    settings: dict[str, object] = {
        "model.num_classes": None,
        "training.label_dropout": 0.0,
        "training.steps": ENOUGH_STEPS,
        "training.minutes": minutes,
        "data.skip_bad": ANY_NUMBER,
    }
    given = {"data.axes": options.axes, "data.key": options.key}
    settings |= {name: value for name, value in given.items() if value is not None}
    size = options.size or _block_of_slices(source, DataConfig(axes=options.axes, key=options.key))
    if size is not None:
        settings |= {"data.size": size} if len(size) > 1 else {"data.size": size[0], "data.cut": "tiles"}
    return run.changed(settings), None


def _block_of_slices(source: Path, config: DataConfig) -> tuple[int, ...] | None:
    """Return the block of large images in one array that are slices of a volume: neighbours are alike, as rows are."""
    if source.suffix.lower() not in (".npy", ".npz") or is_scan(source):
        return None
    values = load(source, config, "all").values
    if values.ndim != 4 or values.shape[-1] > 1 or max(values.shape[1:3]) <= MAX_WHOLE:
        return None
    some = values[: max(2, SAMPLED // prod(values.shape[1:]))].astype(np.int64)
    of_images, of_rows = (np.abs(np.diff(some, axis=axis)).mean() for axis in (0, 1))
    return block_of(values.shape[:3]) if of_images < 1.5 * of_rows else None


def _foreseeing(values: int, others: float, limit: Limit, usual: Evaluate) -> Evaluate:
    """Return a callback that evaluates, says how large the archive will be, and ends what would not pay."""

    def whole(model: AxialTransformer, step: int, fill: Fill) -> Mapping[str, Metric]:
        found = usual(model, step, fill)
        expected = float(found["bits_per_dim"]) * values / 8 + others
        say(f"step {step}: about {expected:,.0f} bytes expected, {others:,.0f} of them for the model and stored files")
        if expected > LEARNS * limit.size:
            limit.check(expected)
        return found

    return whole


def _bytes_of_value(examples: Examples) -> float:
    """Return how many bytes a value the best of other codecs takes for a sample."""
    some = examples.spread(max(1, SAMPLED // prod(examples.values.shape[1:])))[:].values
    found = coded_sizes([examples.shape] * len(some), some.__getitem__, bar)
    return min(size for ways in found.values() for size in ways.values()) / some.size
