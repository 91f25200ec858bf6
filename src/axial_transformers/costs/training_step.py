"""What a training run needs, before anything is rented: memory of a device, operations and seconds of a step."""

from dataclasses import dataclass
from functools import cache

import torch

from axial_transformers.costs.activations import activation_bytes
from axial_transformers.costs.operations import training_operations
from axial_transformers.layers.blocks import TransformerBlock
from axial_transformers.models import AxialTransformer, AxialTransformerConfig
from axial_transformers.training.config import TrainConfig

FLOAT = 4
"""Bytes of a number: weights, gradients, moments and the average are float32 always."""


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """What one would train on."""

    devices: int = 1
    """Devices, each with a process of its own."""
    memory: float = 80.0
    """Of one device, in GB (1e9 bytes)."""
    rate: float = 989.0
    """What one device's matrix products reach, in TFLOP/s; 989 is what is stated for an H100 in bfloat16."""
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
    """Bytes of tensors on one device at the worst moment of a step; the allocator and the driver take more."""

    weights: int
    """What is trained."""
    gradients: int
    """As large as the weights."""
    adam: int
    """Two moments of each gradient."""
    average: int
    """The averaged weights."""
    gathered: int
    """Of a sharded model, what is whole for a while: all that is in no block, and two blocks with their gradients."""
    activations: int
    """What forward and backward hold besides; see `activation_bytes`."""

    @property
    def total(self) -> int:
        """All of it."""
        return self.weights + self.gradients + self.adam + self.average + self.gathered + self.activations


def memory(model: AxialTransformerConfig, training: TrainConfig, devices: int) -> Memory:
    """What a training step holds on each of so many devices, blocks not compiled.

    Raises:
        ValueError: the batch does not divide among the devices.
    """
    return _memory(model, training, devices, device_batch(training, devices))


def largest_batch(model: AxialTransformerConfig, training: TrainConfig, hardware: Hardware) -> int:
    """Examples that one device can take at a time: with every one more, activations grow by as much."""
    some, more = (_memory(model, training, hardware.devices, batch).total for batch in (16, 32))
    return max(0, int(16 + (hardware.memory * 1e9 - some) // ((more - some) / 16)))


def step_operations(model: AxialTransformerConfig, training: TrainConfig) -> int:
    """Operations of a step of all devices together, what is computed again for checkpointing not counted."""
    return training_operations(model) * training.batch_size


def step_seconds(model: AxialTransformerConfig, training: TrainConfig, hardware: Hardware) -> float:
    """Seconds of a step, were the utilisation reached."""
    return step_operations(model, training) / (hardware.devices * hardware.rate * 1e12 * hardware.utilisation)


def device_batch(training: TrainConfig, devices: int) -> int:
    """Examples that each device takes at a time.

    Raises:
        ValueError: they do not come out even.
    """
    if training.batch_size % (devices * training.accumulate):
        raise ValueError(
            f"a batch of {training.batch_size} does not divide into {training.accumulate} parts on each of {devices} "
            f"devices: change --training.batch-size or --devices"
        )
    return training.batch_size // (devices * training.accumulate)


def _memory(model: AxialTransformerConfig, training: TrainConfig, devices: int, batch: int) -> Memory:
    numbers, largest_block, outside_blocks = _sizes(model)
    share, gathered = FLOAT * numbers, 0
    if training.shard and devices > 1:
        share = -(-share // devices)
        gathered = 2 * FLOAT * (outside_blocks + 2 * largest_block)
    return Memory(
        weights=share,
        gradients=share,
        adam=2 * share,
        average=share,
        gathered=gathered,
        activations=_activations(model, batch, training.precision, training.checkpoint_blocks),
    )


@cache
def _activations(model: AxialTransformerConfig, batch: int, precision: str, recompute: bool) -> int:
    return activation_bytes(model, batch, torch.bfloat16 if precision == "bfloat16" else torch.float32, recompute)


@cache
def _sizes(config: AxialTransformerConfig) -> tuple[int, int, int]:
    """Parameters: all, of the largest block, and outside of blocks."""
    with torch.device("meta"):
        model = AxialTransformer(config)
    blocks = [
        sum(parameter.numel() for parameter in block.parameters())
        for block in model.modules()
        if isinstance(block, TransformerBlock)
    ]
    numbers = sum(parameter.numel() for parameter in model.parameters())
    return numbers, max(blocks, default=0), numbers - sum(blocks)
