"""Messages of the commands while they work: on stderr, so that stdout holds results only."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.status import Status

from axial_transformers.cli.streams import printable
from axial_transformers.progress import rank

ERRORS = Console(stderr=True)


def say(text: str, style: str | None = None) -> None:
    """Prints one line as it is: paths may hold brackets, which rich would take for markup, and control characters."""
    ERRORS.print(printable(text), style=style, highlight=False, markup=False, soft_wrap=True)


def working(text: str) -> Status:
    """Shows on a terminal, within a `with` block, what is being done."""
    return ERRORS.status(escape(printable(text)))


@contextmanager
def show_log() -> Iterator[None]:
    """Within this block each log record of the package, INFO or above, appears once on stderr."""
    logger, handler = logging.getLogger("axial_transformers"), _OnConsole()
    level, propagate = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate


class _OnConsole(logging.Handler):
    """Of several processes the first one speaks, as for progress."""

    def emit(self, record: logging.LogRecord) -> None:
        if rank() == 0:
            say(self.format(record), style="dim")
