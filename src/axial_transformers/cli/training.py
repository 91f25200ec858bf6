"""The work of `axial train`: data, plan, model, and the callbacks of the run."""

import os
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from axial_transformers.cli.console import rank_zero_output, say
from axial_transformers.cli.parsing import command
from axial_transformers.data import EmptySplitError, Examples, Split, is_hub_dataset, load, picture_sizes, scan_axes
from axial_transformers.data.hugging_face import pinned
from axial_transformers.data.value_range import ValueRange
from axial_transformers.decoding.sampling import sample
from axial_transformers.likelihood.bits import bits_map
from axial_transformers.likelihood.evaluation import Fill, summarise
from axial_transformers.likelihood.outliers import keep_typical, score
from axial_transformers.models import AxialTransformer, AxialTransformerConfig
from axial_transformers.models.baselines.by_name import build
from axial_transformers.pictures import Look, image_grid
from axial_transformers.pictures.heat_maps import under_examples
from axial_transformers.pictures.saving import save_picture
from axial_transformers.progress import Bar, bar, rank
from axial_transformers.recipes import in_blocks, suited, tiled
from axial_transformers.recipes.custom import kind_of_values
from axial_transformers.training import Facts, RunConfig, RunRecord, RunState
from axial_transformers.training.callbacks import Evaluate
from axial_transformers.training.costs import StepCosts, check_memory, costs_of
from axial_transformers.training.fit import fit
from axial_transformers.training.run_description import describe_data
from axial_transformers.training.run_page import BITS
from axial_transformers.training.trained_model import check_shape, check_values, range_of_examples
from axial_transformers.wording import engineering

SHOWN = 8
"""Most validation images whose bits are drawn."""


class Work(NamedTuple):
    """The parts of `run` that `axial compress --fit` does in another way."""

    read: "Callable[[RunConfig, RunRecord | None], tuple[RunConfig, Parts]]"
    """Reads the data; returns the run as it suits them."""
    describe: "Callable[[Prepared, RunConfig, Facts], Iterable[str]]"
    """Returns lines about a new run, as it is planned in the end."""
    evaluation: Callable[[Examples, RunConfig], Evaluate]
    """Returns a callback of `fit` that evaluates examples."""


def run(wanted: RunConfig, begun: RunRecord | None, command: Sequence[str], work: Work | None = None) -> RunState:
    """Train as is wanted; the run records the words of `command`.

    Args:
        begun: the record of the run to go on with.
        work: None: that of `axial train`.
    """
    work = work or Work(read_parts, _lines, evaluation_of)
    with rank_zero_output():
        prepared = prepare(wanted, begun, read=work.read)
    planned, parts = prepared.planned, prepared.parts
    model, seen, facts = _first_model(planned), parts.validation.spread(planned.validate_on)[:], prepared.facts(command)
    if begun is not None:
        facts = replace(begun.facts, skipped=facts.skipped)
    elif rank() == 0:
        for line in work.describe(prepared, planned, facts):
            say(line)
    return fit(
        model,
        parts.train,
        replace(planned, source=_absolute(planned.source)),
        begun=begun,
        facts=facts,
        evaluate=work.evaluation(seen, planned),
        sample=pictures_of(seen, planned),
        progress=Bar("training"),
    )


def _first_model(run: RunConfig) -> AxialTransformer:
    """Return the model before the first step: the same weights for every device."""
    torch.manual_seed(run.training.seed)
    return build(run.model)


class Parts(NamedTuple):
    """Examples to train on, those to validate with, and the number of those for the test; None: no such part."""

    train: Examples
    validation: Examples
    test: int | None
    skipped: tuple[str, ...]
    """A line about each file or record that was left out of a part."""


class Prepared(NamedTuple):
    """A run as the data and the machine decide it: what `axial train` does and `axial inspect` prints."""

    planned: RunConfig
    parts: Parts
    costs: StepCosts

    def facts(self, command: Sequence[str] = ()) -> Facts:
        """Return what was found in the data."""
        train, validation, test, _ = self.parts
        known: dict[str, Any] = {name: getattr(train, name) for name in ("fingerprint", "class_names", "skipped")}
        known |= {"train": len(train), "validation": len(validation), "test": test, "command": tuple(command)}
        return Facts(parameters=self.costs.parameters, **known)


def prepare(wanted: RunConfig, begun: RunRecord | None = None, read: Callable[..., Any] | None = None) -> Prepared:
    """Read the data of a run, and decide what is open.

    Args:
        read: see `Work`; None: `read_parts`.

    Raises:
        ValueError: a step clearly does not fit into memory, or the batch does not divide among the devices.
    """
    wanted, parts = (read or read_parts)(wanted, begun)
    training = wanted.training.resolve_auto(begun.run.training if begun else None)
    planned = replace(wanted, training=training, open=())
    costs = costs_of(planned.model, training, int(os.environ.get("WORLD_SIZE", 1)))
    check_memory(costs, training)
    return Prepared(planned, parts, costs)


def read_parts(run: RunConfig, begun: RunRecord | None) -> tuple[RunConfig, Parts]:
    """Read the data; return the run as it suits them."""
    source = run.source
    if not source:
        raise ValueError(f"recipe {run.recipe} has no data of its own: axial train {run.recipe} FOLDER_OR_FILE")
    asked, (run, examples) = run, read_training(run)
    if begun is not None and examples.fingerprint != begun.facts.fingerprint:
        raise ValueError(
            f"{source} holds other training examples than {run.out} was begun with: a run goes on with its own "
            "data only, wherever it lies; for other data begin another run with --out"
        )
    validation, tests = load(source, run.data, "validation", bar("reading")), None
    if validation.shape != examples.shape:
        raise ValueError(
            f"{source} validates on {list(validation.shape)}, not {list(examples.shape)}: give a size and fit"
        )
    run = _knowing(run, asked, validation, f"{source}, validation")
    skipped = examples.skipped + validation.skipped
    with suppress(EmptySplitError):
        test = load(source, run.data, "test", bar("reading"))
        run = _knowing(run, asked, test, f"{source}, test")
        tests, skipped = len(test), skipped + test.skipped
    return run, Parts(examples, validation, tests, skipped)


def _knowing(run: RunConfig, asked: RunConfig, part: Examples, where: str) -> RunConfig:
    """Return the run whose model also knows the values of this part; ValueError if `asked` leaves no choice."""
    found, model = range_of_examples(part), run.model
    if found and found.grid == model.floats and {"model.lowest", "model.num_values"} <= {*asked.open}:
        both = ValueRange.around([found, ValueRange(model.lowest, model.highest, model.floats)])
        run = replace(run, model=replace(model, **both.counted(where)))
    check_values(part, run.model, where, advise=True)
    return run


def read_training(run: RunConfig, split: Split = "train") -> tuple[RunConfig, Examples]:
    """Read the training examples; return the run with all that depends on them decided."""
    source = run.source or ""
    if axes := scan_axes(source):
        run = in_blocks(run, axes)
        if isinstance(run.data.size, tuple):
            said = f"{source}: {_by(axes.values())} positions are cut into blocks of {_by(run.data.size)}"
            say(f"{said}; for others: --data.size")
    elif "data.size" in run.open:
        run = tiled(run, picture_sizes(source, run.data))
        if run.data.fit == "tiles":
            tiles = f"examples of large or different sizes are cut into {run.data.size}x{run.data.size} tiles"
            say(f"{tiles}; other ways: --data.size 64 --data.fit crop, or stretch; or --data.fit exact")
            if Path(source).is_file():
                say("the first axis of an array counts examples; blocks of one volume: --data.size 8 8 128")
    if isinstance(run.data.size, tuple):
        run = run.decided({"data.offsets": "random"})
    examples = load(source, run.data, split, bar("reading"))
    suitable = suited(run, examples).changed({"data.grid": examples.grid or run.data.grid})
    to_follow = f"let the model follow the data: {command('train', source)}"
    check_shape(examples, suitable.model, source, run.recipe or "the model", "data.size and data.fit", to_follow)
    check_values(examples, suitable.model, source, advise=True)
    return suitable, examples


def _by(lengths: Iterable[int]) -> str:
    return "x".join(map(str, lengths))


def _absolute(source: str | None) -> str | None:
    if source is not None and is_hub_dataset(source):
        return pinned(source)
    return source if source in (None, "digits") else str(Path(str(source)).resolve())


def _lines(prepared: Prepared, planned: RunConfig, facts: Facts) -> list[str]:
    source = planned.source or ""
    rows = (
        planned.model.describe()
        | describe_data(planned, facts)
        | describe_training(planned, prepared.costs, len(prepared.parts.train))
    )
    rows = {name: text for name, text in rows.items() if name not in ("source", "data")}
    rows |= decided(prepared) | {"to change": "--model.values, --model.dim, --data.size, --training.steps, ...:"}
    rows[""] = f"axial train {shlex.quote(source)} --help"
    return [f"{source}:", *(f"  {name:<10}  {text}" for name, text in rows.items())]


def describe_training(run: RunConfig, costs: StepCosts, examples: int | None) -> dict[str, str]:
    """Return training and what a step needs, as rows (name, value)."""
    training, model = run.training, run.model
    again = ", blocks computed again" if training.checkpoint_blocks else ""
    shares = ", weights in shares" if training.shard else ""
    parts = f", in {training.accumulate} parts" if training.accumulate > 1 else ""
    epochs = f", {training.steps * training.batch_size / examples:,.3g} epochs" if examples else ""
    return {
        "parameters": f"{costs.parameters:,}",
        "completion": _completion(model),
        "steps": f"{training.steps:,}{epochs}",
        "batches": f"of {training.batch_size}{parts}{again}{shares}",
        "precision": training.precision,
        "memory": f"more than {engineering(costs.memory)}B",
        "FLOPs": f"{engineering(costs.flops)}FLOP a step",
    }


def _completion(model: AxialTransformerConfig) -> str:
    """Return which options of axial complete are exact: those whose known positions come first in generation order."""
    axes = {"--rows": max(0, len(model.shape) - 2), "--channels": len(model.shape), "--frames": 0}
    if len(model.shape) < 3:
        del axes["--frames"]
    if model.channels == 1:
        del axes["--channels"]
    order = model.bijection.order
    exact = [name for name, axis in axes.items() if not ((order[1:, axis] == 0) & (order[:-1, axis] > 0)).any()]
    others = [name for name in axes if name not in exact]
    if not others:
        return f"exact with {' and '.join(exact)}"
    return f"exact with {' and '.join(exact)}; with {' and '.join(others)}, add --approximate"


def decided(prepared: Prepared) -> dict[str, str]:
    """Return why values are numbers or symbols, as a row, unless the user or a recipe said so."""
    planned = prepared.planned
    kind, why = kind_of_values(prepared.parts.train)
    by_data = planned.recipe == "custom" and not planned.start_from and kind == planned.model.values
    return {"decided": why} if by_data else {}


def evaluation_of(validation: Examples, run: RunConfig) -> Evaluate:
    """Return a callback of `fit` that evaluates examples."""
    label, batch = _labels(validation, run), run.training.batch_size // run.training.accumulate

    def whole(model: AxialTransformer, step: int, fill: Fill) -> Mapping[str, float]:
        scores = score(model, validation.values, batch, bar("validation"), fill, label)
        if rank() == 0 and label is None:
            keep_typical(run.out, scores)
        found = summarise(torch.from_numpy(scores.bits))
        return {"bits_per_dim": found.bits_per_dim, "standard_error": found.standard_error}

    return whole


def pictures_of(
    validation: Examples, run: RunConfig
) -> Callable[[AxialTransformer, int], Mapping[str, NDArray[np.uint8]]] | None:
    """Return a callback of `fit` that draws samples, and bits of the examples, or None."""
    config, look = run.model, Look.of(run.model, run.data.axes)
    if not run.samples:
        return None
    known = torch.from_numpy(validation.values[: run.samples]) if config.known_channels else None
    most = min(SHOWN if len(config.shape) == 2 else SHOWN // 2, run.training.batch_size // run.training.accumulate)
    spread = validation.spread(most)
    shown, label = torch.from_numpy(spread.values), _labels(spread, run)

    def callback(model: AxialTransformer, step: int) -> Mapping[str, NDArray[np.uint8]]:
        count = run.samples if known is None else len(known)
        values = sample(model, count, seed=step, known=known)
        grid = image_grid(values.cpu().numpy(), look=look)
        save_picture(run.out / f"samples/step-{step:08d}.png", grid)
        bits = bits_map(model, shown, label).cpu().numpy()
        save_picture(run.out / BITS, under_examples(shown.numpy(), bits, look))
        return {"samples": np.asarray(grid)}

    return callback


def _labels(validation: Examples, run: RunConfig) -> torch.Tensor | None:
    if run.model.num_classes is None or run.training.label_dropout or validation.labels is None:
        return None
    return torch.from_numpy(validation.labels)


def report(out: Path, result: RunState) -> None:
    """Print the run's model and bits/dim, or how to resume."""
    if result.ending == "interrupted":
        print(f"stopped at step {result.step}; go on with: {command('train', out)}")
        return
    if result.best_bits_per_dim is not None:
        print(f"validation {result.best_bits_per_dim:.4f} bits/dim at step {result.best_step}")
    print(f"{result.ending} at step {result.step} after {result.seconds:.0f} s; the model is in {out}")
    print(f"next: {command('evaluate', out)}; {command('sample', out)}")
