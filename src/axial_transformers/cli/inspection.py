"""The work of `axial inspect`: data, what `axial train` would do with them, and models."""

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axial_transformers.cli.console import print_rows, printable, working
from axial_transformers.cli.parsing import command
from axial_transformers.cli.training import Prepared, decided, describe_training, prepare
from axial_transformers.data import Examples
from axial_transformers.data.folders import by_cause
from axial_transformers.data.kinds import KINDS, kind_of
from axial_transformers.data.loading import files_of
from axial_transformers.data.scans import is_scan
from axial_transformers.decoding.sampling import cache_numbers
from axial_transformers.likelihood.dependencies import MAX_PARAMETERS, MAX_POSITIONS, check_configuration
from axial_transformers.messages import Message
from axial_transformers.models import AxialTransformerConfig
from axial_transformers.models.baselines.by_name import read_config
from axial_transformers.storage.files import require_writable
from axial_transformers.training import Facts, RunConfig, read_run
from axial_transformers.training.callbacks import write_examples
from axial_transformers.training.costs import StepCosts, costs_of, parameters
from axial_transformers.training.metrics import read_curves
from axial_transformers.training.run_description import describe_data, describe_run
from axial_transformers.training.run_page import write_page
from axial_transformers.wording import counted, engineering

VALUES_SEEN = 1 << 22
"""Most values that are looked at, about."""


def inspect(options: Any, words: Sequence[str], run: RunConfig | None) -> None:
    """Print what a run reads and costs.

    Args:
        options: those of `cli.inspect`.
        words: of the command, without these options.
        run: the run that the words name; None: the first word names a model.
    """
    if options.page:
        print(write_page(Path(words[0])))
        return
    record = data = None
    tables, steps = dict[str, dict[str, str]](), dict[str, str]()
    if run is None:
        record = read_run(words[0])
        run = record.run if record else RunConfig(model=read_config(words[0]))
        data = record and _data_of(run, record.facts)
    examples = None
    if options.sheet is not None:
        if record or not run.source or options.sheet.suffix != ".png":
            way = "name the data and NAME.png, as in axial inspect my_photos/ --sheet some.png"
            raise ValueError(Message("{sheet=} is for a sheet of examples: {}", way, sheet=options.sheet))
        require_writable(options.sheet)
    if record or not (run.source or run.open):
        run = replace(run, training=run.training.resolve_auto())
        with working("counting what a step needs"):
            costs = costs_of(run.model, run.training)
    else:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "skipped: ")  # a row says so
            found = prepare(run)
        run, costs, examples = found.planned, found.costs, len(found.parts.train)
        rows, data = _data_rows(found), _data_of(run, found.facts())
        if options.sheet is not None:
            write_examples(options.sheet, found.parts.train, run.data.axes)
            rows["sheet"] = str(options.sheet)
        tables[printable(run.source)] = rows
        steps = _steps(found, words)
    training = {name: getattr(run.training, name) for name in ("precision", "batch_size", "steps")} | asdict(costs)
    facts = {**_facts(run.model, options.dependencies), "data": data, "training": training}
    plan = describe_training(run, costs, examples) | steps
    tables |= _tables(run.model, facts, costs, plan, options.verbose or options.dependencies)
    if record is not None:
        curves = read_curves(record.run.out)
        tables |= {f"{title} of the run": rows for title, rows in describe_run(record, curves).items()}
    _print(facts, tables, options.json)


def _steps(found: Prepared, words: Sequence[str]) -> dict[str, str]:
    """Return what to do next, as rows."""
    training = found.planned.training
    rows = {"to start": command("train", *words)}
    if training.minutes is None:
        rows["for an hour"] = command("train", *words, "--training.minutes", 60)
    return rows


def _data_of(run: RunConfig, facts: Facts) -> dict[str, Any]:
    kind = kind_of(run.model, run.data.axes)
    return {"recipe": run.recipe, "source": run.source, "kind": kind, "data": asdict(run.data), **asdict(facts)}


def _data_rows(found: Prepared) -> dict[str, str]:
    """Return what the data are, as rows (name, value)."""
    run, model, train = found.planned, found.planned.model, found.parts.train
    path, size, kind = Path(str(run.source)), run.data.size, kind_of(model, run.data.axes)
    rows = {"kind": KINDS[kind]}
    if path.is_dir() and not is_scan(path):
        of, files, others = files_of(path, run.data)
        rows["files"] = counted(len(files), f"{of} file")
        if others:
            names = ", ".join(file.relative_to(path).as_posix() for file in others[:3])
            rows["not read"] = f"{counted(len(others), 'other file')}: {names}{', ...' * (len(others) > 3)}"
    if skipped := found.parts.skipped:
        rows["skipped"] = f"{counted(len(skipped), 'file')}: {'; '.join(by_cause(skipped))}"
    described = describe_data(run, found.facts())
    rows |= {name: described[name] for name in ("examples", "classes", "each") if name in described}
    if size is not None:
        sides = " x ".join(map(str, size if isinstance(size, tuple) else (size, size)))
        whole = run.data.fit in ("crop", "stretch")
        rows["size" if whole else "tiles"] = sides + (f", by {run.data.fit}" if whole else ", the rest is left out")
    count = max(1, VALUES_SEEN // prod(model.shape))
    seen = np.asarray(train.spread(count).values[:])
    floats = f", floats in {train.grid}" if train.grid else ""
    order = "numbers (ordinal)" if model.values == "ordinal" else "symbols (categorical)"
    rows["values"] = f"{model.num_values:,} {order}{floats}; found: {_range(seen, train)}"
    rows |= decided(found)
    if kind == "row":
        rows["columns"] = ", ".join(f"{i}: {_range(seen[:, i], train)}" for i in range(model.shape[0]))
    return rows


def _range(values: NDArray[np.integer], examples: Examples) -> str:
    ends = np.array([values.min(), values.max()])
    low, high = examples.grid.floats(ends) if examples.grid else ends
    return f"{low:g}..{high:g}"


def _print(facts: dict[str, Any], tables: dict[str, dict[str, str]], as_json: bool) -> None:
    if as_json:
        print(json.dumps(facts))
        return
    for title, rows in tables.items():
        print_rows(rows, title)


def _facts(config: AxialTransformerConfig, dependencies: bool) -> dict[str, Any]:
    parts = parameters(config)
    numbers = cache_numbers(config)
    return {
        "config": asdict(config),
        "positions": prod(config.bijection.shape) * (config.bijection.channels - config.known_channels),
        "parameters": {**parts, "total": sum(parts.values())},
        "cache_bytes": {"float32": 4 * numbers, "bfloat16": 2 * numbers},
        "dependencies": _checked(config) if dependencies else None,
    }


def _checked(config: AxialTransformerConfig) -> dict[str, int] | None:
    with working("checking which positions depend on which"):
        found = check_configuration(config)
    return found and {"leaks": found.leaks, "holes": found.holes, "pairs": found.past.numel()}


def _tables(
    model: AxialTransformerConfig, facts: dict[str, Any], costs: StepCosts, plan: Mapping[str, str], verbose: bool
) -> dict[str, dict[str, str]]:
    tables = {"model": model.describe()}
    if not verbose:
        return tables | {"training": dict(plan)}
    cache = facts["cache_bytes"]
    tables |= {
        "parameters": {name: f"{count:>13,}" for name, count in facts["parameters"].items()},
        "one example": {
            "generated positions": f"{facts['positions']:,}",
            "caches of decoding": ", ".join(f"{engineering(size)}B in {name}" for name, size in cache.items()),
            "dependencies": _verdict(facts["dependencies"]),
        },
    }
    parts = ("weights", "gradients", "moments", "average", "saved")
    return tables | {"training": {**plan, **{name: f"{engineering(getattr(costs, name))}B" for name in parts}}}


def _verdict(found: dict[str, int] | None) -> str:
    if found is None:
        return f"not checked: --dependencies does, up to {MAX_POSITIONS} positions and {MAX_PARAMETERS:,} parameters"
    if found["leaks"] or found["holes"]:
        return f"{found['leaks']} leaks, {found['holes']} holes in {found['pairs']:,} pairs"
    return f"exact: no leak and no hole in {found['pairs']:,} pairs of positions"
