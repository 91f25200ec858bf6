"""From words on the command line to a dataclass of options."""

from collections.abc import Sequence
from typing import Annotated, TypeVar

import tyro

Options = TypeVar("Options")
Text = TypeVar("Text")

Positional = Annotated[Text, tyro.conf.Positional]


def parse(options: type[Options], argv: Sequence[str], verb: str, default: Options | None = None) -> Options:
    """Options of the given dataclass, whose docstring is the help text; exits with status 2 if `argv` is not valid."""
    return tyro.cli(
        options,
        args=list(argv),
        prog=f"axial {verb}",
        default=tyro.MISSING_NONPROP if default is None else default,
        config=(tyro.conf.PositionalMetavarFromFieldName,),
    )


def require_within(name: str, value: int | None, least: int, most: int = 2**63 - 1) -> None:
    """Raises ValueError where the option --name is out of its range; None is in every range."""
    if value is not None and not least <= value <= most:
        limits = f"at least {least}" if most == 2**63 - 1 and value < least else f"in {least}..{most}"
        raise ValueError(f"--{name} must be {limits}, not {value}")


def either(yes: bool, no: bool, name: str) -> bool | None:
    """The choice of a pair of flags --name and --no-name; None if neither is given.

    Raises:
        ValueError: both are given.
    """
    if yes and no:
        raise ValueError(f"--{name} and --no-{name} contradict each other: give at most one")
    return yes if yes or no else None
