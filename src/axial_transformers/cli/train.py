"""axial train: from the words of the command to the settings of a run, without waiting for torch or data.

`cli/training.py` then reads the data and trains. `axial inspect` reads its words here, too.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import Annotated, NamedTuple

from cyclopts import Parameter

from axial_transformers import data, recipes, training
from axial_transformers.cli import INTERRUPTED, did_you_mean
from axial_transformers.cli.console import rank_zero_output
from axial_transformers.cli.parsing import parse, parse_known
from axial_transformers.models import AxialTransformerConfig
from axial_transformers.progress import rank
from axial_transformers.recipes.custom import check_start
from axial_transformers.training import RunConfig
from axial_transformers.training.run_config import RUN_RECORD

HELP = """\
usage: axial train RECIPE [SOURCE] [OVERRIDES]    a recipe, on its own data or on SOURCE
       axial train SOURCE [OVERRIDES]             a model that fits the data in SOURCE
       axial train RUN [OVERRIDES]                resume the run in the folder RUN
       axial train RUN SOURCE [OVERRIDES]         the same, if its data has another path now

  axial train digits --training.steps 500 --model.dim 64
  axial train photos32 my_photos/ --out runs/photos
  axial train scans.npz --training.minutes 60
  axial train hf:OWNER/NAME --data.size 64 --data.fit crop
  axial train digits --help                       every setting with its default
  torchrun --nproc-per-node 2 -m axial_transformers train photos32 my_photos/    on every GPU or core

SOURCE is a folder of images or arrays, an .npz or .npy file, a data set (hf:OWNER/NAME, .parquet, .tar), or digits.
Recipes, and what they reach:
"""


class Request(NamedTuple):
    """A run that words name, and the record of the run to resume; None for a new run."""

    run: RunConfig
    begun: "training.RunRecord | None" = None


def main(argv: Sequence[str]) -> int:
    """Run the command."""
    if not argv or argv[0] in ("-h", "--help"):
        print(HELP)
        print(recipes.listed())
        return 0
    with rank_zero_output():
        request = requested(argv, "train")
    from axial_transformers.cli.training import report, run

    result = run(*request, ("train", *argv))
    if rank() == 0:  # of the processes that torchrun started, one speaks
        report(request.run.out, result)
    return INTERRUPTED if result.ending == "interrupted" else 0


def requested(argv: Sequence[str], command: str) -> Request:
    """Return the run that words name, with the settings that they override.

    The words before the first option are one of these:

    - a recipe and a source; if the recipe has data of its own, the source may be left out;
    - a source alone: the recipe `custom`;
    - the folder of a run to resume, and a source if its data has moved.

    Args:
        command: train or inspect, for messages.
    """
    words = leading_words(argv)
    overrides = argv[len(words) :]
    if not words:
        raise ValueError(f"a recipe or a source comes first, then overrides: axial {command} digits --model.dim 96")
    start = parse_known(_Start, [word for word in overrides if word not in ("-h", "--help")], command)[0].start_from
    base, begun = _named(words, command)
    if begun is not None and start is not None:
        raise ValueError(f"{words[0]} is a run, which goes on from its own weights: leave out --from {start}")
    if start is not None:
        base = from_model(base, start)
    request = _overridden(base, begun, overrides, f"{command} {words[0]}")
    if begun is not None and begun.run.source is not None and len(words) == 1:
        from axial_transformers.training.trained_model import check_recorded

        check_recorded(words[0], begun.run.source)
    return request


@dataclass(frozen=True, kw_only=True)
class _Start:
    start_from: Annotated[str | None, Parameter(name="--from")] = None


def _named(words: Sequence[str], command: str) -> Request:
    """Return the recipe, the run to resume, or the run on a source that the leading words name, without overrides."""
    name, *others = words
    begun = training.read_run(name) if name not in recipes.NAMED and (Path(name) / RUN_RECORD).is_file() else None
    if len(others) > (1 if name in recipes.NAMED or begun else 0):
        more = " and ".join(others[1:] if name in recipes.NAMED else others)
        raise ValueError(f"axial {command} takes one source, and {more} is one more: put the files into one folder")
    if name in recipes.NAMED:
        recipe = recipes.NAMED[name]()
        return Request(replace(recipe, source=others[0] if others else recipe.source))
    if begun is not None:
        if begun.run.source is None:
            raise ValueError(f"{name}/train.json names no data: the run was begun from Python, resume it there")
        return Request(replace(begun.run, source=others[0] if others else begun.run.source), begun)
    if not (Path(name.split("::")[0]).exists() or data.is_hub_dataset(name)):
        raise ValueError(f"no recipe, folder or file {name!r}{did_you_mean(name, recipes.NAMED)}")
    path = Path(name.partition("@")[0] if data.is_hub_dataset(name) else name)
    stem = path.resolve().stem if path.exists() else path.stem
    return Request(replace(recipes.of_own_data(name), out=Path("runs") / stem.removesuffix(".nii")))


def from_model(run: RunConfig, start: str) -> RunConfig:
    """Return the run with the model that it starts from (--from); all other settings stay, learning rates included.

    0.3 and 0.1 of a recipe's learning rates gave more bits/dim on validation data (experiments/EXPERIMENTS.md).

    Args:
        start: as `from_pretrained` names a model.
    """
    from axial_transformers.models.baselines.by_name import read_config

    trained = read_config(start)
    if run.open:
        settings = [name for name in run.open if name.startswith("model.")]
        own = [name for name in settings if name not in ("model.shape", "model.num_classes")]
        return replace(run, model=trained, start_from=start).closed(own)
    check_start(trained, start, run.model)
    return replace(
        run,
        model=replace(trained, shape=run.model.shape, num_classes=run.model.num_classes),
        start_from=start,
    )


NO_OPTIONS = ("recipe", "source", "start_from", "open")
"""What the leading words say, and --from."""


def options_of(model_class: type[AxialTransformerConfig]) -> type[RunConfig]:
    """Return the options of a run with this model, beside the words that name it."""

    @dataclass(frozen=True, kw_only=True)
    class Options(RunConfig):
        """All settings of a run; every value can be overridden."""

        recipe: Annotated[str | None, Parameter(parse=False)] = None
        source: Annotated[str | None, Parameter(parse=False)] = None
        open: Annotated[tuple[str, ...], Parameter(parse=False)] = ()
        start_from: Annotated[str | None, Parameter(name="--from")] = None
        model: model_class  # type: ignore[valid-type]
        resume: bool = False
        """Continue the run in the folder bitwise (on CUDA only with training.deterministic)."""

    return Options


def _overridden(base: RunConfig, begun: "training.RunRecord | None", overrides: Sequence[str], command: str) -> Request:
    """Return the run with the settings that options override, and the record of the run to resume.

    | the words | --out | run to resume |
    |---|---|---|
    | name a run | its folder, or not given | that run |
    | name a run | another folder | the run in that folder, if there is one |
    | name no run | with --resume | the run in that folder, if there is one |
    | name no run | without --resume | none |
    | name a run | with --no-resume | none; `fit` refuses a folder that holds one |
    """
    given = {word.removeprefix("--").split("=")[0] for word in overrides if word.startswith("--")}
    given = {option.replace("-", "_").replace(".no_", ".") for option in given}
    for group in given & {"data", "model", "training"}:
        raise ValueError(f"--{group} takes no value: give each setting by its name, such as --{group}.NAME VALUE")
    for name, value in vars(base.model).items():
        if f"model.{name}" in given and _is_nested(value):
            raise ValueError(f"--model.{name} cannot be set on the command line: call training.train from Python")
    defaults = {name: value for name, value in asdict(base).items() if name not in NO_OPTIONS}
    defaults["resume"] = begun is not None
    options = parse(options_of(type(base.model)), overrides, command, defaults, undecided=base.open)
    run = base.changed({name: attrgetter(name)(options) for name in sorted(given - {"from", "resume", "no_resume"})})
    if not attrgetter("resume")(options):
        return Request(run)
    return Request(run, begun if begun and begun.run.out == run.out else training.read_run(run.out))


def _is_nested(value: object) -> bool:
    """Return True for tuples of tuples, which words cannot say."""
    return isinstance(value, tuple) and any(isinstance(each, tuple) for each in value)


def leading_words(argv: Sequence[str]) -> list[str]:
    """Return the words before the first option."""
    flags = [i for i, word in enumerate(argv) if word.startswith("-")]
    return list(argv[: flags[0] if flags else len(argv)])
