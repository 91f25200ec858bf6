"""What libraries raise and warn of: one line with the name of the file."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from axial_transformers.progress import rank
from axial_transformers.storage import MissingPackageError

_LOGGERS = ("nibabel.global", "pydicom", "tifffile")


def say(warning: str) -> None:
    """Warn in one process only."""
    if rank() == 0:
        warnings.warn(warning, stacklevel=3)


class ParsingError(ValueError):
    """One line about a file that cannot be read or written; the message is complete."""


class WrongSizeError(ValueError):
    """An image has another size than the one that is asked for."""


@contextmanager
def parsing(path: object, fault: str = "cannot be read", advice: str = ": replace or remove it") -> Iterator[None]:
    """Turn the errors of a library into one line that names the file; those of the system that do so stay."""
    try:
        yield
    except Exception as raised:  # libraries raise errors of every kind
        of_system = isinstance(raised, OSError) and raised.filename
        if of_system or isinstance(raised, ParsingError | WrongSizeError | MissingPackageError):
            raise
        text = str(raised.__cause__ or raised).replace(str(path), "it")
        reason = " ".join(text.split())[:200] or type(raised).__name__
        raise ParsingError(f"{path} {fault} ({reason}){advice}") from raised


@contextmanager
def saying_once(path: object) -> Iterator[None]:
    """Say each warning of a library, and each line of its log, once and with the name of the file."""
    with ExitStack() as stack:
        caught = stack.enter_context(warnings.catch_warnings(record=True))
        for logger in map(logging.getLogger, _LOGGERS):
            logger.addFilter(_warn)
            stack.callback(logger.removeFilter, _warn)
        yield
    for line in dict.fromkeys(" ".join(str(warning.message).split()) for warning in caught):
        say(f"{path}: {line}")


def _warn(record: logging.LogRecord) -> bool:
    warnings.warn(record.getMessage(), stacklevel=2)
    return False
