"""axial inspect: shape, costs and dependencies of a model, and the costs of its training."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from axial_transformers.cli.console import engineering, working
from axial_transformers.cli.parsing import parse, parse_known
from axial_transformers.cli.settings import list_recipes, resolve_preset
from axial_transformers.cli.sizing import rows as training_rows
from axial_transformers.cli.sizing import size
from axial_transformers.costs.operations import cache_numbers, decode_operations, forward_operations, parameters
from axial_transformers.costs.training_step import Hardware
from axial_transformers.layers.initialisation import randomise
from axial_transformers.likelihood.dependencies import check, influence
from axial_transformers.models import AxialTransformer, AxialTransformerConfig
from axial_transformers.storage import model_folders
from axial_transformers.storage.typed_json import from_json
from axial_transformers.training import TrainConfig, read_run

MOST_SITES = 300
"""Largest number of sites of a model whose dependencies are checked: the time grows with its square."""
MOST_PARAMETERS = 5_000_000

HELP = """\
usage: axial inspect RECIPE [OPTIONS] [OVERRIDES]    a recipe's model, and what its training needs
       axial inspect SOURCE [OPTIONS] [OVERRIDES]    the model that axial train would fit to the data in SOURCE
       axial inspect MODEL [OPTIONS]                 the folder of a run or an exported model, or a hub id

  axial inspect digits
  axial inspect imagenet64 --devices 8 --utilisation 0.4
  axial inspect imagenet64 --devices 8 --training.shard --training.batch-size 128 --model.dim 1024
  axial inspect runs/digits --json

  --devices 1          number of devices to train on
  --memory 80          memory of each device, in GB
  --rate 989           rate of each device's matrix products, in TFLOP/s; 989 is the stated rate of an H100 in bfloat16
  --utilisation 0.4    share of that rate that training reaches
  --json               print one JSON object; bytes, operations, seconds

Recipes, and what they reach:
"""


def main(argv: Sequence[str]) -> int:
    """Runs the verb."""
    if not argv or argv[0] in ("-h", "--help"):
        print(HELP)
        print(list_recipes())
        return 0
    hardware, words = _hardware(argv)
    config, training = _configs(words)
    facts = {**inspect(config), "training": size(config, training, hardware)}
    if "--json" in argv:
        print(json.dumps(facts))
    else:
        console = Console(highlight=False)
        for title, rows in {**_sections(config, facts), **training_rows(facts["training"])}.items():
            table = Table.grid(padding=(0, 2))
            for row in rows.items():
                table.add_row("", *row)
            console.print(f"[bold]{title}[/bold]", table)
    return 0


def inspect(config: AxialTransformerConfig) -> dict[str, Any]:
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
        "dependencies": _dependencies(config, sum(parts.values())),
    }


def _hardware(argv: Sequence[str]) -> tuple[Hardware, list[str]]:
    """The devices to train on, and the other words."""
    words = [word for word in argv if word != "--json"]
    if {"-h", "--help"} & set(words):
        return Hardware(), words
    place = next((i for i, word in enumerate(words) if word.startswith("-")), len(words))
    hardware, others = parse_known(Hardware, words[place:], "inspect")
    return hardware, [*words[:place], *others]


def _configs(argv: Sequence[str]) -> tuple[AxialTransformerConfig, TrainConfig]:
    name = argv[0]
    looks_like_hub_id = name.count("/") == 1 and not Path(name).exists()
    if looks_like_hub_id or (Path(name) / model_folders.CONFIG).is_file():
        parse(_NoOptions, argv[1:], f"inspect {name}")
        folder = model_folders.locate(name)
        stored = model_folders.load_config(folder, AxialTransformer.name)
        config = from_json(AxialTransformerConfig, stored, folder / model_folders.CONFIG)
        record = read_run(folder)
        return config, record.training if record else TrainConfig()  # of an exported model, the published setting
    settings = resolve_preset(argv, "inspect").settings
    return settings.model, settings.training


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
        model = AxialTransformer(config).double()
        randomise(model, generator)
        x = torch.randint(config.num_values, (1, *config.shape, config.channels), generator=generator)
        found = check(influence(model, x))
    return {"leaks": found.leaks, "holes": found.holes, "pairs": found.past.numel()}


def _sections(config: AxialTransformerConfig, facts: dict[str, Any]) -> dict[str, dict[str, str]]:
    data = "x".join(map(str, (*config.shape, config.channels)))
    inner = str(config.inner_layers) if config.inner == "attention" else "LSTM"
    outer = " + ".join(map(str, config.layers_of_outer_decoders)) or "none"
    operations, cache = facts["operations"], facts["cache_bytes"]
    decode, ratio = engineering(operations["decode"]), operations["decode_over_forward"]
    return {
        "model": {
            "data": f"{data}, values 0..{config.num_values - 1}",
            "generated sites": f"{facts['sites']:,}",
            "width": f"{config.dim} in {config.heads} heads of {config.dim // config.heads}",
            "layers": f"encoder {config.encoder_layers}, outer {outer}, inner {inner}",
            "classes": str(config.num_classes or "none"),
            "layout": config.layout,
        },
        "parameters": {name: f"{count:>13,}" for name, count in facts["parameters"].items()},
        "operations for one example, matrix products": {
            "forward, all slices": engineering(operations["forward"]),
            "decode, with caches": f"{decode}, {ratio:.3f} times a forward",
        },
        "decoding caches for one example": {name: f"{engineering(size)}B" for name, size in cache.items()},
        "dependencies, with random weights of scale 1 in float64": {"all pairs": _verdict(facts["dependencies"])},
    }


def _verdict(found: dict[str, int] | None) -> str:
    if found is None:
        return f"not checked: only up to {MOST_SITES} sites and {MOST_PARAMETERS:,} parameters"
    if found["leaks"] or found["holes"]:
        return f"[red]{found['leaks']} leaks, {found['holes']} holes[/red] in {found['pairs']:,} pairs"
    return f"exact: no leak and no hole in {found['pairs']:,} pairs of sites"
