"""The pages of the command line, written from the parsers of its commands when the site is built."""

import io
import os
import re
from contextlib import redirect_stdout, suppress
from unittest.mock import patch

from axial_transformers import cli
from axial_transformers.cli.completion import parser_of

WITH_RECIPE = "\nA recipe has defaults of its own, which `axial train RECIPE --help` prints.\n"


def pages() -> dict[str, str]:
    """Markdown by the name of the page: the list of commands, and a page for each."""
    rows = [
        f"| [axial {command}]({command}.md) | {summary} | `{example}` |"
        for command, (summary, example) in cli.COMMANDS.items()
    ]
    listed = ["# The command `axial`", "", "| command | does | for example |", "|---|---|---|", *rows, ""]
    return {"index": "\n".join(listed), **{command: page(command) for command in cli.COMMANDS}}


def page(command: str) -> str:
    """The page of one command: its description, its examples, its options."""
    text = parser_of(command).generate_docs().replace(f"axial {command} {command}", f"axial {command}")
    text = re.sub(r"\n {4,}", " ", text)  # docstrings of several lines
    text = re.sub(r"((?:^  axial .*\n)+)", lambda lines: f"\n```sh\n{lines[1]}```\n", text, flags=re.MULTILINE)
    if command in ("train", "inspect"):
        text = text.replace(" **[required]**", "")  # a recipe has them
        text = text.replace("\n**Arguments**", f"\n```text\n{_help(command)}```\n{WITH_RECIPE}\n**Arguments**")
    return text


def _help(command: str) -> str:
    with redirect_stdout(io.StringIO()) as out, suppress(SystemExit), patch.dict(os.environ, COLUMNS="100"):
        cli.main([command, "--help"])
    return out.getvalue()
