"""axial inspect: the words of the command; `cli/inspection.py` and `cli/archive_inspection.py` do the work."""

from collections.abc import Sequence
from pathlib import Path

from axial_transformers import data
from axial_transformers.cli.commands import Inspect
from axial_transformers.cli.parsing import parse_known
from axial_transformers.cli.train import HELP, print_help, requested


def main(words: Sequence[str]) -> None:
    """Run the command."""
    if not words or {*HELP} & {*words}:
        print_help("inspect")
        return
    options, others = parse_known(Inspect, words)
    name = options.name
    is_archive, is_model = Path(name).suffix.lower() == ".axl", _is_model(name)
    if others and (is_archive or is_model):
        raise ValueError(f"{name} has its settings already: leave out {' '.join(others)}")
    if is_archive:
        from axial_transformers.cli.archive_inspection import inspect_archive

        inspect_archive(Path(name), options.json)
        return
    run = None if is_model else requested([name, *others], "inspect")[0]
    from axial_transformers.cli.inspection import inspect

    inspect(name, run, options)


def _is_model(name: str) -> bool:
    """Return True for a model folder or a hub id."""
    is_id = name.count("/") == 1 and not Path(name).exists() and not data.is_hub_dataset(name)
    return (Path(name) / "config.json").is_file() or is_id
