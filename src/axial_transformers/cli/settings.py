"""The settings of a run: a preset, then overrides."""

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from axial_transformers import data as sources
from axial_transformers import recipes, training  # their doors open at first use: a mistyped option waits for no torch
from axial_transformers.cli import did_you_mean
from axial_transformers.cli.console import say
from axial_transformers.cli.parsing import parse, parse_known
from axial_transformers.data.config import DataConfig
from axial_transformers.models import AxialTransformerConfig
from axial_transformers.progress import bar
from axial_transformers.training import TrainConfig


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Settings of a run beside those of data, model and training."""

    out: Path
    """The run's folder."""
    resume: bool = False
    """Continue the run in the folder bitwise (on CUDA only with training.deterministic)."""
    validate_on: int = 1000
    """Most validation examples that are evaluated during training."""
    samples: int = 36
    """Examples in a sample grid. 0: no grids."""
    start_from: Annotated[str | None, Parameter(name="--from")] = None
    """Start from the weights of this model: a run, a folder, a hub id, or a model of the package. Its values, channels,
    layout and width stay; the shape and the classes are those of the data."""


@dataclass(frozen=True, kw_only=True)
class Settings(RunOptions):
    """All settings of a run; every value can be overridden."""

    data: DataConfig = field(default_factory=DataConfig)
    model: AxialTransformerConfig
    training: TrainConfig = field(default_factory=TrainConfig)


@dataclass(frozen=True)
class Preset:
    """A recipe, the source of its data, and the settings to train with."""

    name: str
    source: str
    settings: Settings
    examples: "sources.Examples | None" = None
    recorded: bool = False
    """True if the record of the run names the source, not the command line."""
    given: frozenset[str] = frozenset()
    """Overridden settings, such as training.steps."""
    resumed: "training.RunRecord | None" = None


def resolve_preset(argv: Sequence[str], command: str) -> Preset:
    """Return the preset that `argv` names, with its overrides.

    The first words are a recipe, with a source if it has none; a source alone; or a run to resume, with another source
    if wanted.
    """
    words = leading_words(argv)
    overrides = argv[len(words) :]
    if not words:
        raise ValueError(f"a recipe or a source comes first, then overrides: axial {command} digits --model.dim 96")
    name, source = words[0], words[1] if len(words) > 1 else None
    _check_number_of_sources(words, command)
    wanted = [word for word in overrides if word not in HELP]
    early = parse_known(_DataAndStart, wanted, command)[0]
    start = early.start_from
    if name in recipes.NAMED:
        preset = _started(recipe_preset(name, source), start)
    elif record := training.read_run(name):
        if start is not None:
            raise ValueError(f"{name} is a run, which goes on from its own weights: leave out --from {start}")
        preset = _run_preset(Path(name), record, source)
    elif Path(name).exists() or sources.names_shards(name):
        any_fit = any(word.startswith("--data.fit") for word in wanted)
        preset = _started(_custom_preset(name, early, any_fit), start)
    else:
        raise ValueError(f"no recipe, folder or file {name!r}{did_you_mean(name, recipes.NAMED)}")
    settings = _overridden(preset.settings, overrides, f"{command} {name}")
    options = (word.removeprefix("--").split("=")[0] for word in overrides if word.startswith("--"))
    given = frozenset(option.replace("_", "-").replace(".no-", ".") for option in options)
    resumed = training.read_run(settings.out) if settings.resume else None
    return replace(preset, settings=settings, given=given, resumed=resumed)


def _overridden(defaults: Settings, overrides: Sequence[str], command: str) -> Settings:
    no_options = {name: value for name, value in vars(defaults.model).items() if _is_nested(value)}
    for name in no_options:
        if any(word.split("=")[0] == f"--model.{name}" for word in overrides):
            raise ValueError(f"--model.{name} cannot be set on the command line: call training.train from Python")

    def settings(
        *,
        run: Annotated[RunOptions, Parameter(name="*")],
        data: DataConfig,
        model: AxialTransformerConfig,
        training: TrainConfig,
    ) -> Settings:
        return Settings(**vars(run), data=data, model=replace(model, **no_options), training=training)

    settings.__annotations__["model"] = type(defaults.model)
    values = asdict(defaults)
    del values["start_from"]  # named by the words alone
    return parse(settings, overrides, command, values)


def _is_nested(value: object) -> bool:
    """Return True for tuples of tuples, which words cannot say."""
    return isinstance(value, tuple) and any(isinstance(each, tuple) for each in value)


def _check_number_of_sources(words: Sequence[str], command: str) -> None:
    """Raise ValueError where a word would be ignored."""
    first, *others = words
    if len(others) > (1 if first in recipes.NAMED or training.read_run(first) else 0):
        more = " and ".join(others[1:] if first in recipes.NAMED else others)
        raise ValueError(
            f"axial {command} takes one source, and {more} is one more: put the files into one folder, or name shards "
            "by a pattern such as 'train-{000..099}.tar'"
        )


def leading_words(argv: Sequence[str]) -> list[str]:
    """Return the words before the first option."""
    flags = [i for i, word in enumerate(argv) if word.startswith("-")]
    return list(argv[: flags[0] if flags else len(argv)])


def recipe_preset(name: str, source: str | None = None) -> Preset:
    """Return a recipe with its own settings."""
    recipe = recipes.NAMED[name]()
    return Preset(
        name,
        source or recipe.source or "",
        Settings(out=Path("runs") / name, data=recipe.data, model=recipe.model, training=recipe.training),
    )


HELP = ("-h", "--help")


@dataclass(frozen=True, kw_only=True)
class _DataAndStart:
    data: DataConfig = field(default_factory=DataConfig)
    start_from: Annotated[str | None, Parameter(name="--from")] = None


def _started(preset: Preset, start: str | None) -> Preset:
    """Return the preset with the model that it starts from, at its own learning rates.

    0.3 and 0.1 of them ended higher on validation data (experiments/EXPERIMENTS.md).
    """
    if start is None:
        return preset
    before = preset.settings.model
    from axial_transformers.models.baselines.by_name import read_config

    trained = read_config(start)
    if len(trained.shape) != len(before.shape):
        raise ValueError(f"--from {start}: that model has {len(trained.shape)} axes, the data {len(before.shape)}")
    model = replace(trained, shape=before.shape, num_classes=before.num_classes)
    for name in ("channels", "num_values"):
        if getattr(before, name) != getattr(model, name):
            raise ValueError(
                f"--from {start}: that model has {name}={getattr(model, name)}, the data {getattr(before, name)}: "
                "choose another model, or train without --from"
            )
    return replace(preset, settings=replace(preset.settings, start_from=start, model=model))


def _custom_preset(source: str, options: _DataAndStart, any_fit: bool) -> Preset:
    """Return a model fitted to the data: of a source, and of its options."""
    data = options.data
    if data.size is None and not any_fit:
        from axial_transformers.models.baselines.by_name import read_config

        sides = {*read_config(options.start_from).shape[-2:]} if options.start_from else set()
        tile = {"tile": sides.pop()} if len(sides) == 1 else {}
        data = recipes.tiled(data, sources.picture_sizes(source, data), **tile)
    if data != options.data:
        tiles = f"examples of large or different sizes are cut into {data.size}x{data.size} tiles"
        say(f"{tiles}; other ways: --data.size 64 --data.fit crop, or stretch; or --data.fit exact")
    examples = sources.load(source, data, "train", bar("reading"))
    recipe = recipes.custom(examples)
    stem = Path(source).resolve().stem if Path(source).exists() else Path(source).stem
    out = Path("runs") / (re.split(r"\W*\{", stem)[0] or "shards")
    settings = Settings(out=out, validate_on=250, data=data, model=recipe.model, training=recipe.training)
    return Preset("custom", source, settings, examples)


def _run_preset(folder: Path, record: "training.RunRecord", moved_to: str | None) -> Preset:
    about = record.about
    if about is None:
        raise ValueError(f"{folder}/train.json names no data: the run was begun from Python, resume it there")
    settings = Settings(
        out=folder, resume=True, data=about.data, model=record.model, training=record.training,
        validate_on=about.validate_on, samples=about.samples,
    )  # fmt: skip
    source = moved_to or about.source
    return Preset(about.recipe, source, settings, recorded=moved_to is None, resumed=record)
