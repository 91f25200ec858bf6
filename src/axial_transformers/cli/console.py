"""What the verbs say while they work: on stderr, so that stdout stays clean."""

import logging

from rich.console import Console

ERRORS = Console(stderr=True)


def show_log() -> None:
    """From now on, what the package says about its work appears here."""
    logger = logging.getLogger("axial_transformers")
    if not any(isinstance(handler, _OnConsole) for handler in logger.handlers):
        logger.addHandler(_OnConsole())
        logger.setLevel(logging.INFO)


class _OnConsole(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        ERRORS.print(record.getMessage(), style="dim", highlight=False)


def engineering(number: float) -> str:
    """Three digits and a prefix: 1.23 k."""
    for factor, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= factor:
            return f"{number / factor:.3g} {prefix}"
    return f"{number:.3g} "
