"""The time of a run, over all resumes, and the minutes that may end its steps."""

import time
from math import inf


class TimeLimit:
    """A clock that starts when a run begins or goes on.

    When the limit is reached, the steps end, and the learning rate is zero if its schedule falls. The last evaluation
    and samples come after.

    Args:
        minutes: for the steps, with the evaluations and samples between them; None: no limit.
        spent: seconds before a resume.
    """

    def __init__(self, minutes: float | None = None, spent: float = 0.0) -> None:
        self._limit = inf if minutes is None else 60 * minutes
        self._zero = time.monotonic() - spent

    @property
    def seconds(self) -> float:
        """The wall-clock time of the run until now."""
        return time.monotonic() - self._zero

    def share(self, seconds: float) -> float:
        """Return which share of the time for the steps is used after some seconds; 0 without a limit, at most 1."""
        return min(1.0, seconds / self._limit)

    def left(self, steps: int, seconds_per_step: float) -> float:
        """Return about the seconds that some more steps take, at most those of the limit."""
        return max(0.0, min(steps * seconds_per_step, self._limit - self.seconds))
