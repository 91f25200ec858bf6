"""The batch at given positions of a run."""

from collections.abc import Generator
from functools import partial
from itertools import count
from typing import NamedTuple, Protocol

import numpy as np
import torch
from jaxtyping import Bool, Int, Int64
from torch import Tensor

from axial_transformers.data.windows import Windows
from axial_transformers.data.workers import ahead
from axial_transformers.models import AxialTransformer
from axial_transformers.training.augmentation import augmented, shifts, symmetries
from axial_transformers.training.config import TrainConfig
from axial_transformers.training.example_order import Stream, example_indices, step_positions, uniforms
from axial_transformers.training.processes import Processes

WORKERS = 2
"""Default for examples that are not in memory."""


class TrainingExamples(Protocol):
    """A data set to train on, such as `data.Examples`."""

    @property
    def values(self) -> np.ndarray:
        """Integers [N, *A, C]: an array, or an object of which `values[indices]` is one."""

    @property
    def labels(self) -> np.ndarray | None:
        """Classes [N], integers, if the examples have any."""

    @property
    def num_values(self) -> int:
        """Number of values that a site can take."""

    @property
    def fingerprint(self) -> str:
        """A hash of the examples."""


def check_fit(model: AxialTransformer, examples: TrainingExamples, config: TrainConfig, processes: Processes) -> None:
    """Raises ValueError where the model cannot be trained on the examples with these settings by so many processes."""
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
    """Examples, their labels if the model has classes, and the slice of each that carries the loss."""

    values: Int[Tensor, "B *A C"]
    label: Int64[Tensor, " B"] | None
    channel: Int64[Tensor, " B"]
    operations: Bool[Tensor, "B n"] | None = None
    """Operations on each example, with distribution augmentation; None without."""

    def to(self, device: torch.device) -> "Batch":
        """The batch on a device; copies to CUDA overlap with its computations."""

        def move(tensor: Tensor) -> Tensor:
            return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)

        return Batch(*(None if part is None else move(part) for part in self))  # type: ignore[arg-type]


def draw_batch(
    examples: TrainingExamples, slices: range, num_classes: int | None, config: TrainConfig, positions: np.ndarray
) -> Batch:
    """The batch at positions [B], a pure function of its arguments.

    A hidden label is `num_classes`, the class of unlabelled examples.
    """
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
    """The batches of `draw_batch` for this process, part by part of each step, from a step on without end.

    Worker processes prefetch, so that reading and decoding overlap with training; the order does not depend on them.
    """
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
    """The batch of the examples of indices [B], at positions [B] of the run."""
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
