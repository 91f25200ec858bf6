"""Long work that says how far it is, and that can be stopped between two steps."""

import time
from collections.abc import Callable, Iterable, Iterator, Sized
from threading import Event

from axial_transformers.progress import Item, Progress

SECONDS_BETWEEN_REPORTS = 0.1


class StoppedError(Exception):
    """The work was stopped by its user."""


class Jobs:
    """The work under way, at most one piece for each session (an open page)."""

    def __init__(self) -> None:
        self._stops: dict[str, Event] = {}

    def begin(self, session: str, report: Callable[[int, int | None], None]) -> Progress:
        """A wrapper of the loop of new work: it tells `report` the steps made and their number (None: unknown).

        The loop raises StoppedError at the next step after `stop`.
        """
        stopped = self._stops[session] = Event()

        def wrap(items: Iterable[Item], /) -> Iterator[Item]:
            total, reported = len(items) if isinstance(items, Sized) else None, 0.0
            for number, item in enumerate(items):
                if stopped.is_set():
                    raise StoppedError
                if time.monotonic() - reported > SECONDS_BETWEEN_REPORTS:
                    report(number, total)
                    reported = time.monotonic()
                yield item

        return wrap

    def stop(self, session: str) -> None:
        """Stops the work of a session, if any is under way."""
        if session in self._stops:
            self._stops[session].set()

    def end(self, session: str) -> None:
        """Forgets a session, whose work is stopped."""
        self.stop(session)
        self._stops.pop(session, None)
