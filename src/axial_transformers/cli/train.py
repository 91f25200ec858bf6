"""axial train: from the words of the command to the settings of a run, without waiting for torch or data.

`recipes.prepare` then reads the data. `axial inspect` reads its words here, too.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from operator import attrgetter
from pathlib import Path
from typing import Annotated, ClassVar

from cyclopts import Parameter

from axial_transformers import data, recipes, training
from axial_transformers.cli.console import INTERRUPTED, command, print_rows, rank_zero_output, say
from axial_transformers.cli.options import NO_OPTION
from axial_transformers.cli.parsing import parse, parse_known, with_defaults
from axial_transformers.progress import Bar, bar, rank
from axial_transformers.training import RunConfig


@dataclass(frozen=True, kw_only=True)
class _Start:
    start_from: Annotated[str | None, Parameter(name="--from")] = None


@dataclass(frozen=True, kw_only=True)
class Train(_Start, RunConfig):
    """Train a recipe, or a model of your own data; or resume a run.

    SOURCE is a folder of images or arrays, an .npz or .npy file, a data set (hf:OWNER/NAME, .parquet, .tar), or digits.
    axial train RECIPE --help shows every setting with its default.

        axial train photos32 my_photos/ --out runs/photos    a recipe, on its own data or on a source
        axial train scans.npz --training.minutes 60          a model that fits the data
        axial train runs/photos                              resume a run; add a source if its data has moved
        torchrun --nproc-per-node 2 -m axial_transformers train digits --model.dim 96
    """

    USAGE: ClassVar[str] = "RECIPE|SOURCE|RUN [SOURCE] [OPTIONS]"

    recipe: Annotated[str | None, NO_OPTION] = None
    source: Annotated[str | None, NO_OPTION] = None
    open: Annotated[tuple[str, ...], NO_OPTION] = ()
    resume: bool = False
    """Continue the run in the folder bitwise (on CUDA only with --training.deterministic)."""


def make_options(run: RunConfig, resume: bool = False) -> type[Train]:
    """Return the options of the command with the values of a run as defaults."""
    return with_defaults(Train(**vars(run), resume=resume), run.open)


def main(words: Sequence[str]) -> int:
    """Run the command."""
    with rank_zero_output():
        run, begun = requested(words)
    return train(run, begun, ("train", *words))


def train(run: RunConfig, begun: "training.RunRecord | None", words: Sequence[str]) -> int:
    """Read the data of a run, train and report; return the exit status.

    Args:
        begun: the record of a run to go on with.
        words: what to record.
    """
    from axial_transformers.cli.plan import plan
    from axial_transformers.recipes.prepare import prepare

    with rank_zero_output():
        prepared = prepare(run, begun, bar)
        if begun is None:
            rows = plan(prepared.run, prepared.costs, prepared.facts)
            if prepared.why_values:
                rows["decided"] = prepared.why_values
            rows["to change"] = f"--model.dim, --data.size, ...: {command('train', run.source, '--help')}"
            print_rows(rows, f"{run.source}:", say)
        result = prepared.train(Bar("training: steps"), command=words)
    status = INTERRUPTED if result.ending == "interrupted" else 0
    if rank() > 0:
        return status
    if status == INTERRUPTED:
        print(f"stopped at step {result.step}; go on with: {command('train', run.out)}")
    else:
        if result.best_bits_per_dim is not None:
            print(f"validation {result.best_bits_per_dim:.4f} bits/dim at step {result.best_step}")
        print(f"{result.ending} at step {result.step} after {result.seconds:.0f} s; the model is in {run.out}")
        if fault := prepared.fault(result):
            print(fault)
    return status


def requested(words: Sequence[str]) -> tuple[RunConfig, "training.RunRecord | None"]:
    """Return the run that words name, with the settings that they override, and the record of the run to resume.

    The words before the first option are a recipe, the folder of a run to resume, or a source; a source may follow the
    first two.
    """
    names = list(takewhile(lambda word: not word.startswith("-"), words))
    overrides = words[len(names) :]
    if not names:
        raise ValueError("a recipe or a source comes first, then options, as in digits --model.dim 96")
    start = parse_known(_Start, overrides)[0].start_from
    run, begun = _named(names)
    if start is not None:
        if begun is not None:
            raise ValueError(f"{names[0]} is a run, which goes on from its own weights: leave out --from {start}")
        from axial_transformers.recipes.prepare import begin_with

        run = begin_with(run, start)
    run, begun = _overridden(run, begun, overrides)
    if begun is not None and begun.run.source is not None and len(names) == 1:
        from axial_transformers.training.trained_model import check_recorded

        check_recorded(names[0], begun.run.source)
    return run, begun


def _named(names: Sequence[str]) -> tuple[RunConfig, "training.RunRecord | None"]:
    """Return the recipe, the run to resume, or the run on a source that the leading words name, without overrides."""
    name, *sources = names
    begun = None
    if name in recipes.NAMED:
        run = recipes.NAMED[name]()
    elif begun := training.read_run(name):
        run = begun.run
        if run.source is None:
            raise ValueError(f"{name}/train.json names no data: the run was begun from Python, resume it there")
    elif Path(name.split("::")[0]).exists() or data.is_hub_dataset(name):
        run = recipes.of_own_data(name)
        sources = [*names]
    else:
        raise ValueError(f"no recipe, folder or file {name!r}; the recipes are {', '.join(recipes.NAMED)}")
    if len(sources) > 1:
        raise ValueError(f"one source is taken, and {sources[-1]} is one more: put the files into one folder")
    return replace(run, source=sources[0] if sources else run.source), begun


def _overridden(
    base: RunConfig, begun: "training.RunRecord | None", overrides: Sequence[str]
) -> tuple[RunConfig, "training.RunRecord | None"]:
    """Return the run with the settings that options override, and the record of the run to resume.

    That is the run in the folder --out, which is the run's own folder unless it is given; None without --resume.
    """
    options = parse(make_options(base, resume=begun is not None), overrides)
    given = {word.removeprefix("--").split("=")[0] for word in overrides if word.startswith("--")}
    given = {option.replace("-", "_").replace(".no_", ".") for option in given} - {"from", "resume", "no_resume"}
    for group in given & {"data", "model", "training"}:
        raise ValueError(f"--{group} takes no value: give each setting by its name, such as --{group}.NAME VALUE")
    run = base.changed({name: attrgetter(name)(options) for name in sorted(given)})
    if not options.resume:
        return run, None
    return run, training.read_run(run.out)
