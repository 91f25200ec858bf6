"""The text of an error or a warning that names settings: as arguments in Python, as options on the command line."""

from collections.abc import Callable, Iterable
from string import Formatter
from typing import Any, Self

Option = Callable[[str, str | tuple[object, ...] | None], str | None]
"""Returns the words of a command for a setting and its value, if any; None where the command has no such option."""


class Message(str):
    """A text that names settings, such as `ValueError(Message("{fit=} needs a size, as {size=32}", fit="crop"))`.

    It is the text for Python; `worded` returns the one for a command.

    | field in the template | Python | command |
    |---|---|---|
    | {size} | size | --data.size |
    | {size=32} | size=32 | --data.size 32 |
    | {fit=}, with the argument fit="crop" | fit=crop | --data.fit crop |
    | {fit=crop!r} | fit='crop' | --data.fit crop |
    | {key=}, without an argument | key= | --data.key |
    | {data.frames}: only `--data.frames`, not `--frames` | frames | --data.frames |
    | {}, {:,}, {!r}: the next of `values`, as in `str.format` | 1,000 | 1,000 |

    Values may hold braces. A message among them, or an error with one, is worded for the command too.
    """

    def __new__(cls, template: str, *values: object, **settings: object) -> Self:
        return super().__new__(cls, _worded(template, values, settings, lambda name, value: None))

    def __init__(self, template: str, *values: object, **settings: object) -> None:
        self._template = template, values, settings

    def worded(self, option: Option) -> str:
        """Return the text with each setting as `option` says."""
        return _worded(*self._template, option)

    def __getnewargs_ex__(self) -> tuple[tuple[Any, ...], dict[str, object]]:
        template, values, settings = self._template
        return (template, *values), settings


def message_of(error: Exception) -> str:
    """Return the text of an error or a warning: a `Message`, if it was made with one."""
    return error.args[0] if error.args and isinstance(error.args[0], Message) else str(error)


def joined(separator: str, texts: Iterable[str]) -> Message:
    """Return texts and messages as one message."""
    texts = [*texts]
    return Message(separator.join(["{}"] * len(texts)), *texts)


def _worded(template: str, values: tuple[object, ...], settings: dict[str, object], option: Option) -> str:
    words, rest = list[str](), iter(values)
    for text, field, form, conversion in Formatter().parse(template):
        words.append(text)
        if field:
            words.append(_setting(field, form or "", conversion, settings, option))
        elif field is not None:
            value = next(rest)
            value = message_of(value) if isinstance(value, Exception) else value
            shown = format(Formatter().convert_field(value, conversion), form or "")
            words.append(value.worded(option) if isinstance(value, Message) else shown)
    return "".join(words)


def _setting(field: str, form: str, conversion: str | None, settings: dict[str, object], option: Option) -> str:
    name, assigned, word = field.partition("=")
    short = name.rpartition(".")[2]
    given = settings.get(short, "") if assigned and not word else word
    value = format(given, form) if form else str(given)
    in_python = f"{short}={value!r}" if conversion else short + assigned + value
    return option(name, given if isinstance(given, tuple) else value or None) or in_python
