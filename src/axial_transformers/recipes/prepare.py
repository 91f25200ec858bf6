"""From a source to a run that can begin: its settings, of which nothing is open, its examples, and what a step costs.

open_source          what there is
decide_cut           how examples are cut out of it
part("train")        read it
decide_model         the model and the training that suit these examples
part("validation")   read the others
know_values          the model knows the values of all parts
with_levels          of few values in a wide range, the model codes the ranks
finish_preparing     the precision, what a step needs, and facts about the data
"""

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from axial_transformers.data import EmptySplitError, Examples, Source, is_hub_dataset, open_source
from axial_transformers.data.hugging_face import pinned
from axial_transformers.data.source import Listing, source_name
from axial_transformers.data.value_range import ValueRange
from axial_transformers.models import AxialTransformer
from axial_transformers.progress import Display, NamedProgress, silent
from axial_transformers.recipes.custom import (
    check_start,
    in_blocks,
    kind_of_values,
    of_own_data,
    suited,
    tiled,
    with_levels,
)
from axial_transformers.recipes.watching import examples_to_watch, find_fault, make_evaluation, make_pictures
from axial_transformers.training import Facts, RunConfig, RunRecord, RunState, read_run, train
from axial_transformers.training.costs import StepCosts, check_memory, step_costs
from axial_transformers.training.fit import Evaluate, decide_needs_label
from axial_transformers.training.trained_model import check_shape, check_values, range_of_examples

log = logging.getLogger("axial_transformers")


@dataclass(frozen=True, kw_only=True, eq=False)
class Prepared:
    """A run that is ready to train."""

    run: RunConfig
    """Nothing is open."""
    costs: StepCosts
    """What a step needs."""
    examples: Examples
    """The training part."""
    validation: Examples
    facts: Facts
    """What was found in the data."""
    listing: Listing
    """The files of the source."""
    begun: RunRecord | None
    """The record of the run that goes on; None: a new one."""
    progress: NamedProgress

    @property
    def why_values(self) -> str | None:
        """Why values are numbers or symbols; None: the user, a recipe, or a model to start from said so."""
        if self.run.recipe != "custom" or self.run.start_from:
            return None
        kind, why = kind_of_values(self.examples)
        return why if kind == self.run.model.values else None

    @property
    def watched(self) -> Examples:
        """The validation examples that are evaluated during training."""
        return examples_to_watch(self.run, self.begun, self.examples, self.validation)

    def train(
        self,
        display: Display | None = None,
        *,
        command: Sequence[str] | None = None,
        wrap: Callable[[Evaluate], Evaluate] = lambda evaluate: evaluate,
    ) -> RunState:
        """Train a model, evaluate it and draw samples of it, in the run's folder; see `training.train`.

        Args:
            display: shows the steps.
            command: words that the folder records.
            wrap: adds to what evaluates.
        """
        run = self.run
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(run.training.seed)  # the same first weights on every device
            model = AxialTransformer(run.model)
        watched = self.watched
        return train(
            model,
            self.examples,
            replace(run, source=_absolute(run.source)),
            run.out,
            evaluate=wrap(make_evaluation(watched, run, self.progress)),
            sample=make_pictures(watched, run),
            resume=self.begun is not None,
            facts=replace(self.facts, command=None if command is None else tuple(command)),
            progress=display,
        )

    def fault(self, result: RunState) -> str | None:
        """Return what is wrong with the result of `train`, and what to do; None: nothing that shows."""
        if result.best_bits_per_dim is None:
            return None
        return find_fault(self.run, self.watched, result.best_bits_per_dim, self.progress)


def prepare(
    request: str | Path | RunConfig, begun: RunRecord | None = None, progress: NamedProgress = silent
) -> Prepared:
    """Read the data of a run, and decide all that is open.

    Args:
        request: a source, as `data.load` takes it; or the settings of a run, such as `NAMED["photos32"]()`.
        begun: the record of a run to go on with.
        progress: returns the wrapper of a loop with this name, such as `progress.bar`.

    Raises:
        FileNotFoundError: no such source.
        ValueError: no examples of such a run; or a step does not fit into memory.
    """
    asked = request if isinstance(request, RunConfig) else of_own_data(source_name(request))
    if not asked.source:
        raise ValueError(f"recipe {asked.recipe} has no data of its own: axial train {asked.recipe} FOLDER_OR_FILE")
    opened = open_source(asked.source, asked.data, progress("reading files"))
    opened.say_unused_options()
    run, source = decide_cut(asked, opened)
    examples = source.part("train")
    run = decide_model(run, examples)
    examples = _in_order(examples, run, begun)
    if begun and examples.fingerprint != begun.facts.fingerprint:
        raise ValueError(
            f"{run.source} holds other training examples than {run.out} was begun with: a run goes on with its own "
            "data only, wherever it lies; for other data begin another run with --out"
        )
    others = _other_parts(source, examples)
    check_shape(others["validation"], run.model, f"{run.source}, validation")
    run = know_values(run, asked, others)
    parts = [examples, *others.values()]
    run = with_levels(run, asked, parts, least=2 * len(parts))  # parts of a scan count all of its values
    return finish_preparing(run, source, examples, others["validation"], others.get("test"), begun, progress)


def decide_cut(run: RunConfig, source: Source) -> tuple[RunConfig, Source]:
    """Return the run with data.size, data.cut, data.axes and data.offsets decided, and the source read in this way."""
    is_decided_here = "data.size" in run.open
    letters, sizes = source.example_axes
    if letters:
        run = in_blocks(run, dict(zip(letters, sizes[0])))
    elif is_decided_here:
        run = tiled(run, sizes)
    size = run.data.size
    parts = f"square tiles of {size}" if run.data.cut == "tiles" else ""
    if isinstance(size, tuple):
        run = run.decided({"data.offsets": "random"})
        parts = f"blocks of {' x '.join(map(str, size))}"
    if parts and is_decided_here:
        other = "data.size=(8, 8, 128)"
        if source.listing.kind == "image":
            other = "data.size=64 with data.cut=tiles or data.cut=crop"
        log.info(f"{run.source} is cut into {parts}; to change that: {other}")
    return run, source.with_config(run.data)


def decide_model(run: RunConfig, examples: Examples) -> RunConfig:
    """Return the run with a model that suits the examples.

    Raises:
        ValueError: the model that was asked for does not take them.
    """
    source = str(run.source)
    run = suited(run, examples).changed({"data.grid": examples.range.grid or run.data.grid})
    check_shape(examples, run.model, source)
    check_values(examples, run.model, source, advise=True)
    return run


def know_values(run: RunConfig, asked: RunConfig, parts: Mapping[str, Examples]) -> RunConfig:
    """Return the run whose model also knows the values of these parts.

    Raises:
        ValueError: it does not, and `asked` leaves no choice.
    """
    if {"model.lowest", "model.num_values"} <= {*asked.open}:
        ranges = [run.model.range]
        for part in parts.values():
            values = range_of_examples(part)
            if values and values.grid == run.model.floats:
                ranges.append(values)
        known = ValueRange.around(ranges).modelled(run.source)
        run = replace(run, model=replace(run.model, lowest=known.low, num_values=known.num_values))
    for name, part in parts.items():
        check_values(part, run.model, f"{run.source}, {name}", advise=True)
    return run


def finish_preparing(
    run: RunConfig,
    source: Source,
    examples: Examples,
    validation: Examples,
    test: Examples | None,
    begun: RunRecord | None,
    progress: NamedProgress,
) -> Prepared:
    """Return the run with nothing open, what a step needs, and facts about the data.

    Raises:
        ValueError: a step clearly does not fit into memory, or the batch does not divide among the devices.
    """
    training = run.training.resolve_auto(begun.run.training if begun else None)
    costs = step_costs(run.model, training, int(os.environ.get("WORLD_SIZE", 1)))
    check_memory(costs, training)
    model = decide_needs_label(run.model, training, begun)
    facts = Facts(
        fingerprint=examples.fingerprint,
        train=len(examples),
        validation=len(validation),
        test=None if test is None else len(test),
        parameters=costs.parameters,
        class_names=examples.class_names,
        columns=examples.columns,
    )
    return Prepared(
        run=replace(run, model=model, training=training, open=()),
        costs=costs,
        examples=examples,
        validation=validation,
        facts=facts,
        listing=source.listing,
        begun=begun,
        progress=progress,
    )


def begin_with(run: RunConfig, start: str) -> RunConfig:
    """Return the run with the model that it starts from (--from); all other settings stay, learning rates included."""
    trained = AxialTransformer.read_config(start)
    if run.open:
        settings = [name for name in run.open if name.startswith("model.")]
        of_model = [name for name in settings if name not in ("model.shape", "model.num_classes")]
        return replace(run, model=trained, start_from=start).closed(of_model)
    check_start(trained, start, run.model)
    model = replace(trained, shape=run.model.shape, num_classes=run.model.num_classes)
    return replace(run, model=model, start_from=start)


def _other_parts(source: Source, examples: Examples) -> dict[str, Examples]:
    """Return the validation part and, if there is one, the test part."""
    validation = source.part("validation")
    parts = {"validation": validation.with_columns(examples.columns, f"{source.name}, validation")}
    with suppress(EmptySplitError):
        parts["test"] = source.part("test")
    return parts


def _in_order(examples: Examples, run: RunConfig, begun: RunRecord | None) -> Examples:
    """Return rows of a table with their columns as the run to resume, or the model to start from, has them."""
    before = begun or (read_run(run.start_from) if run.start_from else None)
    titles = before.facts.columns if before else None
    if not titles or not examples.columns or sorted(titles) == sorted(examples.columns):
        return examples.with_columns(titles, run.source)
    if not begun:
        log.info(
            "%s was trained on the columns %s, not %s: it only gives first weights",
            run.start_from,
            ", ".join(titles),
            ", ".join(examples.columns),
        )
    return examples


def _absolute(source: str | None) -> str | None:
    """Return a source under a name that means the same in any folder, and on any day."""
    if source is None or source == "digits":
        return source
    return pinned(source) if is_hub_dataset(source) else str(Path(source).resolve())
