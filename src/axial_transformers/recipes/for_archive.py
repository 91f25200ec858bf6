"""A model for one archive: trained on all that the archive will hold, and of the size that pays."""

import logging
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from axial_transformers.compression.archive import UNLIMITED, Limit, input_limit, tell
from axial_transformers.compression.contents import Contents, read_contents
from axial_transformers.data import Examples, Source, open_source
from axial_transformers.data.source import source_name
from axial_transformers.likelihood.bits import bits_per_dim
from axial_transformers.likelihood.evaluation import Fill
from axial_transformers.models import AxialTransformer
from axial_transformers.models.config import MAX_DEPTH
from axial_transformers.pictures.other_codecs import coded_sizes
from axial_transformers.progress import Bar, Display, NamedProgress, silent
from axial_transformers.recipes.custom import (
    BYTES_OF_WEIGHT,
    MAX_WHOLE,
    block_of,
    narrow_for_archive,
    of_own_data,
    with_levels,
)
from axial_transformers.recipes.prepare import Prepared, begin_with, decide_cut, decide_model, finish_preparing
from axial_transformers.storage.model_folders import SHIPPED, is_shipped, shipped_names
from axial_transformers.training import RunConfig, RunRecord, RunState, read_run
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
TRIAL_STEPS = 100
"""Steps after which a new model is compared with one of the package."""
SAVES = 0.05
"""Part of the bytes that a model of the package must save. An archive that holds its model needs no package."""
SLAB = 8
"""Slices, or rows, in the middle of a scan by which frames are compared."""
TOGETHER = 16
"""Examples of a sample that are evaluated together."""
CHANGES: Mapping[str, Any] = {
    "training.vectors_only": True,
    "training.optimizer": "adam",
    "training.learning_rate": 1e-2,
    "training.warmup_steps": 20,
    "training.ema_decay": 0.98,
    "training.minutes": 2.0,
}
"""The training of changes: these settings were best for crops of Kodak's photographs (experiments/EXPERIMENTS.md)."""

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
    def base(self) -> str | None:
        """The model of the package whose changes the archive holds, or which it names; None: it holds a whole model."""
        return self.prepared.run.start_from if self.prepared.run.training.vectors_only else None

    @cached_property
    def weights(self) -> int:
        """Number of weights that the archive holds."""
        if self.base is None:
            return self.prepared.costs.parameters
        model = AxialTransformer.from_pretrained(SHIPPED / self.base)
        return sum(weight.numel() for weight in model.parameters() if weight.ndim == 1)

    @property
    def other_bytes(self) -> float:
        """Bytes of the model, about, and of stored files."""
        return BYTES_OF_WEIGHT * self.weights + len(self.contents.stored)

    def expected(self, bits: float) -> float:
        """Return the bytes of the archive, about, if values take so many bits/dim."""
        return bits * self.contents.values / 8 + self.other_bytes

    def expected_as_it_is(self) -> float:
        """Return the bytes of an archive that names the model of the package and holds no changes, about."""
        assert self.base is not None, "it starts from a model of the package"
        model = AxialTransformer.from_pretrained(SHIPPED / self.base)
        sample = torch.as_tensor(self.prepared.watched.values[:])
        bits = torch.cat([bits_per_dim(model, part) for part in sample.split(TOGETHER)]).mean().item()
        return bits * self.contents.values / 8 + len(self.contents.stored)

    def train(self, display: Display | None = None, *, command: Sequence[str] | None = None) -> RunState:
        """Train, and end what would not pay; see `Prepared.train`.

        Raises:
            NoGainError: the archive would be too large; a ValueError.
        """
        return self.prepared.train(display, command=command, wrap=self._foreseeing)

    def _foreseeing(self, usual: Evaluate) -> Evaluate:
        """Return a callback that evaluates, says how large the archive will be, and ends what would not pay."""

        def evaluate(model: AxialTransformer, step: int, fill: Fill) -> Mapping[str, Metric]:
            metrics = usual(model, step, fill)
            expected = self.expected(float(metrics["bits_per_dim"]))
            log.info(
                f"step {step}: about {expected:,.0f} bytes expected, {self.other_bytes:,.0f} of them for the model and"
                " stored files"
            )
            if expected > LEARNS * self.limit.size:
                self.limit.check(expected)
            return metrics

        return evaluate


def prepare_for_archive(
    source: str | Path,
    folder: Path,
    settings: Mapping[str, Any],
    *,
    start_from: str | None = None,
    embed: bool = False,
    only_data: bool = False,
    force: bool = False,
    progress: NamedProgress = silent,
) -> PreparedArchive:
    """Read all of a source, and decide on a model of it that pays; a run that is in the folder goes on.

    The model is a new one, or one of the package with changes. Of the models of the package that fit, the one that
    codes a sample best is compared with a new model after TRIAL_STEPS steps.

    Args:
        source: as `data.load` takes it.
        folder: of the run.
        settings: of the run, by name, such as training.minutes or data.size.
        start_from: a model that gives the first weights. Of one of the package, the archive holds changes.
        embed: the archive holds its model, whatever it starts from.
        only_data: leave out files that are no data.
        force: prepare even if the archive will not pay.
        progress: returns the wrapper of a loop with this name.

    Raises:
        NoGainError: the archive would be too large; a ValueError.
        ValueError: the folder's run is of other data, or reads them in another way.
    """
    read = partial(_read, source, only_data=only_data, force=force, progress=progress)
    begun = read_run(folder)
    if begun:
        minutes = CHANGES["training.minutes"] if begun.run.training.vectors_only else MINUTES
        run = replace(begun.run, source=source_name(source)).changed({"training.minutes": minutes, **settings})
        if run.data != begun.run.data:
            raise ValueError(f"{folder} was begun with other settings of data: remove it, or name another archive")
        ready = read(run, begun)
        tell(ready.contents)
        return ready

    holds_whole_model = embed or "data.size" in settings

    def changed(name: str) -> PreparedArchive:
        begin = _new_run if holds_whole_model or not _can_be_named(name) else _changing_run
        return read(begin(source, folder, name).changed(settings))

    if start_from is not None:
        ready = changed(start_from)
    else:
        ready = read(_new_run(source, folder).changed(settings))
        names = [] if holds_whole_model else _fitting_models(ready)
        if names:
            ready = _best(ready, [changed(name) for name in names])
    tell(ready.contents)
    ready.limit.check(ready.other_bytes)
    log.info(_described(ready, source))
    return ready


def _read(
    source: str | Path,
    run: RunConfig,
    begun: RunRecord | None = None,
    *,
    only_data: bool,
    force: bool,
    progress: NamedProgress,
) -> PreparedArchive:
    """Read all of a source, and decide all that is open in a run on it."""
    opened = open_source(source, run.data, progress("reading files"))
    opened.say_unused_options()
    axes = None if begun or run.data.axes or run.start_from else _axes_of_alike_frames(opened)
    if axes:
        log.info("%s: its frames are alike, and become channels: data.axes=%s", source, axes)
        run = run.changed({"data.axes": axes})
        opened = opened.with_config(run.data)
    block = None if begun or run.data.size else _slice_block(opened)
    if block:
        run = run.changed({"data.size": block})
    run, opened = decide_cut(run, opened)
    with warnings.catch_warnings(action="ignore"):  # `tell` says what is not modelled
        examples = opened.part("all")
    run = with_levels(decide_model(run, examples), run, [examples], least=1)
    if begun and examples.fingerprint != begun.facts.fingerprint:
        raise ValueError(f"{run.out} was trained on other data: remove it, or name another archive")
    contents = read_contents(opened, run.model, only_data)
    if not (begun or run.start_from):
        run = narrow_for_archive(run, _value_bytes(examples, progress) * contents.values)
    prepared = finish_preparing(run, opened, examples, examples, None, begun, progress)
    limit = UNLIMITED if force else input_limit(contents, run.model)
    return PreparedArchive(prepared=prepared, contents=contents, limit=limit)


def _can_be_named(name: str) -> bool:
    """Return True for a model of the package, of tiles without classes: an archive can name it and hold its changes."""
    if not is_shipped(name):
        return False
    config = AxialTransformer.read_config(SHIPPED / name)
    return len(config.shape) == 2 and config.num_classes is None


def _fitting_models(ready: PreparedArchive) -> list[str]:
    """Return the models of the package that can code images: they know all values, and no image is below a tile."""
    model = ready.prepared.run.model
    least = min((min(array.shape[:-1]) for array in ready.contents.tiles.arrays), default=0)
    names = []
    for name in shipped_names():
        shipped = AxialTransformer.read_config(SHIPPED / name)
        alike = len(shipped.shape) == len(model.shape) == 2 and shipped.channels == model.channels
        knows = shipped.lowest <= model.lowest and model.highest <= shipped.highest and shipped.floats == model.floats
        if alike and knows and shipped.num_classes is None and max(shipped.shape) <= least:
            names.append(name)
    return names


def _best(new: PreparedArchive, changed: Sequence[PreparedArchive]) -> PreparedArchive:
    """Return what makes the smallest archive: a new model, or one of the package if this saves SAVES.

    The model of the package that codes a sample best, as it is, is compared with a new one after TRIAL_STEPS steps. If
    it does not win, its changes are tried for as many steps.
    """
    sizes = [ready.expected_as_it_is() for ready in changed]
    smallest = min(sizes)
    best = changed[sizes.index(smallest)]
    size_of_new = new.expected(_bits_after_trial(new, "a new model"))
    most = (1 - SAVES) * size_of_new
    if smallest > most:
        smallest = best.expected(_bits_after_trial(best, f"changes of {best.base}"))
    log.info(
        f"about {smallest:,.0f} bytes by the model {best.base} of this package, {size_of_new:,.0f} by a new one after"
        f" {TRIAL_STEPS} steps"
    )
    return best if smallest <= most else new


def _bits_after_trial(ready: PreparedArchive, name: str) -> float:
    """Return the bits/dim of a sample after TRIAL_STEPS steps of training."""
    settings = {
        "training.steps": TRIAL_STEPS, "training.evaluate_every": TRIAL_STEPS, "training.save_every": TRIAL_STEPS,
        "training.minutes": None,
    }  # fmt: skip
    with TemporaryDirectory() as folder:
        run = replace(ready.prepared.run.changed(settings), out=Path(folder) / "run")
        result = replace(ready.prepared, run=run).train(QuietBar(f"comparing, {name}: steps"))
    assert result.best_bits_per_dim is not None, "the last step is evaluated"
    return result.best_bits_per_dim


class QuietBar(Bar):
    """A bar of a run whose folder nobody sees."""

    def say(self, text: str) -> None:
        """Say nothing of that folder."""


def _described(ready: PreparedArchive, source: str | Path) -> str:
    """Return in a line which model the archive gets."""
    model = ready.prepared.run.model
    size = f"about {BYTES_OF_WEIGHT * ready.weights:,.0f} bytes"
    if ready.base:
        return (
            f"{source}: the archive names the model {ready.base} of this package, and holds changes of it, {size};"
            " embed=True stores a new model instead"
        )
    return f"a model of {source}, width {model.dim}: {ready.weights:,} weights, {size}"


def _changing_run(source: str | Path, folder: Path, name: str) -> RunConfig:
    """Return a run that changes the vectors of a model of the package, whose shape stays."""
    run = _new_run(source, folder, name).changed(CHANGES)
    shape = run.model.shape
    return run.changed({"data.size": shape[0], "data.cut": "tiles"}) if len({*shape}) == 1 else run


def _new_run(source: str | Path, folder: Path, start_from: str | None = None) -> RunConfig:
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


def _axes_of_alike_frames(source: Source) -> str | None:
    """Return the axes of a scan with few frames as its channels, if frames differ less than neighbours in them do."""
    letters, sizes = source.example_axes
    if source.listing.kind != "scan" or not letters.startswith("T") or not 2 <= sizes[0][0] <= MAX_DEPTH:
        return None
    examples = source.part("all")
    if examples.channels > 1 or sizes[0][-1] < 2:
        return None
    frames = np.asarray(examples.values[0])
    middle = frames.shape[1] // 2
    frames = frames[:, middle : middle + SLAB].astype(np.int64)
    return f"C{letters[1:]}" if _difference(frames, 0) < _difference(frames, -2) else None


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
    return block_of(values.shape[:3]) if _difference(slices, 0) < 1.5 * _difference(slices, 1) else None


def _difference(values: NDArray[np.int64], axis: int) -> float:
    """Return the mean difference between neighbours along an axis."""
    return float(np.abs(np.diff(values, axis=axis)).mean())


def _value_bytes(examples: Examples, progress: NamedProgress) -> float:
    """Return how many bytes a value the best of PNG, WebP and xz takes for a sample.

    The width of the model depends on it, so no codec counts that not everyone has.
    """
    count = max(1, SAMPLED // prod(examples.values.shape[1:]))
    values = np.asarray(examples.spread(count)[:].values)
    return min(coded.bytes for coded in coded_sizes([*values], progress, extras=False)) / values.size
