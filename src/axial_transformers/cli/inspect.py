"""axial inspect: shape, costs and dependencies of a model, and the costs of its training."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from axial_transformers.cli import machine_report
from axial_transformers.cli.console import working
from axial_transformers.cli.parsing import parse, parse_known, parser
from axial_transformers.cli.settings import leading_words, list_recipes, resolve_preset
from axial_transformers.decoding.drawing import cache_numbers
from axial_transformers.layers.initialisation import randomise
from axial_transformers.likelihood.dependencies import check, influence
from axial_transformers.models import AxialTransformerConfig
from axial_transformers.models.baselines.by_name import build, read_config
from axial_transformers.planning.machine import Machine, matmul_rate, this_machine
from axial_transformers.planning.operations import (
    decode_operations,
    engineering,
    forward_operations,
    parameters,
)
from axial_transformers.planning.plan import Plan, describe, describe_memory, plan
from axial_transformers.storage import model_folders
from axial_transformers.training import TrainConfig, read_run
from axial_transformers.training.metrics import read_curves
from axial_transformers.training.run_description import describe_run
from axial_transformers.training.run_page import write_page

MOST_SITES = 300
"""Largest number of sites of a model whose dependencies are checked: the time grows with its square."""
MOST_PARAMETERS = 5_000_000


@dataclass(frozen=True, kw_only=True)
class Inspect:
    """Show the shape, the costs and the dependencies of a model, and the costs of its training.

    What to inspect:
      axial inspect RECIPE [OVERRIDES]    a recipe's model, and what its training needs
      axial inspect SOURCE [OVERRIDES]    the model that axial train would fit to data
      axial inspect MODEL                 a run, an exported model, or a hub id
      axial inspect RUN --page            write RUN/index.html anew
      axial inspect --machine             this machine, and what is chosen by it

    For example:
      axial inspect digits
      axial inspect imagenet64 --devices 8 --utilisation 0.4
      axial inspect imagenet64 --devices 8 --training.shard --training.batch-size 128 --model.dim 1024
      axial inspect runs/digits --json
      axial inspect --machine

    Without --devices, --memory and --rate it is this machine: its free memory, and the measured rate of its matrix
    products. With any of them, the others are those of one H100 in bfloat16 (80 GB, 989 TFLOP/s).
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
    """Check with random weights which site depends on which; seconds, for small models only."""
    machine: bool = False
    """Show this machine instead of a model."""
    page: bool = False
    """Write the page of a run anew."""
    json: bool = False
    """Print one JSON object; bytes, operations, seconds."""

    @property
    def elsewhere(self) -> bool:
        """Whether other devices than those of this machine are asked about."""
        return any(option is not None for option in (self.devices, self.memory, self.rate))

    def devices_for(self, training: TrainConfig) -> Machine:
        """The devices asked about; of this machine, with the measured rate of its matrix products."""
        if not self.elsewhere:
            device, training = training.torch_device(), training.resolve_auto()
            dtype = torch.bfloat16 if training.precision == "bfloat16" else torch.float32
            found = this_machine(device)
            return replace(found, rate=matmul_rate(device, dtype) / 1e12, utilisation=self.utilisation)
        names = ("devices", "memory", "rate", "utilisation")
        return Machine(**{name: value for name in names if (value := getattr(self, name)) is not None})


def main(argv: Sequence[str]) -> None:
    """Runs the command."""
    if not argv or argv[0] in ("-h", "--help"):
        parser(Inspect, "inspect").help_print()
        print(f"Recipes, and what they reach:\n{list_recipes()}")
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
            found = machine_report.facts()
            _print(found, machine_report.rows(found), options.json)
        return
    options, overrides = Inspect(), list(argv[len(words) :])
    if {"-h", "--help"}.isdisjoint(overrides):  # otherwise the help is of the settings
        options, overrides = parse_known(Inspect, overrides, "inspect")
    config, training, run = _configs([*words, *overrides])
    record = None if run is None else read_run(run)
    origin = None if record is None else record.about
    planned = plan(config, training, None, options.devices_for(training))
    facts = {
        **inspect(config, options.dependencies),
        "data": None if origin is None else asdict(origin),
        "training": planned.to_json(),
    }
    tables = {**_sections(config, facts), **_training_rows(planned)}
    if run is not None and record is not None:
        tables |= {f"{title} of the run": rows for title, rows in describe_run(record, read_curves(run)).items()}
    _print(facts, tables, options.json)


def _print(facts: dict[str, Any], tables: dict[str, dict[str, str]], as_json: bool) -> None:
    """The facts as one JSON object, or tables with their titles."""
    if as_json:
        print(json.dumps(facts))
        return
    console = Console(highlight=False)
    for title, rows in tables.items():
        table = Table.grid("", "", Column(overflow="fold"), padding=(0, 2))
        for name, value in rows.items():
            table.add_row("", name, escape(value.replace("`", "")))
        console.print(f"[bold]{title}[/bold]", table)


def inspect(config: AxialTransformerConfig, dependencies: bool = True) -> dict[str, Any]:
    """Costs and dependencies of a model, as JSON holds them."""
    parts = parameters(config)
    numbers = cache_numbers(config)
    forward, decode = forward_operations(config), decode_operations(config)
    return {
        "config": asdict(config),
        "sites": _sites(config),
        "parameters": {**parts, "total": sum(parts.values())},
        "operations": {"forward": forward, "decode": decode, "decode_over_forward": decode / forward},
        "cache_bytes": {"float32": 4 * numbers, "bfloat16": 2 * numbers},
        "dependencies": _dependencies(config, sum(parts.values())) if dependencies else None,
    }


def _configs(argv: Sequence[str]) -> tuple[AxialTransformerConfig, TrainConfig, Path | None]:
    """Of a model: its configuration, the settings of its training, and its folder if that is of a run."""
    name = argv[0]
    looks_like_hub_id = name.count("/") == 1 and not Path(name).exists()
    if looks_like_hub_id or (Path(name) / model_folders.CONFIG).is_file():
        parse(_NoOptions, argv[1:], f"inspect {name}")
        folder = model_folders.locate(name)
        config = read_config(folder)
        record = read_run(folder)
        if record is None:
            return config, TrainConfig(), None  # of an exported model, the published setting
        return config, record.training, folder
    settings = resolve_preset(argv, "inspect").settings
    return settings.model, settings.training, None


@dataclass(frozen=True)
class _NoOptions:
    """No options: of a model that exists nothing can be overridden."""


def _sites(config: AxialTransformerConfig) -> int:
    layout = config.bijection
    return torch.Size(layout.shape).numel() * (layout.channels - config.known_channels)


def _dependencies(config: AxialTransformerConfig, size: int) -> dict[str, int] | None:
    """Leaks and holes of the model with random weights of scale 1 in float64; None where that would take long."""
    if _sites(config) > MOST_SITES or size > MOST_PARAMETERS:
        return None
    with working("checking which sites depend on which"):
        generator = torch.Generator().manual_seed(0)
        model = build(config).double()
        randomise(model, generator)
        x = torch.randint(config.num_values, (1, *config.shape, config.channels), generator=generator)
        found = check(influence(model, x))
    return {"leaks": found.leaks, "holes": found.holes, "pairs": found.past.numel()}


def _sections(config: AxialTransformerConfig, facts: dict[str, Any]) -> dict[str, dict[str, str]]:
    operations, cache = facts["operations"], facts["cache_bytes"]
    decode, ratio = engineering(operations["decode"]), operations["decode_over_forward"]
    return {
        "model": {**config.describe(), "generated sites": f"{facts['sites']:,}"},
        "parameters": {name: f"{count:>13,}" for name, count in facts["parameters"].items()},
        "operations for one example, matrix products": {
            "forward, all slices": engineering(operations["forward"]),
            "decode, with caches": f"{decode}, {ratio:.3f} times a forward",
        },
        "decoding caches for one example": {name: f"{engineering(size)}B" for name, size in cache.items()},
        "dependencies, with random weights of scale 1 in float64": {"all pairs": _verdict(facts["dependencies"])},
    }


def _training_rows(found: Plan[TrainConfig]) -> dict[str, dict[str, str]]:
    devices = "this machine" if found.machine.is_this else f"{found.machine.devices} devices"
    title = f"training on {devices}, {found.training.batch_size} examples a step in {found.training.precision}"
    rate = {} if found.machine.rate is None else {"matrix products": f"{found.machine.rate:.3g} TFLOP/s"}
    return {title: {**describe(found), **describe_memory(found), **rate}}


def _verdict(found: dict[str, int] | None) -> str:
    if found is None:
        return f"not checked: --dependencies does, up to {MOST_SITES} sites and {MOST_PARAMETERS:,} parameters"
    if found["leaks"] or found["holes"]:
        return f"{found['leaks']} leaks, {found['holes']} holes in {found['pairs']:,} pairs"
    return f"exact: no leak and no hole in {found['pairs']:,} pairs of sites"
