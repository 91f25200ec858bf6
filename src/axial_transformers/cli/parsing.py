"""From words on the command line to a dataclass of options."""

from collections.abc import Sequence
from typing import Annotated, TypeVar

import tyro

Options = TypeVar("Options")
Text = TypeVar("Text")

Positional = Annotated[Text, tyro.conf.Positional]
Flag = Annotated[bool, tyro.conf.FlagCreatePairsOff]
"""--name alone, without --no-name."""


def parse(options: type[Options], argv: Sequence[str], verb: str, default: Options | None = None) -> Options:
    """`argv` as options of the given dataclass, whose docstring is the help; leaves with status 2 if they are none."""
    return tyro.cli(
        options,
        args=list(argv),
        prog=f"axial {verb}",
        default=tyro.MISSING_NONPROP if default is None else default,
        config=(tyro.conf.PositionalMetavarFromFieldName,),
    )


def either(yes: bool, no: bool, name: str) -> bool | None:
    """What a pair of flags --name and --no-name says; None if neither is there.

    Raises:
        ValueError: both are.
    """
    if yes and no:
        raise ValueError(f"--{name} and --no-{name} contradict each other: give at most one")
    return yes if yes or no else None
