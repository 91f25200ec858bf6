"""The command `axial`: one file a command, with its options, its help and its work.

Words are read without torch: a command imports what it works with in its functions.
"""

import io
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

from cyclopts import App, CycloptsError, Group

from axial_transformers.cli.console import INTERRUPTED, USAGE_ERROR, cleanly_terminated, rank_zero_output, show_log
from axial_transformers.cli.messages import one_line
from axial_transformers.cli.parsing import HELP, make_parser
from axial_transformers.recipes import of_own_data

GROUPS = {
    "Train": ("demo", "train", "recipes"),
    "Look": ("evaluate", "score", "sample", "complete", "studio", "inspect"),
    "Compress": ("compress", "decompress"),
    "Exchange": ("push", "import-official"),
    "This machine": ("doctor",),
}
"""The commands, as the help groups them."""
COMMANDS = [name for names in GROUPS.values() for name in names]

DIVIDED = ("train", "evaluate", "score", "sample")
"""Commands whose work the processes of torchrun divide. All others run in the first process, and the others end."""

WITH_SETTINGS = ("train", "inspect")
"""Commands whose first words say which options there are: they read their words themselves."""


def app(command: str | None = None) -> App:
    """Return the parser of a command, which needs no other one's file; else that of all, for the help and for errors.

    `train` is there with the settings of any data.
    """
    whole = make_parser(None, "axial", version=lambda: version("axial-transformers"))
    whole.help = "Axial Transformers: exact likelihood, sampling, compression."
    whole.help_epilogue = "AXIAL_TRACEBACK=1 shows the traceback of an error."
    wanted = [command] if command in COMMANDS else COMMANDS
    for group, names in GROUPS.items():
        title = Group.create_ordered(group)
        for name in names:
            if name in wanted:
                parser = make_parser(
                    command_options(name), name, version_flags=(), group=title, sort_key=COMMANDS.index(name)
                )
                whole.command(parser)
    whole.register_install_completion_command()
    return whole


def _module(command: str) -> Any:
    return import_module(f"{__name__}.{command.replace('-', '_')}")


def command_options(command: str) -> Any:
    """Return the options of a command; those of `train` depend on what it trains."""
    module = _module(command)
    if command == "train":
        return module.make_options(of_own_data())
    return getattr(module, command.title().replace("-", ""))


def main(argv: Sequence[str] | None = None) -> int:
    """Run `axial COMMAND ...`; return the exit status: 0, 1 for an archive that would not pay, 2 for an error.

    It is 130 after Ctrl-C, and 143 after SIGTERM.

    Users' mistakes are one line on stderr, or a traceback if AXIAL_TRACEBACK is set.
    """
    words = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    if "OMP_WAIT_POLICY" not in os.environ:  # idle threads of GNU OpenMP sleep after 50 us, not after 15 ms
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    if sys.stderr is None:  # closed: messages go nowhere, and no file that is opened later gets its number
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - for as long as the process lives
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # names of files may be no text
    show_log()
    try:
        with cleanly_terminated():
            status = _run(words)
        print(end="", flush=True)
        return status
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # the reader of stdout has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (CycloptsError, ValueError, OSError, MemoryError, RuntimeError, SystemError) as error:
        text = one_line(error)
        if text is None or os.environ.get("AXIAL_TRACEBACK"):
            raise
        with suppress(OSError):  # where nothing can be written, the status says it
            print(f"axial {words[0]}: {text}", file=sys.stderr)
        return getattr(error, "exit_status", USAGE_ERROR)


def _run(words: list[str]) -> int:
    command, *others = words
    if sys.stdout is None:
        raise ValueError("standard output is closed: send it to a file, or to /dev/null")
    if command not in DIVIDED:
        if os.environ.get("RANK", "0") != "0":
            return 0
        for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):
            os.environ.pop(name, None)
    if any(not word or (word.startswith("--") and word.endswith("=")) for word in words):
        raise ValueError("a word is empty, as where a variable is not set: give a name or a value")
    with rank_zero_output():
        if command in WITH_SETTINGS and not (others and others[0] in HELP):
            options = others or app(command)([command, "--help"])
        else:
            options = app(command)(words, exit_on_error=False, print_error=False)
    if options is None:  # the help or the version was printed
        return 0
    return _module(command).main(options) or 0
