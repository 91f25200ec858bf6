"""From the words of a command to its options, a dataclass, and back."""

import json
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import partial
from inspect import getdoc
from typing import Any, TypeVar

from cyclopts import (
    App,
    Argument,
    CycloptsError,
    MissingArgumentError,
    Parameter,
    UnknownOptionError,
    UnusedCliTokensError,
)
from cyclopts.config import Dict
from cyclopts.help import DefaultFormatter, HelpEntry, HelpPanel
from rich.console import Console, ConsoleOptions
from rich.text import Text

from axial_transformers.cli.console import OPTIONS

Options = TypeVar("Options")

ALIKE = (
    ("label", "labels", "class", "classes"), ("count", "examples", "samples", "limit", "top", "n", "num", "number"),
    ("output", "out", "o"), ("steps", "epochs", "iterations"), ("learning-rate", "lr"), ("device", "gpu", "cuda"),
    ("batch-size", "batch", "bs"), ("split", "subset"), ("heat-maps", "maps"), ("dim", "width"), ("layers", "depth"),
)  # fmt: skip
"""Words for the same, as commands or their users call it."""
COMMON_OPTIONS = (
    "--out", "--training.steps", "--training.minutes", "--training.batch-size", "--training.learning-rate",
    "--training.optimizer", "--training.device", "--model.dim", "--data.size", "--data.fit",
)  # fmt: skip


class _HelpFormatter(DefaultFormatter):
    def __init__(self, defaults: Mapping[str, Any], undecided: Collection[str], words: str) -> None:
        super().__init__()
        self._required = {word.strip("[]"): "[" not in word for word in words.split()}
        options = ("--" + name.replace("_", "-") for name in undecided)
        self._defaults = dict(_by_option(defaults)) | dict.fromkeys(options, "as suits the data")

    def __call__(self, console: Console, options: ConsoleOptions, panel: HelpPanel) -> None:
        for title, entries in self._groups(panel).items():
            shown = [self._shown(entry) for entry in entries]
            super().__call__(console, options, panel.copy(title=title, entries=shown))

    def _groups(self, panel: HelpPanel) -> dict[Any, list[HelpEntry]]:
        if not self._defaults:
            return {panel.title: panel.entries}
        groups: dict[Any, list[HelpEntry]] = {"Most used": []}
        for entry in panel.entries:
            name = next(iter(entry.names), "")
            part = name.removeprefix("--").split(".")[0] if "." in name else "run"
            groups.setdefault("Most used" if name in COMMON_OPTIONS else part.capitalize(), []).append(entry)
        groups["Most used"].sort(key=lambda entry: COMMON_OPTIONS.index(next(iter(entry.names))))
        return groups

    def _shown(self, entry: HelpEntry) -> HelpEntry:
        text = Text(" ".join(entry.description.primary_renderable.plain.split()))
        word = next(iter(entry.names), "").removeprefix("--").upper()
        entry = entry.copy(required=self._required.get(word, entry.required))
        if entry.positive_names[:1] and entry.positive_names[0] in self._defaults:
            value = self._defaults[entry.positive_names[0]]
            return entry.copy(description=text, required=False, default=None if value is None else str(value))
        return entry.copy(description=text)


def _reflowed(text: str) -> str:
    return "\n\n".join(part if "\n  " in part else " ".join(part.split()) for part in text.split("\n\n"))


def _by_option(values: Mapping[str, Any], prefix: str = "--") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        option = prefix + name.replace("_", "-")
        if isinstance(value, Mapping):
            yield from _by_option(value, f"{option}.")
        else:
            yield option, value


def parser(
    options: Callable[..., Options],
    command: str,
    defaults: Mapping[str, Any] | None = None,
    undecided: Collection[str] = (),
) -> App:
    """Return the parser of a command.

    Args:
        options: a dataclass, or a function of such.
        defaults: values that replace those of the dataclass.
        undecided: names of values that the data decide, such as model.shape, if the words do not.
    """
    words = getattr(options, "WORDS", "")
    app = App(
        name=f"axial {command}",
        default_command=options,
        config=Dict(json.loads(json.dumps(defaults or {}, default=str)), use_commands_as_keys=False),
        default_parameter=Parameter(allow_repeating=True, consume_multiple=True, negative_iterable=()),
        usage=f"Usage: axial {command} [OPTIONS] {words}".rstrip() if defaults or words else None,
        version_flags=(),
        help=_reflowed(getdoc(options) or ""),
        help_format="plaintext",
        help_formatter=_HelpFormatter(defaults or {}, undecided, words),
        result_action="return_value",
    )
    app["--help"].show = False
    return app


def parse(
    options: Callable[..., Options],
    argv: Sequence[str],
    command: str,
    defaults: Mapping[str, Any] | None = None,
    undecided: Collection[str] = (),
) -> Options:
    """Return the options in `argv`, or print the help and exit; see `parser`."""
    app = parser(options, command, defaults, undecided)
    OPTIONS.append(partial(as_option, app))
    try:
        found = app(_repeated(argv), exit_on_error=False, print_error=False, verbose=False)
    except CycloptsError as error:
        raise ValueError(_message(error, app)) from None
    if found is None:
        raise SystemExit(0)
    return found


def parse_known(options: Callable[..., Options], argv: Sequence[str], command: str) -> tuple[Options, list[str]]:
    """Return the known options, and the other words."""
    app = parser(options, command)
    OPTIONS.append(partial(as_option, app))
    try:
        make, bound, others, _ = app.parse_known_args(_repeated(argv))
    except CycloptsError as error:
        raise ValueError(_message(error, app)) from None
    return make(*bound.args, **bound.kwargs), others


def _repeated(argv: Sequence[str], option: str = "--data.size") -> list[str]:
    """Return the words with the option before each of its numbers: cyclopts reads several without it as one."""
    words = list[str]()
    for word in argv:
        here = next((before for before in reversed(words) if before.startswith("-")), None)
        if word.isdecimal() and here == option != words[-1]:
            words.append(option)
        words.append(word)
    return words


def _word(argument: Argument) -> str:
    return argument.name.removeprefix("--").upper()


def _message(error: CycloptsError, app: App) -> str:
    match error:
        case UnusedCliTokensError(unused_tokens=[word, *_]):
            return f"unexpected word {word!r}: quote what holds blanks, and begin options with --"
        case MissingArgumentError(argument=Argument(index=int()) as argument, keyword=None):
            named = [each for each in app.assemble_argument_collection() if each.index is not None]
            words = " ".join(_word(each) if each.required else f"[{_word(each)}]" for each in named)
            stated = getattr(app.default_command, "WORDS", None)  # which of these is missing is not known
            what, words = ("a word", stated) if stated else (_word(argument), words)
            return f"missing: {what} (usage: {' '.join(app.name)} {words} [OPTIONS])"
        case UnknownOptionError():
            if meant := _meant(error):
                return meant
    error.verbose = False
    return str(error)


def _meant(error: UnknownOptionError) -> str | None:
    """Return what the option is called here, and which commands have it; None if neither is known."""
    from axial_transformers.cli.commands import OPTIONS_OF  # for errors only

    word = error.token.keyword or error.token.value
    bare = word.lstrip("-")
    names = {option.name: option.name.rpartition(".")[2].lstrip("-") for option in error.argument_collection}
    alike = next((words for words in ALIKE if bare in words), ())
    here = [name for name in names if names[name] == bare] or [name for name in names if names[name] in alike]
    field = bare.replace("-", "_")
    there = [verb for verb, options in OPTIONS_OF.items() if field in {each.name for each in fields(options)}]
    of_others = f", an option of axial {', '.join(there)}" if there and bare not in map(names.get, here) else ""
    if here or there:
        return f"Unknown option: {word}{of_others}." + f" Did you mean {' or '.join(here)}?" * bool(here)
    return None


def as_option(app: App, setting: str, value: str | tuple[object, ...] | None = None) -> str | None:
    """Return a setting and its value in the words of a command, or None if it is none of its options.

    Several options may have the name, as --frames and --data.frames have: then it is the shortest path.
    """
    options = app.assemble_argument_collection()
    named = [each for each in options if each.name.startswith("--") and each.parse and not each.children]
    if "." in setting:
        named = [each for each in named if each.name == f"--{setting.replace('_', '-')}"]
    else:
        named = [each for each in named if each.field_info.name == setting]
    if not named:
        return None
    option = min(named, key=lambda each: each.name.count("."))
    if value in ("True", "False") and option.negatives:
        return option.name if value == "True" else option.negatives[0]
    words = () if value is None else value if isinstance(value, tuple) else (value,)
    return " ".join([option.name, *(shlex.quote(str(word)) for word in words)])


def command(*words: object) -> str:
    """Return a command to copy into a shell."""
    return shlex.join(["axial", *map(str, words)])
