"""From words on the command line to a dataclass of options."""

from collections.abc import Sequence
from typing import Annotated, TypeVar

import tyro

Options = TypeVar("Options")
Text = TypeVar("Text")

Positional = Annotated[Text, tyro.conf.Positional]


def parse(options: type[Options], argv: Sequence[str], verb: str, default: Options | None = None) -> Options:
    """`argv` as options of the given dataclass, whose docstring is the help; leaves with status 2 if they are none."""
    return tyro.cli(
        options,
        args=list(argv),
        prog=f"axial {verb}",
        default=tyro.MISSING_NONPROP if default is None else default,
        config=(tyro.conf.PositionalMetavarFromFieldName,),
    )
