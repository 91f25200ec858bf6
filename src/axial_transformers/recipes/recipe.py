"""What a recipe is."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple

from axial_transformers.training import RunConfig

NOT_YET_MEASURED = "not yet measured"


class Hardware(NamedTuple):
    """One device for a step of a recipe; more devices share the batch."""

    device: Literal["cpu", "cuda"]
    gigabytes: float
    """Its memory (1e9 bytes); of a CPU, what a step adds to the process."""

    def __str__(self) -> str:
        return f"one CPU, {self.gigabytes:g} GB" if self.device == "cpu" else f"one GPU of {self.gigabytes:g} GB"


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The settings of a whole run, and the likelihood that it reaches. Call it for the settings."""

    name: str
    title: str
    """What it trains, on what."""
    reaches: str = NOT_YET_MEASURED
    """Bits/dim; or `NOT_YET_MEASURED`."""
    fits: Hardware
    """A machine for a step."""
    settings: RunConfig
    trained_on: str | None = None
    """Fingerprint of the training part of the model of this name in the package."""

    def __call__(self) -> RunConfig:
        """Return the settings, in the run's own folder."""
        return replace(self.settings, recipe=self.name, out=Path("runs") / self.name)
