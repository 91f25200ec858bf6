"""The fields of a recipe, the published training, and the machine of the large recipes."""

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from axial_transformers.data import DataConfig
from axial_transformers.models import AxialTransformerConfig
from axial_transformers.training import TrainConfig

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
    """A whole configuration: data, model and training, and the likelihood that they reach."""

    title: str
    reaches: str
    """Bits/dim; or `NOT_YET_MEASURED`."""
    fits: Hardware | None = None
    """A machine for a step; None: it depends on the data."""
    source: str | None = None
    """Source of the data, as for `data.load`; None: the user names one."""
    data: DataConfig = field(default_factory=DataConfig)
    model: AxialTransformerConfig
    training: TrainConfig


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
