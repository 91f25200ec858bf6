"""What the command says of errors and warnings: one line each, with the options of the command line.

The rooms below write for Python: `force=True`, `data.grid=(0.5, 0)`. Here that becomes `--force`, `--data.grid 0.5 0`.
"""

import os
import re
from dataclasses import fields

from cyclopts import CycloptsError

from axial_transformers.data import DataConfig
from axial_transformers.models import AxialTransformerConfig
from axial_transformers.training import TrainConfig

SIGNS_OF_MEMORY = (
    "allocate memory", "out of memory", "start new thread", "Storage size calculation overflowed",
    "error return without exception set",  # CPython 3.11, of an import
)  # fmt: skip
ARGUMENTS = r"approximate|force|known|mask|out|rank_by|raw|resume|(?:count|label|split)(?!=\S*[/\\])"
"""Arguments that messages state as NAME=VALUE, and that are options of the same name. label=cat/a.png is a path."""
SETTINGS = "|".join(
    rf"{group}\.(?:{'|'.join(field.name for field in fields(config))})(?![\w./\\])"
    for group, config in {"data": DataConfig, "model": AxialTransformerConfig, "training": TrainConfig}.items()
)
VALUE = r"\([^()]*\)|[^\s,;:()]*"
SETTING = rf"(?<![\w./\\-])(?:(?P<argument>{ARGUMENTS})(?==)|(?P<setting>{SETTINGS}))(?:=(?P<value>{VALUE}))?"
"""A setting or an argument that is no piece of a word, of a path or of an option; with its value if it has one."""


def printable(text: object) -> str:
    """Return text with control characters escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in str(text))


def in_options(text: str) -> str:
    """Return a message with options in place of Python's settings and arguments."""
    return re.sub(SETTING, _as_option, text)


def _as_option(setting: re.Match[str]) -> str:
    name = (setting["setting"] or setting["argument"]).replace("_", "-")
    value = setting["value"]
    if value == "None":
        return f"no --{name}"
    if value == "False":
        group, dot, last = name.rpartition(".")
        return f"--{group}{dot}no-{last}"
    if value in (None, "", "True"):
        return f"--{name}"
    return f"--{name} {value.strip('()').replace(',', '')}"


def one_line(error: Exception) -> str | None:
    """Return the message of an error; None for a RuntimeError that is a bug."""
    if isinstance(error, CycloptsError):
        error.verbose = False
    text = printable(" ".join(str(error).split()))
    bug = isinstance(error, RuntimeError | SystemError)
    if isinstance(error, MemoryError) or (bug and any(sign in text for sign in SIGNS_OF_MEMORY)):
        return "not enough memory: take smaller batches or fewer examples at a time" + f" ({text})" * bool(text)
    if bug:
        return None
    if isinstance(error, OSError) and error.strerror:
        named = isinstance(error.filename, str | bytes | os.PathLike)
        return f"{printable(os.fsdecode(error.filename))}: {error.strerror}" if named else error.strerror
    if isinstance(error, CycloptsError):  # which speaks of options
        return text
    return in_options(text) or type(error).__name__
