"""The command `axial`: its words are read without torch, then the file of the command is imported."""

import io
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path

from cyclopts import CycloptsError

from axial_transformers.cli.console import INTERRUPTED, USAGE_ERROR, printable, rank_zero_output, show_log
from axial_transformers.cli.parsing import HELP, app

DIVIDED = ("train", "evaluate", "score", "sample")
"""Commands whose work the processes of torchrun divide. All others run in the first process, and the others end."""

WITH_SETTINGS = ("train", "inspect")
"""Commands whose first words say which options there are: they read their words themselves."""

SIGNS_OF_MEMORY = (
    "allocate memory", "out of memory", "start new thread", "Storage size calculation overflowed",
    "error return without exception set",  # CPython 3.11, of an import
)  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Run `axial COMMAND ...`; return the exit status: 0, 1 for an archive that would not pay, 2 for an error.

    It is 130 after Ctrl-C.

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
            print(f"{' '.join(['axial', *words[:1]])}: {text}", file=sys.stderr)
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
            options = others or app()([command, "--help"])
        else:
            options = app()(words, exit_on_error=False, print_error=False)
    if options is None:  # the help or the version was printed
        return 0
    return import_module(f"{__name__}.{command.replace('-', '_')}").main(options) or 0


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
    return text or type(error).__name__
