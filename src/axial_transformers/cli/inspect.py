"""axial inspect: the words of the command; `cli/inspection.py` and `cli/archive_inspection.py` do the work."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from axial_transformers import data, recipes
from axial_transformers.cli.parsing import parse, parse_known, parser
from axial_transformers.cli.train import leading_words, requested
from axial_transformers.training import RunConfig


@dataclass(frozen=True, kw_only=True)
class Inspect:
    """Show data as axial train reads it, and what it would train; or a model, or an archive.

    What to inspect:
      axial inspect SOURCE [OVERRIDES]    data: kind, number, splits, values; then the plan of axial train
      axial inspect RECIPE [OVERRIDES]    a recipe's data, model and training
      axial inspect MODEL                 a run, an exported model, or a hub id
      axial inspect NAME.axl [--json]     an archive: model, files, sizes, how to open it
      axial inspect RUN --page            write RUN/index.html again

    For example:
      axial inspect my_photos/ --sheet some.png
      axial inspect imagenet32 --model.dim 1024
      axial inspect runs/digits --json

    Memory and FLOPs of a step are to be compared with a device's data sheet.
    """

    verbose: bool = False
    """Also show parameters by part, FLOPs, caches of decoding, and the parts of a step's memory."""
    sheet: Path | None = None
    """NAME.png: write a sheet of some training examples."""
    dependencies: bool = False
    """Check with random weights which position depends on which; for small models only."""
    page: bool = False
    """Write the page of a run again."""
    json: bool = False
    """Print one JSON object; bytes, FLOPs, seconds."""


@dataclass(frozen=True, kw_only=True)
class InspectArchive:
    """Show what an archive holds: model, files, sizes, bits/dim, and how to open it."""

    json: bool = False
    """Print one JSON object."""


@dataclass(frozen=True)
class _NoOptions:
    """An existing model has nothing to override."""


def main(argv: Sequence[str]) -> None:
    """Run the command."""
    if not argv or argv[0] in ("-h", "--help"):
        parser(Inspect, "inspect").help_print()
        print(f"Recipes, and what they reach:\n{recipes.listed()}")
        return
    words = leading_words(argv)
    if words and Path(words[0]).suffix.lower() == ".axl":
        of_archive = parse(InspectArchive, argv[1:], f"inspect {words[0]}")
        from axial_transformers.cli import archive_inspection

        archive_inspection.inspect(Path(words[0]), of_archive.json)
        return
    if "--page" in argv:
        options, run, overrides = parse(Inspect, argv[len(words) :], "inspect"), None, list[str]()
        if len(words) != 1:
            raise ValueError("axial inspect --page takes one run")
    else:
        options, run, overrides = _requested(words, argv[len(words) :])
    from axial_transformers.cli.inspection import inspect

    inspect(options, [*words, *overrides], run)


def _requested(words: list[str], overrides: Sequence[str]) -> tuple[Inspect, RunConfig | None, list[str]]:
    """Return the options, the run that words name or None for a model, and the overrides."""
    options, rest = Inspect(), list(overrides)
    if {"-h", "--help"}.isdisjoint(rest):  # otherwise the help is of the settings
        options, rest = parse_known(Inspect, rest, "inspect")
    if words and _names_model(words[0]):
        parse(_NoOptions, [*words[1:], *rest], f"inspect {words[0]}")
        return options, None, rest
    return options, requested([*words, *rest], "inspect").run, rest


def _names_model(name: str) -> bool:
    """Return True for a model folder or a hub id."""
    is_id = name.count("/") == 1 and not Path(name).exists() and not data.is_hub_dataset(name)
    return (Path(name) / "config.json").is_file() or is_id
