"""From `RECIPE [SOURCE] --training.steps 500` to a whole configuration: a preset, then overrides."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import tyro

from axial_transformers import recipes
from axial_transformers.cli import did_you_mean
from axial_transformers.cli.parsing import parse
from axial_transformers.data import DataConfig, Examples, load, names_shards
from axial_transformers.models import AxialTransformerConfig
from axial_transformers.storage.files import require_inside
from axial_transformers.storage.typed_json import from_json, read_object
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
    overrides = [re.sub("^--skip-bad(?=$|=)", "--data.skip-bad", word) for word in argv[len(words) :]]
    if not 1 <= len(words) <= 2:
        raise ValueError(f"a recipe or a source comes first, then overrides: axial {verb} digits --model.dim 96")
    name, source = words[0], words[1] if len(words) == 2 else None
    if name in recipes.NAMED:
        preset = of_recipe(name, source)
    elif (Path(name) / RUN_RECORD).is_file():
        preset = _run(Path(name))
    elif Path(name).exists() or names_shards(name):
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
    stem = Path(source).resolve().stem if Path(source).exists() else Path(source).stem
    out = Path("runs") / (re.split(r"\W*\{", stem)[0] or "shards")
    settings = Settings(out=out, data=options.data, model=recipe.model, training=recipe.training)
    return Preset("custom", source, settings, examples)


def _run(folder: Path) -> Preset:
    record = read_record(folder)
    about = record.about
    settings = Settings(out=folder, resume=True, data=about.data, model=record.model, training=record.training)
    return Preset(about.recipe, about.source, settings)


@dataclass(frozen=True, kw_only=True)
class Origin:
    """What a run is a run of."""

    recipe: str
    source: str
    data: DataConfig
    uint16: bool = False
    class_names: tuple[str, ...] | None = None
    skipped: tuple[str, ...] = ()
    """What was wrong with each damaged record of the source."""


@dataclass(frozen=True, kw_only=True)
class Fingerprint:
    """Which examples were found there."""

    fingerprint: str


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """What `axial train` notes about a run."""

    data: Fingerprint
    training: TrainConfig
    model: AxialTransformerConfig
    about: Origin


def read_record(folder: Path) -> RunRecord:
    """What `axial train` noted about a run.

    Raises:
        ValueError: the note is damaged, of something else, or a link out of the folder.
        FileNotFoundError: there is none.
    """
    path = require_inside(folder / RUN_RECORD, folder)
    return from_json(RunRecord, read_object(path, "the record of a run of axial train", mebibytes=16), path)


def describe() -> str:
    """All recipes, one a line."""
    width = max(map(len, recipes.NAMED)) + 2
    return "\n".join(
        f"  {name:<{width}}{(recipe := make()).title}; {recipe.reaches}" for name, make in recipes.NAMED.items()
    )
