"""Progress of long loops: shown on stderr, and only on request.

rich is imported where something is shown: commands that show nothing start without it.
"""

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Protocol, Self, TypeVar

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import ProgressColumn, Task, TextColumn
    from rich.text import Text

SECONDS_BETWEEN_LINES = 30.0
SECONDS_TO_FIRST_LINE = 5.0

Item = TypeVar("Item")


class Progress(Protocol):
    """A wrapper of the items of a loop: `bar` returns one, `iter` is one that shows nothing."""

    def __call__(self, items: Iterable[Item], /) -> Iterable[Item]:
        """Return the same items."""


NamedProgress = Callable[[str], Progress]
"""Returns the wrapper of a loop with this name."""


def silent(description: str) -> Progress:
    """Return a wrapper that shows nothing."""
    return iter


@dataclass(frozen=True)
class _Shown:
    description: str

    def __call__(self, items: Iterable[Item], /) -> Iterator[Item]:
        from rich.progress import TimeRemainingColumn
        from rich.table import Column

        with Bar(self.description, TimeRemainingColumn(table_column=Column(no_wrap=True))) as display:
            display.start(len(items) if isinstance(items, Sized) else None)
            for number, item in enumerate(items, start=1):
                yield item
                display.update(number)


def bar(description: str) -> Progress:
    """Return a wrapper that shows a bar, or a line every half minute: the description, and how many items are done."""
    return _Shown(description)


def renamed(progress: Progress, description: str) -> Progress:
    """Return a wrapper that shows this description if `progress` shows one; else `progress`."""
    return bar(description) if isinstance(progress, _Shown) else progress


@cache
def stderr_console() -> "Console":
    """Return the console on stderr, which all bars and messages must share."""
    from rich.console import Console

    return Console(stderr=True)


def rank() -> int:
    """Return this process's number under torchrun; process 0 writes messages for all."""
    return int(os.environ.get("RANK", 0))


class Display:
    """An interface for the steps of a loop, which shows nothing."""

    def start(self, total: int | None, completed: int = 0) -> None:
        """Begin with `completed` of `total` steps; None: unknown."""

    def update(self, completed: int, metrics: str = "") -> None:
        """Show the completed steps and current metrics."""

    def say(self, text: str) -> None:
        """Show a message on its own line."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Ends."""


def _one_line(field: str) -> "TextColumn":
    """Return a column of a text that is cut, not wrapped, where there is no room."""
    from rich.progress import TextColumn
    from rich.table import Column

    class OneLine(TextColumn):
        def render(self, task: "Task") -> "Text":
            text = super().render(task)
            text.no_wrap = True
            text.overflow = "ellipsis"
            return text

    return OneLine(field, markup=False, table_column=Column())


class Bar(Display):
    """A bar on a terminal; elsewhere a line after 5 seconds, then every half minute."""

    def __init__(self, description: str, *column: "ProgressColumn") -> None:
        from rich import progress as columns
        from rich.table import Column

        console = stderr_console()
        self._writes = rank() == 0
        self._bar = columns.Progress(
            _one_line("{task.description}"),
            columns.BarColumn(bar_width=min(40, console.width // 8)),
            columns.MofNCompleteColumn(table_column=Column(no_wrap=True)),
            _one_line("{task.fields[metrics]}"),
            *column,
            console=console,
            transient=True,
            disable=not (self._writes and console.is_terminal),
        )
        self._task = self._bar.add_task(description, start=False, total=None, metrics="")
        self._next_line = time.monotonic() + min(SECONDS_TO_FIRST_LINE, SECONDS_BETWEEN_LINES)

    def start(self, total: int | None, completed: int = 0) -> None:
        self._bar.update(self._task, total=total, completed=completed)
        self._bar.start_task(self._task)

    def update(self, completed: int, metrics: str = "") -> None:
        if not self._bar.disable:
            self._bar.update(self._task, completed=completed, metrics=metrics)
        elif time.monotonic() >= self._next_line:
            self._next_line = time.monotonic() + SECONDS_BETWEEN_LINES
            task = self._bar.tasks[0]
            of_total = "" if task.total is None else f"/{task.total}"
            self.say(f"{task.description} {completed}{of_total}  {metrics}".rstrip())

    def say(self, text: str) -> None:
        if not self._bar.disable:
            self._bar.console.print(text, highlight=False, markup=False)
        elif self._writes:
            print(text, file=sys.stderr, flush=True)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()
