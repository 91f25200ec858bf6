"""How far a long reading of data is."""

from collections.abc import Iterable
from typing import TypeVar

from rich.console import Console
from rich.progress import track

Item = TypeVar("Item")


def shown(items: Iterable[Item], what: str, count: int | None = None) -> Iterable[Item]:
    """The items, with a bar on a terminal, and nothing elsewhere."""
    console = Console(stderr=True)
    return track(items, what, count, console=console, transient=True, disable=not console.is_terminal)
