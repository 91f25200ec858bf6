"""axial completion: a script for a shell."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from axial_transformers import recipes
from axial_transformers.cli import COMMANDS
from axial_transformers.cli.commands import OPTIONS_OF, Completion
from axial_transformers.cli.inspect import Inspect
from axial_transformers.cli.parsing import parser
from axial_transformers.cli.train import options_of
from axial_transformers.models import AxialTransformerConfig


def main(options: Completion) -> None:
    """Run the command."""
    app = App(name="axial", version_flags=(), help_format="plaintext")
    for name, (summary, _) in COMMANDS.items():
        command = parser_of(name)
        command.help = summary
        app.command(command, name=name)
    script = app.generate_completion(shell=options.shell)
    if options.shell == "zsh":
        script += '\n_cyclopts_axial "$@"\n'  # the script only defines it, but a file of fpath is what zsh runs
    print(script.replace("complete -F _axial", "complete -o default -F _axial"))  # files where nothing else fits


def parser_of(command: str) -> App:
    """Return the parser of a command."""
    if command in ("train", "inspect"):
        defaults = asdict(recipes.NAMED["digits"]())
        return parser(_train if command == "train" else _inspect, command, defaults)
    return parser(OPTIONS_OF[command], command)


class _Options(options_of(AxialTransformerConfig)):  # type: ignore[misc]
    """Settings of a run."""


RunFlags = Annotated[_Options, Parameter(name="*")]
Recipe = Annotated[Path, Parameter(choices=tuple(recipes.NAMED))]


def _train(
    recipe: Recipe,
    source: Path | None = None,
    /,
    *,
    run: RunFlags,
) -> None: ...


def _inspect(
    model_or_recipe: Recipe,
    /,
    *,
    own: Annotated[Inspect, Parameter(name="*")],
    run: RunFlags,
) -> None: ...
