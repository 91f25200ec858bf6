"""Packages that import what they offer at its first use: a configuration or a help text need not wait for torch."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def opened_at_first_use(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package, which also knows `__all__`.

    The package imports each name once more, as itself, for type checkers. They read no `__all__` that is computed.

    Args:
        package: its `__name__`.
        homes: the module of each public name, relative to the package.
    """

    def getattr_of_package(name: str) -> Any:
        if name == "__all__":
            return [*homes]
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{homes[name]}"), name)

    return getattr_of_package
