"""The pages of the command line, written from the parsers of its commands when the site is built."""

import re

from axial_transformers.cli import COMMANDS, app


def pages() -> dict[str, str]:
    """Markdown by the name of the page: the list of commands, and a page for each."""
    parsers, rows = app(), list[str]()
    texts = {command: parsers[command].generate_docs() for command in COMMANDS}
    for command in COMMANDS:
        summary, _, _ = parsers[command].default_command.__doc__.partition("\n")
        rows.append(f"| [axial {command}]({command}.md) | {summary} |")
    listed = ["# The command `axial`", "", "| command | does |", "|---|---|", *rows, ""]
    texts["train"] += "\nA recipe has defaults of its own, which `axial train RECIPE --help` prints.\n"
    return {"index": "\n".join(listed)} | {
        command: re.sub(r"```console\n(axial )?", "```console\naxial ", text) for command, text in texts.items()
    }
