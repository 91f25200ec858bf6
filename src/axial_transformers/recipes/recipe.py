"""What a recipe is, the published training, and the machine of the large recipes."""

from collections.abc import Callable
from dataclasses import replace
from functools import update_wrapper
from pathlib import Path
from typing import Literal, NamedTuple

from axial_transformers.training import RunConfig, TrainConfig

NOT_YET_MEASURED = "not yet measured"


class Hardware(NamedTuple):
    """One device for a step of a recipe; more devices share the batch."""

    device: Literal["cpu", "cuda"]
    gigabytes: float
    """Its memory (1e9 bytes); of a CPU, what a step adds to the process."""

    def __str__(self) -> str:
        return f"one CPU, {self.gigabytes:g} GB" if self.device == "cpu" else f"one GPU of {self.gigabytes:g} GB"


class Recipe:
    """A function that returns the settings of a run, and the likelihood that the run reaches.

    Attributes:
        title: what it trains on.
        reaches: bits/dim; or `NOT_YET_MEASURED`.
        fits: a machine for a step.
    """

    def __init__(self, settings: Callable[[], RunConfig], title: str, reaches: str, fits: Hardware) -> None:
        update_wrapper(self, settings)
        self.name, self.title, self.reaches, self.fits = settings.__name__, title, reaches, fits
        self._settings = settings

    def __call__(self) -> RunConfig:
        """Return the settings."""
        return replace(self._settings(), recipe=self.name, out=RUNS / self.name)


def recipe(title: str, reaches: str, fits: Hardware) -> Callable[[Callable[[], RunConfig]], Recipe]:
    """Return a decorator that makes a recipe of a function, under the name of the function."""

    def named(settings: Callable[[], RunConfig]) -> Recipe:
        return NAMED.setdefault(settings.__name__, Recipe(settings, title, reaches, fits))

    return named


RUNS = Path("runs")
NAMED: dict[str, Recipe] = {}
"""The recipes with a name; `custom` is for any other data."""

GPU = Hardware("cuda", 80)
"""Parts of a batch are as few as fit there without recomputing blocks."""


def published_training(learning_rate: float, accumulate: int) -> TrainConfig:
    """Return about 200,000 steps (section 4 of the paper), the rest as in the released code."""
    return TrainConfig(
        steps=200_000,
        batch_size=64,
        accumulate=accumulate,
        learning_rate=learning_rate,
        longest_warmup=5_000,
        clip_norm=1.0,
        ema_decay=0.99995,
        as_released=True,
        evaluate_every=10_000,
        sample_every=10_000,
        save_every=2_000,
    )
