"""axial inspect: what a model is and what it costs."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from axial_transformers import checkpoint
from axial_transformers.cli.console import ERRORS
from axial_transformers.cli.parsing import parse
from axial_transformers.cli.settings import choose, describe
from axial_transformers.costs import cache_numbers, decode_operations, forward_operations, parameters
from axial_transformers.dependencies import check, influence
from axial_transformers.layers.initialisation import randomise
from axial_transformers.models import AxialTransformer, AxialTransformerConfig

MOST_SITES = 300
"""Of a model whose dependencies are checked: the time grows with their square."""
MOST_PARAMETERS = 5_000_000

HELP = """\
usage: axial inspect RECIPE [OVERRIDES] [--json]    a recipe's model
       axial inspect SOURCE [OVERRIDES] [--json]    the model that axial train would make up for the data in SOURCE
       axial inspect MODEL [--json]                 the folder of a run or an exported model, or a hub id

  axial inspect digits
  axial inspect imagenet64 --model.dim 1024
  axial inspect runs/digits --json

Recipes, and what they reach:
"""


def main(argv: Sequence[str]) -> int:
    """Runs the verb."""
    if not argv or argv[0] in ("-h", "--help"):
        print(HELP)
        print(describe())
        return 0
    as_json = "--json" in argv
    config = _config([word for word in argv if word != "--json"])
    facts = inspect(config)
    if as_json:
        print(json.dumps(facts))
    else:
        console = Console(highlight=False)
        for title, rows in _sections(config, facts).items():
            table = Table.grid(padding=(0, 2))
            for row in rows.items():
                table.add_row("", *row)
            console.print(f"[bold]{title}[/bold]", table)
    return 0


def inspect(config: AxialTransformerConfig) -> dict[str, Any]:
    """Everything that `axial inspect` says, as JSON holds it."""
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


def _config(argv: Sequence[str]) -> AxialTransformerConfig:
    name = argv[0]
    looks_like_hub_id = name.count("/") == 1 and not Path(name).exists()
    if looks_like_hub_id or (Path(name) / checkpoint.CONFIG).is_file():
        parse(_NoOptions, argv[1:], f"inspect {name}")
        folder = checkpoint.locate(name)
        stored = checkpoint.load_config(folder, AxialTransformer.name)
        return checkpoint.from_json(AxialTransformerConfig, stored, folder / checkpoint.CONFIG)
    return choose(argv, "inspect").settings.model


@dataclass(frozen=True)
class _NoOptions:
    """A model that exists already; only --json can be added."""


def _sites(config: AxialTransformerConfig) -> int:
    layout = config.placement
    return torch.Size(layout.shape).numel() * (layout.channels - config.known_channels)


def _dependencies(config: AxialTransformerConfig, size: int) -> dict[str, int] | None:
    """Leaks and holes of the model with random weights of scale 1 in float64; None where that would take long."""
    if _sites(config) > MOST_SITES or size > MOST_PARAMETERS:
        return None
    with ERRORS.status("checking which sites hear which"):
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
    decode, ratio = _engineering(operations["decode"]), operations["decode_over_forward"]
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
            "forward, all slices": _engineering(operations["forward"]),
            "decode, with caches": f"{decode}, {ratio:.3f} times a forward",
        },
        "decoding caches for one example": {name: f"{_engineering(size)}B" for name, size in cache.items()},
        "dependencies, with random weights of scale 1 in float64": {"all pairs": _verdict(facts["dependencies"])},
    }


def _verdict(found: dict[str, int] | None) -> str:
    if found is None:
        return f"not checked: only up to {MOST_SITES} sites and {MOST_PARAMETERS:,} parameters"
    if found["leaks"] or found["holes"]:
        return f"[red]{found['leaks']} leaks, {found['holes']} holes[/red] in {found['pairs']:,} pairs"
    return f"exact: no leak and no hole in {found['pairs']:,} pairs of sites"


def _engineering(number: float) -> str:
    for factor, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= factor:
            return f"{number / factor:.3g} {prefix}"
    return f"{number:.3g} "
