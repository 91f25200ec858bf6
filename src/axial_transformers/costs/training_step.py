"""Memory of a device, operations and seconds of a training step, estimated from the configuration alone."""

from dataclasses import dataclass
from functools import cache
from typing import Protocol

import torch

from axial_transformers.baselines.by_name import build
from axial_transformers.costs.activations import activation_bytes
from axial_transformers.costs.operations import training_operations
from axial_transformers.layers.blocks import TransformerBlock, matrices_of_blocks
from axial_transformers.models import AxialTransformerConfig

FLOAT = 4
"""Bytes of a number: weights, gradients, moments and the average are always float32."""
GROWTH = 16
"""Examples by which a batch grows to see how its memory does."""


class TrainingSettings(Protocol):
    """The settings of a run that its costs depend on; `training.TrainConfig` has them."""

    @property
    def batch_size(self) -> int:
        """Examples of a step, over all devices and parts."""

    @property
    def optimiser(self) -> str:
        """Adam for all weights, or Muon for the matrices of the blocks: adam or muon."""

    @property
    def accumulate(self) -> int:
        """Parts into which a batch is split."""

    @property
    def precision(self) -> str:
        """Arithmetic of the forward and backward pass: float32 or bfloat16."""

    @property
    def shard(self) -> bool:
        """Whether each device holds only a shard of the weights."""

    @property
    def checkpoint_blocks(self) -> bool:
        """Whether the inside of a block is computed again for its gradient."""


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """The devices to train on."""

    devices: int = 1
    """Devices, each with a process of its own."""
    memory: float = 80.0
    """Of one device, in GB (1e9 bytes)."""
    rate: float = 989.0
    """Rate of one device's matrix products, in TFLOP/s; 989 is the stated rate of an H100 in bfloat16."""
    utilisation: float = 0.4
    """Share of that rate that training reaches."""

    def __post_init__(self) -> None:
        if self.devices < 1:
            raise ValueError(f"devices must be at least 1, not {self.devices}")
        for name in ("memory", "rate"):
            if not (value := getattr(self, name)) > 0:
                raise ValueError(f"{name} must be above 0, not {value}")
        if not 0 < self.utilisation <= 1:
            raise ValueError(f"utilisation must be above 0 and at most 1, not {self.utilisation}")


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Bytes of tensors on one device at the peak of a step; the allocator and the driver take more."""

    weights: int
    """The trained weights."""
    gradients: int
    """As large as the weights."""
    adam: int
    """Two moments of each gradient; one of those that Muon takes."""
    average: int
    """The averaged weights."""
    gathered: int
    """Of a sharded model, what is gathered at once: all that is in no block, and two blocks; with their gradients."""
    activations: int
    """Held by the forward and backward pass besides; see `activation_bytes`."""

    @property
    def total(self) -> int:
        """All of it."""
        return self.weights + self.gradients + self.adam + self.average + self.gathered + self.activations


def memory(model: AxialTransformerConfig, training: TrainingSettings, devices: int) -> Memory:
    """Memory of a training step on each of `devices` devices, blocks not compiled.

    Raises:
        ValueError: the batch does not divide among the devices.
    """
    return _memory(model, training, devices, device_batch(training, devices))


def keeps_freed_memory(training: TrainingSettings) -> bool:
    """Whether a step on a CPU keeps freed memory for the next one: settings that save memory return it instead."""
    return training.accumulate == 1 and not training.checkpoint_blocks


def needed_memory(model: AxialTransformerConfig, training: TrainingSettings, devices: int, device: str) -> int:
    """Bytes that a step on each device needs in all: `memory` and what is no tensor.

    On a CPU this is the growth of the resident memory, by factors that bound those measured (docs/training.md). A tenth
    and 1 GB of a GPU are left to its allocator and driver.

    Args:
        device: its type, cpu or cuda.

    Raises:
        ValueError: the batch does not divide among the devices.
    """
    factor, constant = _besides_tensors(training, device)
    return round(factor * memory(model, training, devices).total + constant)


def room_for_tensors(training: TrainingSettings, device: str, free: float) -> float:
    """Bytes of tensors of a step that needs `free` bytes in all: the inverse of `needed_memory`."""
    factor, constant = _besides_tensors(training, device)
    return max(0.0, (free - constant) / factor)


def _besides_tensors(training: TrainingSettings, device: str) -> tuple[float, float]:
    if device != "cpu":
        return 1.1, 1e9
    return (1.4 if keeps_freed_memory(training) else 1.1), 0.15e9


def largest_batch(model: AxialTransformerConfig, training: TrainingSettings, hardware: Hardware) -> int:
    """Examples that fit on one device at a time: activations grow linearly with their number.

    Raises:
        ValueError: the batch does not divide among the devices.
    """
    batch = device_batch(training, hardware.devices)  # of which the memory is known already
    some, more = (_memory(model, training, hardware.devices, count).total for count in (batch, batch + GROWTH))
    return max(0, int(batch + (hardware.memory * 1e9 - some) // ((more - some) / GROWTH)))


def step_operations(model: AxialTransformerConfig, training: TrainingSettings) -> int:
    """Operations of a step on all devices together; what checkpointed blocks compute again is not counted."""
    return training_operations(model) * training.batch_size


def step_seconds(model: AxialTransformerConfig, training: TrainingSettings, hardware: Hardware) -> float:
    """Seconds of a step at the utilisation given."""
    return step_operations(model, training) / (hardware.devices * hardware.rate * 1e12 * hardware.utilisation)


def device_batch(training: TrainingSettings, devices: int) -> int:
    """Examples that each device takes at a time.

    Raises:
        ValueError: the batch does not divide.
    """
    if training.batch_size % (devices * training.accumulate):
        raise ValueError(
            f"a batch of {training.batch_size} does not divide into {training.accumulate} parts on each of {devices} "
            f"devices: change --training.batch-size or --devices"
        )
    return training.batch_size // (devices * training.accumulate)


def _memory(model: AxialTransformerConfig, training: TrainingSettings, devices: int, batch: int) -> Memory:
    numbers, largest_block, outside_blocks, matrices = _sizes(model)
    share, gathered = FLOAT * numbers, 0
    saved = FLOAT * matrices if training.optimiser == "muon" else 0  # never together with shards
    if training.shard and devices > 1:
        share = -(-share // devices)
        weight = 2 if training.precision == "bfloat16" else FLOAT
        gathered = 2 * FLOAT * outside_blocks + 2 * (weight + FLOAT) * largest_block
    return Memory(
        weights=share,
        gradients=share,
        adam=2 * share - saved,
        average=share,
        gathered=gathered,
        activations=_activations(model, batch, training.precision, training.checkpoint_blocks),
    )


@cache
def _activations(model: AxialTransformerConfig, batch: int, precision: str, recompute: bool) -> int:
    return activation_bytes(model, batch, torch.bfloat16 if precision == "bfloat16" else torch.float32, recompute)


@cache
def _sizes(config: AxialTransformerConfig) -> tuple[int, int, int, int]:
    """Parameters: all, of the largest block, outside of blocks, and of matrices in blocks."""
    with torch.device("meta"):
        model = build(config)
    blocks = [
        sum(parameter.numel() for parameter in block.parameters())
        for block in model.modules()
        if isinstance(block, TransformerBlock)
    ]
    numbers = sum(parameter.numel() for parameter in model.parameters())
    matrices = sum(parameter.numel() for parameter in matrices_of_blocks(model))
    return numbers, max(blocks, default=0), numbers - sum(blocks), matrices
