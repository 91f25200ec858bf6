"""The work of `axial train`: read the data, decide what is open, train."""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from axial_transformers.cli.console import command, print_rows, rank_zero_output, say
from axial_transformers.data import EmptySplitError, Examples, Split, example_sizes, is_hub_dataset, load
from axial_transformers.data.hugging_face import pinned
from axial_transformers.data.value_range import ValueRange
from axial_transformers.decoding.sampling import sample
from axial_transformers.likelihood.bits import bits_map
from axial_transformers.likelihood.evaluation import Fill, summarise
from axial_transformers.likelihood.outliers import keep_typical, label_of, score
from axial_transformers.models import AxialTransformer
from axial_transformers.pictures import Look, image_grid
from axial_transformers.pictures.heat_maps import under_examples
from axial_transformers.pictures.saving import save_picture
from axial_transformers.progress import Bar, bar, rank
from axial_transformers.recipes import in_blocks, suited, tiled
from axial_transformers.recipes.custom import kind_of_values
from axial_transformers.training import Facts, RunConfig, RunRecord, RunState, read_run
from axial_transformers.training.costs import StepCosts, check_memory, parameters, step_costs
from axial_transformers.training.fit import Evaluate, decide_needs_label, train as train_model
from axial_transformers.training.run_folder import require_run
from axial_transformers.training.run_page import BITS, describe_data
from axial_transformers.training.trained_model import check_shape, check_values, open_model, range_of_examples
from axial_transformers.wording import engineering

LAG = 1.03
"""Bits of the EMA weights, divided by those of the raw weights, from which on they lag behind."""
SHOWN = 8
"""Most validation images whose bits are drawn."""


def train(run: RunConfig, begun: RunRecord | None, words: Sequence[str]) -> tuple[RunState, str | None]:
    """Read the data of a run and train; return the state, and what is wrong with its result, or None.

    Args:
        begun: the record of a run to go on with.
        words: what to record.
    """
    with rank_zero_output():
        run, examples, validation, facts = read(run, begun)
        run, costs = planned(run, begun)
        if begun is None:
            rows = plan(run, costs, facts) | decided(run, examples)
            rows["to change"] = f"--model.dim, --data.size, ...: {command('train', run.source, '--help')}"
            print_rows(rows, f"{run.source}:", say)
        result = fit_examples(run, begun, examples, validation, replace(facts, command=tuple(words)))
        if result.ending == "interrupted" or result.best_bits_per_dim is None or rank():
            return result, None
        seen = seen_between_steps(run, begun, examples, validation)
        return result, fault_of(run, seen, result.best_bits_per_dim)


def seen_between_steps(run: RunConfig, begun: RunRecord | None, examples: Examples, validation: Examples) -> Examples:
    """Return the validation examples that are evaluated during training; with labels if the model needs some."""
    seen = validation.spread(run.validate_on)[:]
    if not run.model.needs_label:
        return replace(seen, labels=None)
    names = run.model.names_of_classes(begun.facts.class_names if begun else examples.class_names)
    return replace(seen, labels=seen.classes_among(names, f"{run.source}, validation"))


def fault_of(run: RunConfig, validation: Examples, bits: float) -> str | None:
    """Return what is wrong with a result, and what to do: the EMA weights lag behind, or PNG takes fewer bits.

    Args:
        validation: the examples that were evaluated.
        bits: their bits/dim by the EMA weights.
    """
    raw = open_model(run.out, "raw", run.training.device).model
    batch = run.training.batch_size // run.training.accumulate
    scores = score(raw, validation.values, batch, bar("raw weights"), label=label_of(validation))
    of_raw = float(scores.bits.mean())
    if bits > LAG * of_raw:
        return (
            f"the EMA weights lag behind the raw ones, which have {of_raw:.3f} bits/dim: train for more steps, or with "
            "a smaller --training.ema-decay"
        )
    if scores.corrected is None:
        return None
    png = float((scores.bits - scores.corrected).mean())
    if bits > png:
        return (
            f"PNG takes {png:.3f} bits/dim of these images, fewer than the model: train for more steps, with other "
            "rates, or by another recipe"
        )
    return None


def fit_examples(
    run: RunConfig,
    begun: RunRecord | None,
    examples: Examples,
    validation: Examples,
    facts: Facts,
    wrap: Callable[[Evaluate], Evaluate] = lambda evaluate: evaluate,
) -> RunState:
    """Train a model as `run` says, in which nothing is open; `wrap` adds to what evaluates."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(run.training.seed)  # the same first weights on every device
        model = AxialTransformer(run.model)
    seen = seen_between_steps(run, begun, examples, validation)
    return train_model(
        model,
        examples,
        replace(run, source=_absolute(run.source)),
        run.out,
        evaluate=wrap(evaluation_of(seen, run)),
        sample=pictures_of(seen, run),
        resume=begun is not None,
        facts=facts,
        progress=Bar("training"),
    )


def _absolute(source: str | None) -> str | None:
    if source is not None and is_hub_dataset(source):
        return pinned(source)
    return source if source in (None, "digits") else str(Path(str(source)).resolve())


def planned(run: RunConfig, begun: RunRecord | None = None) -> tuple[RunConfig, StepCosts]:
    """Return the run with nothing open, and what a step needs.

    Raises:
        ValueError: a step clearly does not fit into memory, or the batch does not divide among the devices.
    """
    training = run.training.resolve_auto(begun.run.training if begun else None)
    costs = step_costs(run.model, training, int(os.environ.get("WORLD_SIZE", 1)))
    check_memory(costs, training)
    model = decide_needs_label(run.model, training, begun)
    return replace(run, model=model, training=training, open=()), costs


def read(run: RunConfig, begun: RunRecord | None = None) -> tuple[RunConfig, Examples, Examples, Facts]:
    """Read the data; return the run as it suits them, the examples to train on and to validate with, and facts."""
    source = run.source
    if not source:
        raise ValueError(f"recipe {run.recipe} has no data of its own: axial train {run.recipe} FOLDER_OR_FILE")
    asked, (run, examples) = run, read_training(run)
    examples = _in_order(examples, run, begun)
    if begun is not None and examples.fingerprint != begun.facts.fingerprint:
        raise ValueError(
            f"{source} holds other training examples than {run.out} was begun with: a run goes on with its own "
            "data only, wherever it lies; for other data begin another run with --out"
        )
    validation, test = load(source, run.data, "validation", bar("reading")), None
    if validation.shape != examples.shape:
        raise ValueError(
            f"{source} validates on {list(validation.shape)}, not {list(examples.shape)}: give data.size and data.cut"
        )
    validation = validation.with_columns(examples.columns, f"{source}, validation")
    run = _knowing(run, asked, validation, f"{source}, validation")
    with suppress(EmptySplitError):
        test = load(source, run.data, "test", bar("reading"))
        run = _knowing(run, asked, test, f"{source}, test")
    return run, examples, validation, facts_of(run, examples, validation, test)


def _in_order(examples: Examples, run: RunConfig, begun: RunRecord | None) -> Examples:
    """Return rows of a table with their columns as the run to resume, or the model to start from, has them."""
    before = begun or (read_run(run.start_from) if run.start_from else None)
    titles = before.facts.columns if before else None
    if titles is None or examples.columns is None or sorted(titles) == sorted(examples.columns):
        return examples.with_columns(titles, run.source)
    if begun is None:
        own = ", ".join(examples.columns)
        say(f"{run.start_from} was trained on the columns {', '.join(titles)}, not {own}: it only gives first weights")
    return examples


def read_training(run: RunConfig, split: Split = "train") -> tuple[RunConfig, Examples]:
    """Read the training examples; return the run with all that depends on them decided."""
    source = run.source or ""
    letters, sizes = example_sizes(source, run.data)
    if letters:
        run = in_blocks(run, dict(zip(letters, sizes[0], strict=True)))
    elif "data.size" in run.open:
        run = tiled(run, sizes)
    if isinstance(run.data.size, tuple) or run.data.cut == "tiles":
        size = f"blocks of {run.data.size}" if isinstance(run.data.size, tuple) else f"square tiles of {run.data.size}"
        say(f"{source} is cut into {size}; for others: --data.size 8 8 128, --data.size 64 --data.cut crop, ...")
    if isinstance(run.data.size, tuple):
        run = run.decided({"data.offsets": "random"})
    examples = load(source, run.data, split, bar("reading"))
    suitable = suited(run, examples).changed({"data.grid": examples.range.grid or run.data.grid})
    check_shape(examples, suitable.model, source)
    check_values(examples, suitable.model, source, advise=True)
    return suitable, examples


def _knowing(run: RunConfig, asked: RunConfig, part: Examples, where: str) -> RunConfig:
    """Return the run whose model also knows the values of this part; ValueError if `asked` leaves no choice."""
    values, model = range_of_examples(part), run.model
    if values and values.grid == model.floats and {"model.lowest", "model.num_values"} <= {*asked.open}:
        found = ValueRange.around([values, model.range]).modelled(where)
        run = replace(run, model=replace(model, lowest=found.low, num_values=found.num_values))
    check_values(part, run.model, where, advise=True)
    return run


def facts_of(run: RunConfig, examples: Examples, validation: Examples, test: Examples | None = None) -> Facts:
    """Return what was found in the parts of the data."""
    return Facts(
        fingerprint=examples.fingerprint,
        train=len(examples),
        validation=len(validation),
        test=None if test is None else len(test),
        parameters=sum(parameters(run.model).values()),
        class_names=examples.class_names,
        columns=examples.columns,
    )


def plan(run: RunConfig, costs: StepCosts, facts: Facts | None = None) -> dict[str, str]:
    """Return a run's data, its model, its training, and what a step needs, as rows (name, value)."""
    training, rows = run.training, run.model.describe()
    if facts:
        described = describe_data(run, facts)
        rows = {name: described[name] for name in described if name != "source"} | rows
        del rows["data"]
    again = ", blocks computed again" if training.checkpoint_blocks else ""
    shares = ", weights in shares" if training.shard else ""
    parts = f", in {training.accumulate} parts" if training.accumulate > 1 else ""
    epochs = f", {training.steps * training.batch_size / facts.train:,.3g} epochs" if facts else ""
    return rows | {
        "parameters": f"{costs.parameters:,}",
        "steps": f"{training.steps:,}{epochs}",
        "batches": f"of {training.batch_size}{parts}{again}{shares}",
        "precision": training.precision,
        "memory": f"more than {engineering(costs.memory)}B",
        "FLOPs": f"{engineering(costs.flops)}FLOP a step",
    }


def decided(run: RunConfig, examples: Examples) -> dict[str, str]:
    """Return why values are numbers or symbols, as a row, unless the user or a recipe said so."""
    kind, why = kind_of_values(examples)
    return {"decided": why} if run.recipe == "custom" and not run.start_from and kind == run.model.values else {}


def evaluation_of(validation: Examples, run: RunConfig) -> Evaluate:
    """Return a callback of `train` that evaluates examples, with their labels if they have some."""
    label, batch = label_of(validation), run.training.batch_size // run.training.accumulate

    def whole(model: AxialTransformer, step: int, fill: Fill) -> Mapping[str, float]:
        scores = score(model, validation.values, batch, bar("validation"), fill, label)
        if rank() == 0:
            require_run(run.out)  # examples may take long
            keep_typical(run.out, scores)
        found = summarise(torch.from_numpy(scores.bits))
        return {"bits_per_dim": found.bits_per_dim, "standard_error": found.standard_error}

    return whole


def pictures_of(
    validation: Examples, run: RunConfig
) -> Callable[[AxialTransformer, int], Mapping[str, NDArray[np.uint8]]] | None:
    """Return a callback of `train` that draws samples, and bits of the examples, or None.

    Samples have the classes of the examples, if these have some.
    """
    config, look = run.model, Look.of(run.model, run.data.axes)
    if not run.samples:
        return None
    known = torch.from_numpy(validation.values[: run.samples]) if config.known_channels else None
    most = min(SHOWN if len(config.shape) == 2 else SHOWN // 2, run.training.batch_size // run.training.accumulate)
    spread = validation.spread(most)
    shown, label = torch.from_numpy(spread.values), label_of(spread)

    def callback(model: AxialTransformer, step: int) -> Mapping[str, NDArray[np.uint8]]:
        count = run.samples if known is None else len(known)
        classes = None if validation.labels is None else torch.from_numpy(np.resize(validation.labels, count))
        values = sample(model, count, seed=step, label=classes, known=known)
        grid = image_grid(values.cpu().numpy(), look=look)
        require_run(run.out)  # samples may take long
        save_picture(run.out / f"samples/step-{step:08d}.png", grid)
        bits = bits_map(model, shown, label).cpu().numpy()
        require_run(run.out)
        save_picture(run.out / BITS, under_examples(shown.numpy(), bits, look))
        return {"samples": np.asarray(grid)}

    return callback
