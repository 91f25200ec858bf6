"""The order of the examples, their random draws, and the batches: functions of seed and position."""

from collections.abc import Generator
from enum import IntEnum
from functools import lru_cache, partial
from itertools import count
from typing import NamedTuple, Protocol

import numpy as np
import torch
from jaxtyping import Bool, Int, Int64
from numpy.typing import NDArray
from torch import Tensor

from axial_transformers.data.windows import Windows
from axial_transformers.data.workers import ahead
from axial_transformers.models import AxialTransformer
from axial_transformers.training.augmentation import augmented, shifts, symmetries
from axial_transformers.training.config import TrainConfig
from axial_transformers.training.processes import Processes

GOLDEN = np.uint64(0x9E3779B97F4A7C15)


class Stream(IntEnum):
    """Independent purposes of random bits."""

    SHUFFLE = 0
    SLICE = 1
    FLIP = 2
    LABEL = 3
    DROPOUT = 4
    OFFSET = 5
    SYMMETRY = 6
    SHIFT = 7


def random_bits(*keys: int | NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return the SplitMix64 hash [n] of the keys (Steele et al. 2014); the last may be an array [n]."""
    state = np.zeros(1, np.uint64)
    for key in keys:
        state = state + GOLDEN * (np.atleast_1d(key).astype(np.uint64) + np.uint64(1))
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        state = state ^ (state >> np.uint64(31))
    return state


def uniforms(seed: int, stream: Stream, positions: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return numbers in [0, 1), one for each position [n]."""
    return (random_bits(seed, stream, positions) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def step_positions(step: int, batch_size: int, rank: int = 0, ranks: int = 1) -> NDArray[np.int64]:
    """Return the positions [B] of one process's share in a step."""
    if batch_size % ranks:
        raise ValueError(f"a batch of {batch_size} does not divide among {ranks} processes")
    share = batch_size // ranks
    return step * batch_size + rank * share + np.arange(share)


def example_indices(seed: int, count: int, positions: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return indices [n] at the positions [n]; each epoch is a permutation."""
    epochs, places = np.divmod(positions, count)
    indices = np.empty_like(positions)
    for epoch in np.unique(epochs):
        here = epochs == epoch
        indices[here] = _permutation(seed, int(epoch), count)[places[here]]
    return indices


@lru_cache(maxsize=2)  # a batch may extend into the next epoch
def _permutation(seed: int, epoch: int, count: int) -> NDArray[np.int64]:
    return np.argsort(random_bits(seed, Stream.SHUFFLE, epoch * count + np.arange(count)), kind="stable")


WORKERS = 2


class TrainingExamples(Protocol):
    """A data set to train on."""

    @property
    def values(self) -> np.ndarray:
        """Integers [N, *A, C], or an object whose `values[indices]` are."""

    @property
    def labels(self) -> np.ndarray | None:
        """Integer classes [N]."""

    @property
    def num_values(self) -> int:
        """As of `data.Examples`."""

    @property
    def fingerprint(self) -> str:
        """A hash."""


def check_fit(model: AxialTransformer, examples: TrainingExamples, config: TrainConfig, processes: Processes) -> None:
    """Raise ValueError unless the arguments fit each other."""
    wants, shape, classes, labels = model.config, examples.values.shape, model.config.num_classes, examples.labels
    if not shape[0]:
        raise ValueError("there is not one training example")
    if shape[1:] != (*wants.shape, wants.channels):
        raise ValueError(f"the model takes [*A, C] = {[*wants.shape, wants.channels]}, the data is {[*shape[1:]]}")
    if examples.num_values > wants.num_values:
        raise ValueError(f"the model knows {wants.num_values} values, the data has {examples.num_values}")
    if classes is None:
        if config.label_dropout:
            raise ValueError(f"label_dropout is {config.label_dropout}, but the model has no classes")
    elif labels is None:
        raise ValueError(f"the model has {classes} classes, but the data has no labels")
    elif not 0 <= labels.min() <= labels.max() < classes:
        raise ValueError(f"the model has {classes} classes, but the data has labels {labels.min()}..{labels.max()}")
    if config.batch_size % (processes.count * config.accumulate):
        raise ValueError(
            f"a batch of {config.batch_size} does not divide into {config.accumulate} parts on each of "
            f"{processes.count} processes"
        )


class Batch(NamedTuple):
    """Examples, their labels, and the slice of each that carries the loss."""

    values: Int[Tensor, "B *A C"]
    label: Int64[Tensor, " B"] | None
    channel: Int64[Tensor, " B"]
    operations: Bool[Tensor, "B n"] | None = None

    def to(self, device: torch.device) -> "Batch":
        def move(tensor: Tensor) -> Tensor:
            return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)

        return Batch(*(None if part is None else move(part) for part in self))  # type: ignore[arg-type]


def draw_batch(
    examples: TrainingExamples, slices: range, num_classes: int | None, config: TrainConfig, positions: np.ndarray
) -> Batch:
    """Return the batch at positions [B]; `num_classes` is the hidden label."""
    indices = example_indices(config.seed, len(examples.values), positions)
    return _draw(examples, slices, num_classes, config, (positions, indices))


def batches(
    examples: TrainingExamples,
    slices: range,
    num_classes: int | None,
    config: TrainConfig,
    processes: Processes,
    first_step: int,
) -> Generator[Batch, None, None]:
    """Yield this process's batches without end, in an order that does not depend on workers."""
    order = (
        (positions, example_indices(config.seed, len(examples.values), positions))
        for step in count(first_step)
        for positions in step_positions(step, config.batch_size, processes.rank, processes.count).reshape(
            config.accumulate, -1
        )
    )
    in_memory = isinstance(examples.values, (np.ndarray, Windows))
    workers = config.workers if config.workers is not None else 0 if in_memory else WORKERS
    return ahead(partial(_draw, examples, slices, num_classes, config), order, workers)


def _draw(
    examples: TrainingExamples,
    slices: range,
    num_classes: int | None,
    config: TrainConfig,
    positions_and_indices: tuple[np.ndarray, np.ndarray],
) -> Batch:
    positions, indices = positions_and_indices
    values = examples.values
    if isinstance(values, Windows):
        values = values.cut(indices, uniforms(config.seed, Stream.OFFSET, positions))
    else:
        values = values[indices]
    if config.horizontal_flip:
        flip = uniforms(config.seed, Stream.FLIP, positions) < 0.5
        values[flip] = np.flip(values[flip], axis=-2)
    label = None
    if num_classes is not None:
        assert examples.labels is not None
        hidden = uniforms(config.seed, Stream.LABEL, positions) < config.label_dropout
        label = torch.from_numpy(np.where(hidden, num_classes, examples.labels[indices]))
    drawn = slices.start + slices.step * (uniforms(config.seed, Stream.SLICE, positions) * len(slices)).astype(np.int64)
    operations = None
    grid = values.shape[1:-1]
    if config.distribution_augmentation or config.shift_augmentation:
        uniform = uniforms(config.seed, Stream.SYMMETRY, positions)
        values, operations = augmented(values, symmetries(grid), config.distribution_augmentation, uniform)
        if config.shift_augmentation:
            uniform = uniforms(config.seed, Stream.SHIFT, positions)
            values, moves = augmented(values, shifts(grid), config.shift_augmentation, uniform)
            operations = torch.cat([operations, moves], dim=1)
    return Batch(torch.from_numpy(values), label, torch.from_numpy(drawn), operations)
