"""From words on the command line to a dataclass of options."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Annotated, TypeVar

import tyro
from tyro import _errors as mistakes

from axial_transformers.cli.wording import in_options, nearest, option_names

Options = TypeVar("Options")
Text = TypeVar("Text")

Positional = Annotated[Text, tyro.conf.Positional]

_AT_WORK: ContextVar[type | None] = ContextVar("options of the verb at work", default=None)


def parse(options: type[Options], argv: Sequence[str], verb: str, default: Options | None = None) -> Options:
    """Options of the given dataclass, whose docstring is the help text.

    Raises:
        ValueError: `argv` is not valid.
    """
    with _mistakes_as_errors(options, argv, verb):
        return tyro.cli(
            options,
            args=list(argv),
            prog=f"axial {verb}",
            default=tyro.MISSING_NONPROP if default is None else default,
            config=(tyro.conf.PositionalMetavarFromFieldName,),
        )


def parse_known(options: type[Options], argv: Sequence[str], verb: str) -> tuple[Options, list[str]]:
    """As `parse`, for the options that the dataclass has; and the other words."""
    with _mistakes_as_errors(options, argv, verb):
        return tyro.cli(options, args=list(argv), return_unknown_args=True, prog=f"axial {verb}")


def in_words_of_the_verb(message: str) -> str:
    """The message with Python's names of arguments as options of the verb whose options were parsed last."""
    options = _AT_WORK.get()
    return message if options is None else in_options(message, option_names(options))


@contextmanager
def _mistakes_as_errors(options: type, argv: Sequence[str], verb: str) -> Iterator[None]:
    """Within this block a mistake that tyro would explain in a box, and exit, is a ValueError of one line."""
    _AT_WORK.set(options)
    help_at = f"axial {verb} --help explains the options"

    def refuse(event: mistakes.ParseErrorEvent) -> None:
        raise ValueError(_described(event, options, argv) or f"the options are not valid: {help_at}")

    with mistakes.on_parse_error(refuse):
        yield


def _described(event: mistakes.ParseErrorEvent, options: type, argv: Sequence[str]) -> str | None:
    """The mistake in one line; None for a kind that is not known here."""
    match event:
        case mistakes.UnrecognizedArgs(tokens=[word, *_]):
            return _unrecognized(word, options)
        case mistakes.MissingArgs():
            names = ", ".join(_name(each.arg) for each in event.missing_arguments)
            return _first_unrecognized(argv, options) or f"missing: {names}"
        case mistakes.InvalidChoice():
            return f"{_name(event.argument)} takes one of {', '.join(event.choices)}, not {event.value!r}"
        case mistakes.BadValue():
            name, kind = _name(event.argument), event.argument.lowered.metavar
            if event.argument.is_positional():
                return _first_unrecognized(argv, options) or f"missing: {name}"
            return f"{name} needs a value: {kind}"
        case mistakes.InstantiationFailure(argument=None):
            return event.message
        case mistakes.InstantiationFailure(argument=argument) if argument is not None:
            given = " ".join(_words_of(argument.lowered.name_or_flags, argv)) or "what is given"
            kind = str(argument.lowered.metavar).replace("{None}", "None").replace("|", " or ")
            return f"{_name(argument)} takes {kind}, not {given!r}"
    return None


def _first_unrecognized(argv: Sequence[str], options: type) -> str | None:
    """The mistake of the first long option that there is not: what is missing may be what it was meant for."""
    known = {option.flag for option in option_names(options).values()}
    for word in argv:
        flag = word.partition("=")[0].replace("_", "-").replace("--no-", "--")
        if flag.startswith("--") and flag not in known and nearest(word, option_names(options)):
            return _unrecognized(word, options)
    return None


def _unrecognized(word: str, options: type) -> str:
    if not word.startswith("-"):
        return f"unexpected word {word!r}: quote what holds blanks, and begin options with --"
    near = nearest(word, option_names(options))
    return f"unrecognized option {word.partition('=')[0]}" + (f": perhaps you meant {near}" if near else "")


def _name(argument: "tyro._arguments.ArgumentDefinition") -> str:
    name = argument.display_name()
    return name.upper() if argument.is_positional() else max(name.split("/"), key=len)


def _words_of(flags: Sequence[str], argv: Sequence[str]) -> list[str]:
    """The words that follow the last use of an option."""
    found: list[str] = []
    taking = False
    for word in argv:
        if word.startswith("--"):
            name, _, value = word.partition("=")
            taking = name.replace("_", "-") in flags
            found = ([value] if value else []) if taking else found
        elif taking:
            found.append(word)
    return found


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
