"""Messages in the words of the command line: `fit=crop` of Python is `--data.fit crop` there."""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from difflib import get_close_matches
from typing import get_type_hints

_ASSIGNED = re.compile(r"(?<![^\s(])([a-z]\w*)=('[^']*'|\"[^\"]*\"|[\w.:-]*\w)?(?=[\s,;:.)]|$)")
_LEADING = re.compile(r"(?:^|(?<=: ))([a-z]\w*)(?= must be )")
_PYTHONIC = re.compile(r"(?<![\w./'-])([a-z]+(?:_[a-z]+)+)(?![\w./'(])")


@dataclass(frozen=True)
class Option:
    """An option of a verb, `--data.skip-bad`."""

    flag: str
    is_switch: bool = False
    """True of one without a value."""


def option_names(options: type) -> dict[str, Option]:
    """The options of a dataclass by their dotted names in Python, those of its parts after its own."""
    own, of_parts = {}, {}
    hints = get_type_hints(options)
    for name in (field.name for field in fields(options)):
        if isinstance(hints[name], type) and is_dataclass(hints[name]):
            for inner, option in option_names(hints[name]).items():
                flag = f"--{name.replace('_', '-')}.{option.flag[2:]}"
                of_parts[f"{name}.{inner}"] = Option(flag, option.is_switch)
        else:
            own[name] = Option(f"--{name.replace('_', '-')}", hints[name] is bool)
    return own | of_parts


def nearest(word: str, options: Mapping[str, Option]) -> str | None:
    """The option that `word` may have been meant for, also where the part that it belongs to is left out."""
    flags = [option.flag for option in options.values()]
    name = word.partition("=")[0].replace("_", "-")
    if near := get_close_matches(name, flags, n=1, cutoff=0.75):
        return near[0]
    last = {flag.rpartition(".")[2].removeprefix("--"): flag for flag in reversed(flags)}
    near = get_close_matches(name.lstrip("-").rpartition(".")[2], last, n=1, cutoff=0.75)
    return last[near[0]] if near else None


def in_options(text: str, options: Mapping[str, Option]) -> str:
    """The text with each `name=value`, and each other name of an argument, written as the option of that name.

    Names that are no option of the verb are left as they are.
    """
    by_name: dict[str, Option] = {}
    for name, option in options.items():
        by_name.setdefault(name.rpartition(".")[2], option)

    def assigned(found: re.Match[str]) -> str:
        name, value = found[1], (found[2] or "").strip("'\"")
        if name not in by_name:
            return found[0]
        option = by_name[name]
        if option.is_switch:
            return option.flag if value != "False" else _negated(option.flag)
        return f"{option.flag} {shlex.quote(value)}" if value else option.flag

    def named(found: re.Match[str]) -> str:
        return by_name[found[1]].flag if found[1] in by_name else found[0]

    return _PYTHONIC.sub(named, _LEADING.sub(named, _ASSIGNED.sub(assigned, text)))


def _negated(flag: str) -> str:
    head, dot, last = flag.removeprefix("--").rpartition(".")
    return f"--{head}{dot}no-{last}"


def command(*words: object) -> str:
    """A command to copy into a shell: axial and the words, quoted where the shell needs it."""
    return shlex.join(["axial", *map(str, words)])
