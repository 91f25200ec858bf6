"""From `RECIPE [SOURCE] --training.steps 500` to a whole configuration: a preset, then overrides."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tyro

from axial_transformers import recipes
from axial_transformers.checkpoint import from_json
from axial_transformers.cli import did_you_mean
from axial_transformers.cli.parsing import parse
from axial_transformers.data import DataConfig, Examples, load
from axial_transformers.models import AxialTransformerConfig
from axial_transformers.training import TrainConfig

RUN_RECORD = "train.json"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a run is made of; every value can be overridden."""

    out: Path
    """The run's folder."""
    resume: bool = False
    """Continue what was begun in the run's folder, bitwise as if it had never stopped."""
    validate_on: int = 1000
    """At most so many validation examples are looked at during training."""
    samples: int = 36
    """Examples in a sample grid."""
    data: DataConfig = field(default_factory=DataConfig)
    model: AxialTransformerConfig
    training: TrainConfig = field(default_factory=TrainConfig)


@dataclass(frozen=True)
class Preset:
    """A recipe with its place: the data that it reads, and the settings that it starts from."""

    name: str
    source: str
    settings: Settings
    examples: Examples | None = None
    """The training examples, where they had to be read already."""


def choose(argv: Sequence[str], verb: str) -> Preset:
    """The preset that `argv` names, with its overrides applied.

    The first words are a recipe's name and, where it has none of its own, its source; or a source alone (a model of its
    shape is made up); or the folder of a run (its own settings are taken, and it is resumed).

    Raises:
        ValueError: no such recipe, or a recipe without its data.
    """
    words = _leading_words(argv)
    overrides = argv[len(words) :]
    if not 1 <= len(words) <= 2:
        raise ValueError(f"a recipe or a source comes first, then overrides: axial {verb} digits --model.dim 96")
    name, source = words[0], words[1] if len(words) == 2 else None
    if name in recipes.NAMED:
        preset = of_recipe(name, source)
    elif (Path(name) / RUN_RECORD).is_file():
        preset = _run(Path(name))
    elif Path(name).exists():
        preset = _custom(name, overrides)
    else:
        raise ValueError(f"no recipe, folder or file {name!r}{did_you_mean(name, recipes.NAMED)}")
    settings = parse(Settings, overrides, f"{verb} {name}", default=preset.settings)
    return Preset(preset.name, preset.source, settings, preset.examples)


def _leading_words(argv: Sequence[str]) -> list[str]:
    flags = [i for i, word in enumerate(argv) if word.startswith("-")]
    return list(argv[: flags[0] if flags else len(argv)])


def of_recipe(name: str, source: str | None = None) -> Preset:
    """A recipe with its settings as they are, to be trained in runs/NAME."""
    recipe = recipes.NAMED[name]()
    return Preset(
        name,
        source or recipe.source or "",
        Settings(out=Path("runs") / name, data=recipe.data, model=recipe.model, training=recipe.training),
    )


@dataclass(frozen=True, kw_only=True)
class _DataOnly:
    data: DataConfig = field(default_factory=DataConfig)


def _custom(source: str, overrides: Sequence[str]) -> Preset:
    """The data's options come first, since the model's shape follows from the data."""
    wanted = [word for word in overrides if word not in ("-h", "--help")]
    options, _ = tyro.cli(_DataOnly, args=wanted, return_unknown_args=True, prog="axial")
    examples = load(source, options.data, "train")
    recipe = recipes.custom(examples)
    out = Path("runs") / Path(source).resolve().stem
    settings = Settings(out=out, data=options.data, model=recipe.model, training=recipe.training)
    return Preset("custom", source, settings, examples)


def _run(folder: Path) -> Preset:
    record = read_record(folder)
    path = folder / RUN_RECORD
    settings = Settings(
        out=folder,
        resume=True,
        data=from_json(DataConfig, record["about"]["data"], path),
        model=from_json(AxialTransformerConfig, record["model"], path),
        training=from_json(TrainConfig, record["training"], path),
    )
    return Preset(record["about"]["recipe"], record["about"]["source"], settings)


def read_record(folder: Path) -> dict[str, Any]:
    """What `axial train` noted about a run.

    Raises:
        ValueError: the note is damaged, or of something else.
        FileNotFoundError: there is none.
    """
    path = folder / RUN_RECORD
    try:
        record = json.loads(path.read_text())
        if not {"recipe", "source", "data"} <= set(record["about"]) or not {"model", "training"} <= set(record):
            raise ValueError("something is missing")
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{path}: not the record of a run of axial train ({error})") from error
    return record


def describe() -> str:
    """All recipes, one a line."""
    width = max(map(len, recipes.NAMED)) + 2
    return "\n".join(
        f"  {name:<{width}}{(recipe := make()).title}; {recipe.reaches}" for name, make in recipes.NAMED.items()
    )
