"""The words after the name of a benchmark, as arguments of a function or as a dataclass of options."""

import sys
from collections.abc import Callable, Sequence
from typing import Any

from cyclopts import App, Parameter

from axial_transformers.cli.parsing import refuse_fractions


def run_command(
    *commands: Callable[..., Any], description: str | None = None, argv: Sequence[str] | None = None
) -> Any:
    """Calls a function, or of several the one that the first word names.

    Exits where that returns None, and after help and mistakes.
    """
    app = App(
        default_command=commands[0] if len(commands) == 1 else None,
        help=description,
        help_format="plaintext",
        default_parameter=Parameter(consume_multiple=True, negative_iterable=()),
        config=refuse_fractions,
        version_flags=(),
        result_action="return_value",
    )
    for command in commands if len(commands) > 1 else ():
        app.command(command)
    result = app(sys.argv[1:] if argv is None else argv)
    if result is None:  # the help was asked for, or there is nothing more to do
        sys.exit()
    return result
