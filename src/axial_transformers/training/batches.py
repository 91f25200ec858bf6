"""Choose the examples of each step and their random changes, and make batches of them.

A run reads one endless sequence of examples. In this file, a position is an index into that sequence, counted from the
start of the run. With 10 examples and batches of 4:

    position   0  1  2  3 | 4  5  6  7 | 8  9 10 11 | 12 ..
    step       0          | 1          | 2          | 3
    epoch      0  0  0  0 | 0  0  0  0 | 0  0  1  1 | 1 ..

All that happens to the example at a position is a function of the seed and the position: which example it is, how it is
augmented, whether its label is hidden, and which slice carries the loss. No random generator has a state between steps.
`random_bits` hashes the seed, a purpose (`Purpose`) and the position instead.

So the order does not depend on how a run is executed:

- after a resume, step t has the same positions, t * batch_size .. (t + 1) * batch_size - 1;
- P processes divide the positions of a step into P consecutive parts, one for each rank;
- a thread computes the batch at the positions that it gets, whoever computed the one before.

The batch size says which positions a step has, so a resume must not change it. Dropout is not of this file: its seed
depends on the step and the rank (`step.step`).
"""

from collections.abc import Generator, Iterator
from enum import IntEnum
from functools import lru_cache, partial
from itertools import count
from math import prod
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Int, Int64
from numpy.typing import NDArray
from torch import Tensor

from axial_transformers.data import Examples
from axial_transformers.data.blocks import Blocks
from axial_transformers.data.lazy_array import LazyArray
from axial_transformers.data.workers import ahead
from axial_transformers.models import AxialTransformer
from axial_transformers.training.augmentation import augment, shifts, symmetries
from axial_transformers.training.config import TrainConfig
from axial_transformers.training.processes import Processes

GOLDEN = np.uint64(0x9E3779B97F4A7C15)


class Purpose(IntEnum):
    """Purposes of random bits. Bits of different purposes are independent."""

    SHUFFLE = 0
    SLICE = 1
    FLIP = 2
    LABEL = 3
    DROPOUT = 4
    OFFSET = 5
    SYMMETRY = 6
    SHIFT = 7


def random_bits(*keys: int | NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return 64 random bits that are a hash of the keys.

    SplitMix64 (Steele et al. 2014) is a generator whose n-th number can be computed alone. Each key selects a number of
    the sequence that the keys before it began.

    Args:
        keys: integers from 0 on; the last may be an array [n].

    Returns:
        uint64 [n]; [1] without an array.
    """
    state = np.zeros(1, np.uint64)
    for key in keys:
        state = state + GOLDEN * (np.atleast_1d(key).astype(np.uint64) + np.uint64(1))
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        state = state ^ (state >> np.uint64(31))
    return state


def uniforms(seed: int, purpose: Purpose, positions: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return float64 [n], uniform in [0, 1): one number for each position [n]."""
    return (random_bits(seed, purpose, positions) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def step_positions(step: int, batch_size: int, rank: int = 0, ranks: int = 1) -> NDArray[np.int64]:
    """Return the positions of one process in a step.

    Rank r takes the r-th of `ranks` consecutive parts. Joined in the order of ranks, they are the whole batch.

    Args:
        batch_size: examples of a step, over all processes; a multiple of `ranks`.

    Returns:
        int64 [batch_size / ranks].
    """
    share = batch_size // ranks
    return step * batch_size + rank * share + np.arange(share)


def example_indices(seed: int, count: int, positions: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return which of `count` examples stands at each position.

    Epoch e has the positions e * count .. (e + 1) * count - 1. It is a permutation of its own: each example comes once.

    Args:
        positions: int64 [n], in any order.

    Returns:
        int64 [n], indices below `count`.
    """
    epochs, within = np.divmod(positions, count)
    indices = np.empty_like(positions)
    for epoch in np.unique(epochs):
        here = epochs == epoch
        indices[here] = _permutation(seed, int(epoch), count)[within[here]]
    return indices


@lru_cache(maxsize=2)  # that of the epoch, and of the next one at its end
def _permutation(seed: int, epoch: int, count: int) -> NDArray[np.int64]:
    return np.argsort(random_bits(seed, Purpose.SHUFFLE, epoch * count + np.arange(count)), kind="stable")


WORKERS = 2
"""Threads that read examples from disk, where `workers` is None."""


def some_examples(examples: Examples, numbers: int) -> torch.Tensor:
    """Return examples [n, *A, C] of about `numbers` numbers, evenly spaced; at least one."""
    count, *sizes = examples.values.shape
    wanted = max(1, min(count, numbers // prod(sizes)))
    chosen = np.linspace(0, count - 1, wanted).astype(np.int64)
    return torch.from_numpy(examples.values[chosen])


def check_matches(model: AxialTransformer, examples: Examples, config: TrainConfig, processes: Processes) -> None:
    """Raise ValueError if the model cannot train on these examples, with these settings, in these processes."""
    if not len(examples):
        raise ValueError("there is not one training example")
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ValueError("all weights of the model are frozen: thaw some, by model.requires_grad_()")
    wanted = [*model.config.shape, model.config.channels]
    shape = [*examples.values.shape[1:]]
    if shape != wanted:
        raise ValueError(f"the model takes [*A, C] = {wanted}, the data is {shape}")
    integers = examples.range._replace(grid=model.config.range.grid)  # floats are compared by their integers
    integers.require_within(model.config.range, "the data")
    _check_labels(model.config.num_classes, examples, config)
    if config.batch_size % (processes.count * config.accumulate):
        raise ValueError(
            f"a batch of {config.batch_size} does not divide into {config.accumulate} parts on each of "
            f"{processes.count} processes"
        )
    if config.cuda_graph and processes.count > 1:
        raise ValueError(f"training.cuda_graph takes one process, not {processes.count}: leave it out")


def _check_labels(classes: int | None, examples: Examples, config: TrainConfig) -> None:
    if not classes:
        if config.label_dropout:
            raise ValueError(f"training.label_dropout is {config.label_dropout}, but the model has no classes")
        return
    labels = examples.labels
    if labels is None:
        raise ValueError(f"the model has {classes} classes, but the data has no labels")
    if not 0 <= labels.min() <= labels.max() < classes:
        raise ValueError(f"the model has {classes} classes, but the data has labels {labels.min()}..{labels.max()}")


def send(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a tensor of the CPU on a device; a copy to CUDA runs beside its computations."""
    if device.type == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


class Batch(NamedTuple):
    """Examples, their labels if the model has classes, and the slice of each that carries the loss."""

    values: Int[Tensor, "B *A C"]
    label: Int64[Tensor, " B"] | None
    channel: Int64[Tensor, " B"]
    operations: Bool[Tensor, "B n"] | None = None
    """How each example was rearranged (`augmentation`); None without augmentation."""

    def to(self, device: torch.device) -> "Batch":
        """Return the batch on a device."""
        return Batch(*(tensor if tensor is None else send(tensor, device) for tensor in self))  # type: ignore[arg-type]


def batch_at(
    examples: Examples, slices: range, num_classes: int | None, config: TrainConfig, positions: np.ndarray
) -> Batch:
    """Return the batch at these positions: a pure function of its arguments.

    Args:
        slices: channels that may carry the loss.
        num_classes: classes of the model, and the label that stands for a hidden one; None: a model without classes.
        positions: int64 [B], see the top of this file.
    """

    def random(purpose: Purpose) -> NDArray[np.float64]:
        return uniforms(config.seed, purpose, positions)

    indices = example_indices(config.seed, len(examples.values), positions)
    values = examples.values
    if isinstance(values, Blocks) and values.at_random:
        values = values.cut(indices, random(Purpose.OFFSET))
    else:
        values = values[indices]
    if config.horizontal_flip:
        flip = random(Purpose.FLIP) < 0.5
        values[flip] = np.flip(values[flip], axis=-2)
    label = None
    if num_classes and examples.labels is not None:
        hidden = random(Purpose.LABEL) < config.label_dropout
        label = torch.from_numpy(np.where(hidden, num_classes, examples.labels[indices]))
    channel = slices.start + slices.step * (random(Purpose.SLICE) * len(slices)).astype(np.int64)
    operations = None
    grid = values.shape[1:-1]
    mirrored = config.distribution_augmentation
    shifted = config.shift_augmentation
    if mirrored or shifted:
        values, operations = augment(values, symmetries(grid), mirrored, random(Purpose.SYMMETRY))
        if shifted:
            values, moves = augment(values, shifts(grid), shifted, random(Purpose.SHIFT))
            operations = torch.cat([operations, moves], dim=1)
    return Batch(torch.from_numpy(values), label, torch.from_numpy(channel), operations)


def batches(
    examples: Examples,
    slices: range,
    num_classes: int | None,
    config: TrainConfig,
    processes: Processes,
    first_step: int,
) -> Generator[Batch, None, None]:
    """Yield the batches of this process without end: the parts of step `first_step`, then those of the next step.

    Threads prefetch, so that reading and decoding overlap with training.
    """

    def order() -> Iterator[NDArray[np.int64]]:
        for step in count(first_step):
            positions = step_positions(step, config.batch_size, processes.rank, processes.count)
            yield from positions.reshape(config.accumulate, -1)

    workers = config.workers
    if workers is None:
        values = examples.values
        is_slow = isinstance(values, LazyArray) and not values.in_memory
        workers = WORKERS if is_slow else 0
    return ahead(partial(batch_at, examples, slices, num_classes, config), order(), workers)
