"""The pages of the command line, written from the parsers of its verbs when the site is built."""

import argparse
import io
import os
import re
import warnings
from collections.abc import Iterator
from contextlib import redirect_stdout, suppress
from importlib import import_module
from unittest.mock import patch

import tyro

from axial_transformers import cli
from axial_transformers.cli.settings import recipe_preset

RECIPE = "digits"
"""The recipe whose settings stand for those of every run."""


def pages() -> dict[str, str]:
    """Markdown by the name of the page: the list of verbs, and a page for each."""
    rows = [
        f"| [axial {verb}]({verb}.md) | {summary} | `{example}` |" for verb, (summary, example) in cli.VERBS.items()
    ]
    listed = ["# The command `axial`", "", "| | | for example |", "|---|---|---|", *rows, ""]
    return {"index": "\n".join(listed), **{verb: page(verb) for verb in cli.VERBS}}


def page(verb: str) -> str:
    """The page of one verb: its description, its examples, its options."""
    module = import_module(f"axial_transformers.cli.{verb.replace('-', '_')}")
    options = getattr(module, verb.title().replace("-", ""), None)
    if options is not None:
        lines = _described(_parser(options, f"axial {verb}"))
    else:
        lines = ["```text", *_help(verb).rstrip().splitlines(), "```", ""]
    if verb == "train":
        preset = recipe_preset(RECIPE).settings
        note = f"The defaults below are of the recipe `{RECIPE}`; `axial train RECIPE --help` prints those of another."
        lines += ["## Settings of a run", "", note, "", *_options(_parser(type(preset), "axial train", preset))]
    return "\n".join([f"# axial {verb}", "", *lines])


def _help(verb: str) -> str:
    with redirect_stdout(io.StringIO()) as out, suppress(SystemExit), patch.dict(os.environ, COLUMNS="100"):
        cli.main([verb, "--help"])
    return out.getvalue()


def _parser(options: type, program: str, default: object = tyro.MISSING_NONPROP) -> argparse.ArgumentParser:
    names = (tyro.conf.PositionalMetavarFromFieldName,)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # constraints.txt says which tyro this is
        return tyro.extras.get_parser(options, prog=program, default=default, config=names)


def _described(parser: argparse.ArgumentParser) -> list[str]:
    words = [str(action.metavar) for action in parser._positionals._group_actions]
    lines = ["```text", " ".join([parser.prog, "[OPTIONS]", *words]), "```", ""]
    for paragraph in (parser.description or "").split("\n\n"):
        first, *examples = paragraph.splitlines()
        if first == "For example:":
            lines += [first, "", "```sh", *(line.strip() for line in examples), "```", ""]
        else:
            lines += [_prose(paragraph), ""]
    return lines + _options(parser)


def _options(parser: argparse.ArgumentParser) -> list[str]:
    lines: list[str] = []
    for group in parser._action_groups:
        actions = [action for action in group._group_actions if "--help" not in action.option_strings]
        if actions:
            title = (group.title or "").removeprefix("positional ").capitalize()
            lines += [f"## {title}", "", *([_prose(group.description), ""] if group.description else [])]
            lines += [line for action in actions for line in _option(action)]
    return lines


def _option(action: argparse.Action) -> Iterator[str]:
    """A term and its definition."""
    value = str(action.metavar or "").replace("{None}|", "").replace("{None,", "{")
    text, _, default = re.sub(r"\s*\(required\)$", "", action.help or "").partition(" (default: ")
    default = {"True": "on", "False": "", "None": ""}.get(default[:-1], default[:-1])
    yield ", ".join(f"`{f'{name} {value}'.strip()}`" for name in action.option_strings or [""])
    yield f":   {_prose(text)}" + (f" *Default: {default}.*" if default else "")
    yield ""


def _prose(text: str) -> str:
    """Text of a docstring as Markdown on one line, its options as code."""
    return re.sub(r"(?<![\w`-])(--[a-z][\w.-]*\w)", r"`\1`", " ".join(text.split())).replace("<", "&lt;")
