"""Storage: files written whole or not at all, typed JSON, model folders, TensorFlow's formats."""

from importlib.util import find_spec


class MissingPackageError(ValueError):
    """A package of an extra is not installed."""


def require_extra(extra: str, package: str, what: str) -> None:
    """Raise MissingPackageError, with the command to install, where `what` needs a missing package."""
    if not find_spec(package):
        raise MissingPackageError(f"{what} needs the package {package}: pip install 'axial-transformers[{extra}]'")
