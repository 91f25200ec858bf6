"""Ctrl-C and SIGTERM ask a loop to end after the current step."""

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, TypeVar

SIGNALS = (signal.SIGINT, signal.SIGTERM)

Result = TypeVar("Result")


class Interrupts:
    """While entered, SIGINT and SIGTERM only set `asked`; a second SIGINT has its usual effect.

    A signal that was ignored stays ignored: a shell starts its background processes with Ctrl-C ignored.
    """

    def __init__(self) -> None:
        self.asked = False
        self._giving_up = False
        self._before: dict[signal.Signals, Any] = {}

    def until_asked(self, call: Callable[..., Result], *arguments: Any) -> Result | None:
        """The result of the call; None where a signal came before it, or came during it and ended it."""
        self._giving_up = True
        try:
            return None if self.asked else call(*arguments)
        except KeyboardInterrupt:
            if not self.asked:
                raise
            return None
        finally:
            self._giving_up = False

    def __enter__(self) -> "Interrupts":
        if threading.current_thread() is threading.main_thread():  # Python delivers signals nowhere else
            for each in SIGNALS:
                if signal.getsignal(each) not in (signal.SIG_IGN, None):  # None: not set by Python
                    self._before[each] = signal.signal(each, self._ask)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for each in [*self._before]:
            self._restore(each)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
        self._restore(signal.SIGINT)  # SIGTERM may come twice, to a process and to its group
        if self._giving_up:
            self._giving_up = False
            raise KeyboardInterrupt

    def _restore(self, each: signal.Signals) -> None:
        if each in self._before:
            signal.signal(each, self._before.pop(each))
