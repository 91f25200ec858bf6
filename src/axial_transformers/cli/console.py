"""What all commands print: messages on stderr, rows on stdout."""

import io
import logging
import os
import shlex
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout

from cyclopts import CycloptsError

from axial_transformers.cli.messages import in_options, printable
from axial_transformers.progress import rank, stderr_console

USAGE_ERROR, INTERRUPTED, TERMINATED = 2, 130, 143
"""Exit status after a user's mistake, after Ctrl-C, and after SIGTERM."""


def command(*words: object) -> str:
    """Return a command to copy into a shell."""
    return shlex.join(["axial", *map(str, words)])


def say(text: str, style: str | None = None) -> None:
    """Print one line on stderr without markup, control characters escaped."""
    stderr_console().print(printable(text), style=style, highlight=False, markup=False, soft_wrap=True)


def print_rows(rows: Mapping[str, str], title: str = "", line: Callable[[str], None] = print) -> None:
    """Print rows (name, value) below a title, each by `line`."""
    width = max(map(len, rows), default=0)
    indent = "  " * bool(title)
    if title:
        line(printable(title))
    for name, value in rows.items():
        line(f"{indent}{name:<{width}}  {printable(value)}")


@contextmanager
def rank_zero_output() -> Iterator[None]:
    """While all processes do the same, let only the first one of a machine print, also what is wrong for all."""
    if os.environ.get("LOCAL_RANK", "0") == "0":
        yield
        return
    try:
        with redirect_stderr(io.StringIO()), redirect_stdout(io.StringIO()):
            yield
    except ConnectionError:  # that another process is lost, each says itself: it may be the first one
        raise
    except (CycloptsError, ValueError, OSError):
        raise SystemExit(USAGE_ERROR) from None


@contextmanager
def cleanly_terminated() -> Iterator[None]:
    """While entered, SIGTERM ends the process as an error does: temporary files are removed."""
    in_main_thread = threading.current_thread() is threading.main_thread()  # Python takes handlers nowhere else
    if not in_main_thread or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def show_log() -> None:
    """Print warnings and the package's log records, INFO or above, on stderr: each text once, in the first process."""
    said: set[str] = set()

    def say_once(text: str, style: str | None = None) -> None:
        text = in_options(text)
        if rank() == 0 and text not in said:
            said.add(text)
            say(text, style)

    class OnConsole(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            say_once(self.format(record), style="dim")

    logger = logging.getLogger("axial_transformers")
    logger.handlers = [OnConsole()]
    logger.setLevel(logging.INFO)
    warnings.showwarning = lambda message, *_, **__: say_once(f"warning: {message}")
