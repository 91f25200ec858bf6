"""Settings whose steps fit into a machine's memory: smaller parts of a batch, recomputed blocks, a smaller model."""

from collections.abc import Collection, Iterator
from dataclasses import replace
from math import floor
from typing import NamedTuple

from axial_transformers.costs.training_step import needed_memory
from axial_transformers.models import AxialTransformerConfig
from axial_transformers.training.config import TrainConfig

SMALLEST_DIM = 32
CHANGEABLE = ("training.accumulate", "training.checkpoint-blocks", "model.dim")
"""Settings that memory depends on and that may be changed to make a step fit, in this order."""


class Sized(NamedTuple):
    """A model and the settings of its training."""

    model: AxialTransformerConfig
    training: TrainConfig

    def options(self, before: "Sized") -> str:
        """The options of the command line that lead here from `before`."""
        words = []
        if self.training.accumulate != before.training.accumulate:
            words.append(f"--training.accumulate {self.training.accumulate}")
        if self.training.checkpoint_blocks and not before.training.checkpoint_blocks:
            words.append("--training.checkpoint-blocks")
        if self.model.dim != before.model.dim:
            words.append(f"--model.dim {self.model.dim} --model.heads {self.model.heads}")
        return " ".join(words)


class Room(NamedTuple):
    """Devices to train on, and the bytes that a step may take on each."""

    devices: int
    device: str
    """Type: cpu or cuda."""
    memory: int


def fitted(wanted: Sized, room: Room, changeable: Collection[str] = CHANGEABLE) -> Sized | None:
    """The settings that fit and differ least from the wanted ones; None where changing `changeable` is not enough."""
    for candidate in _candidates(wanted, changeable):
        parts = _fewest_parts(candidate, room, "training.accumulate" in changeable)
        if parts is not None:
            return candidate._replace(training=replace(candidate.training, accumulate=parts))
    return None


def _candidates(wanted: Sized, changeable: Collection[str]) -> Iterator[Sized]:
    yield wanted
    if "training.checkpoint-blocks" in changeable and not wanted.training.checkpoint_blocks:
        wanted = wanted._replace(training=replace(wanted.training, checkpoint_blocks=True))
        yield wanted
    while "model.dim" in changeable and wanted.model.dim % 4 == 0 and wanted.model.dim >= 2 * SMALLEST_DIM:
        dim, heads = wanted.model.dim // 2, wanted.model.heads
        heads = heads // 2 if heads % 2 == 0 else heads
        if dim % heads:
            return
        wanted = wanted._replace(model=replace(wanted.model, dim=dim, heads=heads))
        yield wanted


def _fewest_parts(sized: Sized, room: Room, more_parts: bool) -> int | None:
    """Fewest parts of a batch, at least those set, of which one fits: memory is linear in its size."""

    def needed(parts: int) -> int:
        return needed_memory(sized.model, replace(sized.training, accumulate=parts), room.devices, room.device)

    set_parts, share = sized.training.accumulate, sized.training.batch_size // room.devices
    if needed(set_parts) <= room.memory:
        return set_parts
    if not more_parts or needed(share) > room.memory:
        return None
    if share == 1:
        return 1
    one = needed(share)
    each = max(1.0, (needed(share // _least_divisor(share)) - one) / (_least_divisor(share) - 1))
    most = 1 + floor((room.memory - one) / each)
    return next(parts for parts in range(set_parts + 1, share + 1) if share % parts == 0 and share // parts <= most)


def _least_divisor(number: int) -> int:
    return next(divisor for divisor in range(2, number + 1) if number % divisor == 0)
