"""axial inspect: shape, costs and dependencies of a model."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

import torch

from axial_transformers import recipes
from axial_transformers.cli.console import print_rows, working
from axial_transformers.cli.parsing import parse, parse_known, parser
from axial_transformers.cli.train import leading_words, requested
from axial_transformers.cli.training import read_training
from axial_transformers.decoding.sampling import cache_numbers
from axial_transformers.likelihood.dependencies import MAX_PARAMETERS, MAX_POSITIONS, check_configuration
from axial_transformers.models import AxialTransformerConfig
from axial_transformers.models.baselines.by_name import names_model, read_config
from axial_transformers.planning.costs import Costs, describe, describe_memory
from axial_transformers.planning.flops import (
    decode_flops,
    engineering,
    forward_flops,
    parameters,
)
from axial_transformers.planning.machine import (
    Machine,
    machine_facts,
    machine_rows,
    matmul_rate,
    this_machine,
)
from axial_transformers.training import RunConfig, RunRecord, TrainConfig, read_run
from axial_transformers.training.metrics import read_curves
from axial_transformers.training.plan import resolved
from axial_transformers.training.run_description import describe_run
from axial_transformers.training.run_page import write_page


@dataclass(frozen=True, kw_only=True)
class Inspect:
    """Show the shape, the costs and the dependencies of a model, and the costs of its training.

    What to inspect:
      axial inspect RECIPE [OVERRIDES]    a recipe's model and its training
      axial inspect SOURCE [OVERRIDES]    the model that axial train would fit to data
      axial inspect MODEL                 a run, an exported model, or a hub id
      axial inspect RUN --page            write RUN/index.html again
      axial inspect --machine             this machine, and the choices it leads to

    For example:
      axial inspect digits
      axial inspect imagenet64 --devices 8 --utilisation 0.4
      axial inspect imagenet64 --devices 8 --training.shard --training.batch-size 128 --model.dim 1024
      axial inspect runs/digits --json
      axial inspect --machine

    Without --devices, --memory and --rate, costs are for this machine: its free memory, and the measured rate of its
    matrix products. With any of them, the others are those of one H100 in bfloat16 (80 GB, 989 TFLOP/s).
    """

    devices: int | None = None
    """Number of devices to train on."""
    memory: float | None = None
    """GB of memory of each device."""
    rate: float | None = None
    """TFLOP/s of the matrix products of each device."""
    utilisation: float | None = None
    """Share of that rate that training reaches."""
    dependencies: bool = False
    """Check with random weights which position depends on which; for small models only."""
    machine: bool = False
    """Show this machine instead of a model."""
    page: bool = False
    """Write the page of a run again."""
    json: bool = False
    """Print one JSON object; bytes, FLOPs, seconds."""

    @property
    def elsewhere(self) -> bool:
        return any(option is not None for option in (self.devices, self.memory, self.rate))

    def devices_for(self, training: TrainConfig) -> Machine:
        """Return the devices to plan for.

        Args:
            training: without `auto`, if it is for this machine.
        """
        if not self.elsewhere:
            device = training.torch_device()
            dtype = torch.bfloat16 if training.precision == "bfloat16" else torch.float32
            found = this_machine(device)
            return replace(found, rate=matmul_rate(device, dtype) / 1e12, utilisation=self.utilisation)
        names = ("devices", "memory", "rate", "utilisation")
        return Machine(**{name: value for name in names if (value := getattr(self, name)) is not None})


def main(argv: Sequence[str]) -> None:
    """Run the command."""
    if not argv or argv[0] in ("-h", "--help"):
        parser(Inspect, "inspect").help_print()
        print(f"Recipes, and what they reach:\n{recipes.listed()}")
        return
    words = leading_words(argv)
    if "--machine" in argv or "--page" in argv:
        options = parse(Inspect, argv[len(words) :], "inspect")
        if len(words) != options.page:
            raise ValueError("axial inspect takes a run and --page, or --machine alone")
        if options.elsewhere:
            raise ValueError("--devices, --memory and --rate are of other machines: leave them out")
        if options.page:
            print(write_page(Path(words[0])))
        else:
            found = machine_facts()
            _print(found, machine_rows(found), options.json)
        return
    options, overrides = Inspect(), list(argv[len(words) :])
    if {"-h", "--help"}.isdisjoint(overrides):  # otherwise the help is of the settings
        options, overrides = parse_known(Inspect, overrides, "inspect")
    run, record = _run([*words, *overrides])
    if not options.elsewhere:
        run = replace(run, training=run.training.resolve_auto())
    machine = options.devices_for(run.training)
    costs = Costs(model=run.model, training=resolved(run.training, machine), machine=machine)
    facts = {
        **_facts(run.model, options.dependencies),
        "data": None if record is None else _data_of(record),
        "training": costs.to_json(),
    }
    tables = _tables(run.model, facts, costs)
    if record is not None:
        curves = read_curves(record.run.out)
        tables |= {f"{title} of the run": rows for title, rows in describe_run(record, curves).items()}
    _print(facts, tables, options.json)


def _data_of(record: RunRecord) -> dict[str, Any]:
    run = record.run
    return {"recipe": run.recipe, "source": run.source, "data": asdict(run.data), **asdict(record.facts)}


def _print(facts: dict[str, Any], tables: dict[str, dict[str, str]], as_json: bool) -> None:
    if as_json:
        print(json.dumps(facts))
        return
    for title, rows in tables.items():
        print_rows(rows, title)


def _facts(config: AxialTransformerConfig, dependencies: bool) -> dict[str, Any]:
    parts = parameters(config)
    numbers = cache_numbers(config)
    forward, decode = forward_flops(config), decode_flops(config)
    return {
        "config": asdict(config),
        "positions": prod(config.bijection.shape) * (config.bijection.channels - config.known_channels),
        "parameters": {**parts, "total": sum(parts.values())},
        "flops": {"forward": forward, "decode": decode, "decode_over_forward": decode / forward},
        "cache_bytes": {"float32": 4 * numbers, "bfloat16": 2 * numbers},
        "dependencies": _checked(config) if dependencies else None,
    }


def _run(argv: Sequence[str]) -> tuple[RunConfig, RunRecord | None]:
    """Return the run that words name; of an exported model, with the published settings."""
    if argv and names_model(name := argv[0]):
        parse(_NoOptions, argv[1:], f"inspect {name}")
        record = read_run(name)
        return record.run if record else RunConfig(model=read_config(name)), record
    run = requested(argv, "inspect").run
    return (read_training(run)[0] if run.recipe == "custom" else run), None


@dataclass(frozen=True)
class _NoOptions:
    """An existing model has nothing to override."""


def _checked(config: AxialTransformerConfig) -> dict[str, int] | None:
    with working("checking which positions depend on which"):
        found = check_configuration(config)
    return found and {"leaks": found.leaks, "holes": found.holes, "pairs": found.past.numel()}


def _tables(config: AxialTransformerConfig, facts: dict[str, Any], costs: Costs) -> dict[str, dict[str, str]]:
    flops, cache, machine = facts["flops"], facts["cache_bytes"], costs.machine
    decode, ratio = engineering(flops["decode"]), flops["decode_over_forward"]
    tables = {
        "model": config.describe(),
        "parameters": {name: f"{count:>13,}" for name, count in facts["parameters"].items()},
        "one example": {
            "generated positions": f"{facts['positions']:,}",
            "FLOPs forward": f"{engineering(flops['forward'])}FLOP, all slices",
            "FLOPs decoding": f"{decode}FLOP with caches, {ratio:.3f} times a forward pass",
            "caches of decoding": ", ".join(f"{engineering(size)}B in {name}" for name, size in cache.items()),
            "dependencies": _verdict(facts["dependencies"]),
        },
    }
    devices = "this machine" if machine.is_this else f"{machine.devices} devices"
    title = f"training on {devices}, {costs.training.batch_size} examples a step in {costs.training.precision}"
    rate = {} if machine.rate is None else {"matrix products": f"{machine.rate:.3g} TFLOP/s"}
    return {**tables, title: {**describe(costs), **describe_memory(costs), **rate}}


def _verdict(found: dict[str, int] | None) -> str:
    if found is None:
        return f"not checked: --dependencies does, up to {MAX_POSITIONS} positions and {MAX_PARAMETERS:,} parameters"
    if found["leaks"] or found["holes"]:
        return f"{found['leaks']} leaks, {found['holes']} holes in {found['pairs']:,} pairs"
    return f"exact: no leak and no hole in {found['pairs']:,} pairs of positions"
