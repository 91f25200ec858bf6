"""Storage: files written whole or not at all, typed JSON, model folders, TensorFlow's formats."""

from importlib import import_module
from importlib.util import find_spec
from typing import Any


class MissingPackageError(ValueError):
    """A package of an extra is not installed."""


def import_extra(extra: str, package: str, what: object) -> Any:
    """Return a package that `what` needs; raise MissingPackageError, with the command to install, if it is missing."""
    if not find_spec(package):
        raise MissingPackageError(f"{what} needs the package {package}: pip install 'axial-transformers[{extra}]'")
    return import_module(package)
