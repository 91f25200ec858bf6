"""The measured time of a step and of a run."""

import time
from collections.abc import Callable
from statistics import median

from axial_transformers.training.checkpoints import Counters
from axial_transformers.training.config import TrainConfig
from axial_transformers.wording import duration

FIRST_STEPS = 10
"""Steps after which the time of a run is told."""
SMOOTHING = 0.98


class Clock:
    """The wall-clock time of a run, over all resumes."""

    def __init__(self) -> None:
        self._zero = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._zero

    def add(self, seconds: float) -> None:
        """Count the time before a resume too, or leave time out."""
        self._zero -= seconds


def seconds(compute: Callable[[], object]) -> float:
    """Return the seconds of the second call, since the first may compile."""
    compute()
    start = time.monotonic()
    compute()
    return time.monotonic() - start


class Durations:
    """Seconds of a step, of an evaluation and of sampling, as this process has measured them.

    The time of a step is the median of the first ten, some of which compile; from then on it is a running mean.
    """

    def __init__(self) -> None:
        self.step: float | None = None
        self.evaluation = self.sampling = 0.0
        self._first: list[float] = []

    @property
    def are_known(self) -> bool:
        return len(self._first) == FIRST_STEPS

    def add_step(self, seconds: float) -> None:
        if self.are_known and self.step is not None:
            self.step = SMOOTHING * self.step + (1 - SMOOTHING) * seconds
        else:
            self._first.append(seconds)
            self.step = median(self._first)

    def left(self, config: TrainConfig, counters: Counters) -> float:
        """Return the seconds that the rest of a run takes, with evaluations and samples once they are measured."""
        steps = config.steps - counters.step
        left = steps * (self.step or 0.0)
        for seconds, every in ((self.evaluation, config.evaluate_every), (self.sampling, config.sample_every)):
            left += seconds * (config.steps // every - counters.step // every + (config.steps % every > 0))
        if config.minutes is None:
            return left
        return min(left, max(0.0, 60 * config.minutes - counters.seconds) + self.evaluation + self.sampling)

    def describe(self, config: TrainConfig) -> str:
        """Return the seconds of a step and of what happens between steps."""
        each = {"evaluation": self.evaluation, "sampling": self.sampling}
        others = (f"{name} {duration(seconds)} each time" for name, seconds in each.items() if seconds)
        return ", ".join([f"{config.steps:,} steps of {self.step:.2g} s", *others])

    def describe_left(self, config: TrainConfig, counters: Counters) -> str:
        seconds, steps = self.left(config, counters), config.steps - counters.step
        durations = {"evaluations": self.evaluation, "samples": self.sampling}
        unknown = " and ".join(name for name, each in durations.items() if not each)
        without = f", without {unknown}" if unknown else ""
        within = max(0, round((seconds - self.evaluation - self.sampling) / (self.step or 1.0)))
        if config.minutes is not None and within < steps:
            return f"{duration(seconds)} left{without}: about {counters.step + within:,} of {config.steps:,} steps"
        return f"about {duration(seconds)} left for {steps:,} steps of {self.step:.2g} s{without}"
