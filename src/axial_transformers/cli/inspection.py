"""The work of `axial inspect`: data, what `axial train` would do with them, and models."""

import json
import warnings
from dataclasses import asdict, replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from axial_transformers.cli.commands import Inspect
from axial_transformers.cli.console import print_rows
from axial_transformers.cli.training import decided, describe_training, planned, read
from axial_transformers.data import Examples
from axial_transformers.data.folders import by_cause
from axial_transformers.data.kinds import KINDS, kind_of
from axial_transformers.data.loading import files_of
from axial_transformers.data.scans import is_scan
from axial_transformers.decoding.sampling import cache_numbers
from axial_transformers.likelihood.dependencies import MAX_POSITIONS, check_configuration
from axial_transformers.models import AxialTransformerConfig
from axial_transformers.models.baselines.by_name import read_config
from axial_transformers.training import Facts, RunConfig, read_run
from axial_transformers.training.costs import costs_of, parameters
from axial_transformers.training.metrics import read_curves
from axial_transformers.training.run_description import describe_data, describe_run
from axial_transformers.wording import counted

VALUES_SEEN = 1 << 22
"""Most values that are looked at, about."""


def inspect(name: str, run: RunConfig | None, options: Inspect) -> None:
    """Print what a run reads and costs; without a run, what is in the model of this name."""
    record, facts, examples = None, None, None
    tables = dict[str, dict[str, str]]()
    if run is None:
        record = read_run(name)
        run, facts = (record.run, record.facts) if record else (RunConfig(model=read_config(name)), None)
    if record or not (run.source or run.open):
        run = replace(run, training=run.training.resolve_auto())
        costs = costs_of(run.model, run.training)
    else:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "skipped: ")  # a row says so
            run, examples, _, facts = read(run)
        run, costs = planned(run)
        tables[str(run.source)] = _data_rows(run, examples, facts)
    checked = _checked(run.model) if options.dependencies else None
    if options.json:
        print(json.dumps({**_model(run.model), "dependencies": checked, "data": facts and _data(run, facts),
                          "training": _training(run) | asdict(costs)}))  # fmt: skip
        return
    tables |= {"model": run.model.describe(), "training": describe_training(run, costs, facts.train if facts else None)}
    if options.dependencies:
        pairs = (
            checked and f"{checked['leaks']} leaks, {checked['holes']} holes in {checked['pairs']:,} pairs of positions"
        )
        tables["model"]["dependencies"] = pairs or f"not checked: more than {MAX_POSITIONS} positions"
    if record is not None:
        curves = read_curves(record.run.out)
        tables |= {f"{title} of the run": rows for title, rows in describe_run(record, curves).items()}
    for title, rows in tables.items():
        print_rows(rows, title)


def _data(run: RunConfig, facts: Facts) -> dict[str, Any]:
    kind = kind_of(run.model, run.data.axes)
    return {"recipe": run.recipe, "source": run.source, "kind": kind, "data": asdict(run.data), **asdict(facts)}


def _data_rows(run: RunConfig, examples: Examples, facts: Facts) -> dict[str, str]:
    """Return what the data are, as rows (name, value)."""
    model, path = run.model, Path(str(run.source))
    rows = {"kind": KINDS[kind_of(model, run.data.axes)]}
    if path.is_dir() and not is_scan(path):
        of, files, others = files_of(path, run.data)
        rows["files"] = counted(len(files), f"{of} file")
        if others:
            names = ", ".join(file.relative_to(path).as_posix() for file in others[:3])
            rows["not read"] = f"{counted(len(others), 'other file')}: {names}{', ...' * (len(others) > 3)}"
    if facts.skipped:
        rows["skipped"] = f"{counted(len(facts.skipped), 'file')}: {'; '.join(by_cause(facts.skipped))}"
    described = describe_data(run, facts)
    rows |= {name: described[name] for name in ("examples", "classes", "each") if name in described}
    seen = np.asarray(examples.spread(max(1, VALUES_SEEN // prod(model.shape))).values[:])
    ends = np.array([seen.min(), seen.max()])
    low, high = examples.grid.floats(ends) if examples.grid else ends
    floats = f", floats in {examples.grid}" if examples.grid else ""
    order = "numbers (ordinal)" if model.values == "ordinal" else "symbols (categorical)"
    rows["values"] = f"{model.num_values:,} {order}{floats}; found: {low:g}..{high:g}"
    return rows | decided(run, examples)


def _model(config: AxialTransformerConfig) -> dict[str, Any]:
    parts, numbers = parameters(config), cache_numbers(config)
    return {
        "config": asdict(config),
        "positions": prod(config.bijection.shape) * (config.bijection.channels - config.known_channels),
        "parameters": {**parts, "total": sum(parts.values())},
        "cache_bytes": {"float32": 4 * numbers, "bfloat16": 2 * numbers},
    }


def _training(run: RunConfig) -> dict[str, Any]:
    return {name: getattr(run.training, name) for name in ("precision", "batch_size", "steps")}


def _checked(config: AxialTransformerConfig) -> dict[str, int] | None:
    found = check_configuration(config)
    return found and {"leaks": found.leaks, "holes": found.holes, "pairs": found.past.numel()}
