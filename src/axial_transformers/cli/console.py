"""Standard streams that accept whatever the commands print, and messages on stderr."""

import io
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from axial_transformers.messages import Option

if TYPE_CHECKING:
    from rich.status import Status

OPTIONS: list[Option] = []
"""For each parser that the running command has used, the function that names its options in messages."""


def prepare_streams() -> None:
    """Replace the standard streams by ones that no closed pipe and no character can stop.

    What cannot be encoded appears as \\xb1 does. Other failures of standard output stay errors.
    """
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:  # closed: the next file that is opened would take its number
            setattr(sys, name, Path(os.devnull).open("r" if name == "stdin" else "w", encoding="utf-8"))  # noqa: SIM115
    for name, own in (("stdout", sys.__stdout__), ("stderr", sys.__stderr__)):
        stream = getattr(sys, name)
        console = sys.platform == "win32" and stream.isatty()  # which takes characters, in bytes of no other stream
        if stream is own and isinstance(stream, io.TextIOWrapper) and not console:
            setattr(sys, name, _tolerant(stream, essential=name == "stdout"))
        elif isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")


def printable(text: object) -> str:
    """Return text with control characters escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in str(text))


def _tolerant(stream: io.TextIOWrapper, essential: bool) -> TextIO:
    stream.flush()
    return io.TextIOWrapper(
        io.BufferedWriter(_Tolerant(stream.fileno(), essential)),
        encoding=stream.encoding,
        errors="backslashreplace" if stream.errors == "strict" else stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


class _Tolerant(io.FileIO):
    """A file descriptor that drops everything after its first error, so that exit cannot fail."""

    def __init__(self, descriptor: int, essential: bool):
        super().__init__(descriptor, "w", closefd=False)
        self._essential = essential

    def write(self, data, /):  # type: ignore[no-untyped-def]  # of any buffer
        try:
            return super().write(data)
        except OSError as error:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)
            if self._essential and not isinstance(error, BrokenPipeError):
                error.filename = "standard output"
                raise
            return len(data)


def say(text: str, style: str | None = None) -> None:
    """Print one line without markup, control characters escaped."""
    from axial_transformers.progress import stderr_console

    stderr_console().print(printable(text), style=style, highlight=False, markup=False, soft_wrap=True)


def working(text: str) -> "Status":
    """Show on a terminal what the command does."""
    from rich.markup import escape

    from axial_transformers.progress import stderr_console

    return stderr_console().status(escape(printable(text)))


def require_within(name: str, value: int | None, least: int, most: int = 2**63 - 1) -> None:
    """Raise ValueError where the option --name is out of its range."""
    if value is not None and not least <= value <= most:
        limits = f"at least {least}" if most == 2**63 - 1 and value < least else f"in {least}..{most}"
        raise ValueError(f"--{name} must be {limits}, not {value}")


def print_rows(rows: Mapping[str, str], title: str = "") -> None:
    """Print rows (name, value) below a title."""
    from rich.console import Console
    from rich.table import Column, Table
    from rich.text import Text

    table = Table.grid(Column(min_width=2 if title else 0), "", Column(overflow="fold"), padding=(0, 2))
    for name, value in rows.items():
        table.add_row("", name, Text(printable(value)))
    console = Console(highlight=False)
    if title:
        console.print(title, style="bold", markup=False, soft_wrap=True)
    console.print(table)


@contextmanager
def rank_zero_output() -> Iterator[None]:
    """Let only the first process of a machine print, errors included."""
    if int(os.environ.get("LOCAL_RANK", 0)) == 0:
        yield
        return
    try:
        with (
            Path(os.devnull).open("w", encoding="utf-8") as nothing,
            redirect_stderr(nothing),
            redirect_stdout(nothing),
        ):
            yield
    except (ValueError, OSError):
        raise SystemExit(2) from None


def show_log() -> None:
    """Print the package's log records, INFO or above, on stderr."""
    import logging

    from axial_transformers.progress import rank

    said = set[str]()

    class OnConsole(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            text = self.format(record)
            if rank() == 0 and text not in said:
                said.add(text)
                say(text, style="dim")

    logger = logging.getLogger("axial_transformers")
    logger.handlers = [OnConsole()]
    logger.setLevel(logging.INFO)
