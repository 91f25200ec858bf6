"""The time of a step, measured before the first one, for runs with a time limit."""

import time

import numpy as np
import torch
from torch import nn

from axial_transformers.models import AxialTransformer
from axial_transformers.training.batches import Batch, TrainingExamples, draw_batch
from axial_transformers.training.config import TrainConfig
from axial_transformers.training.processes import Processes


def require_short_steps(
    objective: nn.Module,
    examples: TrainingExamples,
    model: AxialTransformer,
    config: TrainConfig,
    processes: Processes,
) -> None:
    """Raises ValueError where a step takes more than a tenth of the time limit.

    Times larger and larger parts of a batch: a step takes at least as long as any of them.
    """
    if config.time_limit is None:
        return
    count = config.batch_size // (config.accumulate * processes.count)
    tenth = 6 * config.time_limit / config.accumulate  # seconds, for the examples that are computed at once
    batch = draw_batch(examples, model.slices, model.config.num_classes, config, np.arange(count))
    batch, part = batch.to(processes.device), 1
    while (least := processes.broadcast(_seconds(objective, batch, part, config))) <= tenth < least * count / part:
        part = min(2 * part, count)
    if least > tenth:
        half, *shape = (max(1, length // 2) for length in (config.batch_size, *model.config.shape))
        frames = f" or frames={shape[0]}" if len(shape) == 3 else ""
        raise ValueError(
            f"a step takes {least * config.accumulate:.2g} s or more, over a tenth of time_limit={config.time_limit:g}"
            f" (minutes): raise the limit, or make steps smaller, as with batch_size={half} or"
            f" size={shape[-1]} with fit=tiles{frames}"
        )


def _seconds(objective: nn.Module, batch: Batch, count: int, config: TrainConfig) -> float:
    """Seconds for the gradients of the first examples; the shorter of two times, since the first one compiles."""
    values, *others = (None if each is None else each[:count] for each in batch)
    assert values is not None
    times = []
    for _ in range(2):
        start = time.monotonic()
        with torch.autocast(values.device.type, torch.bfloat16, enabled=config.precision == "bfloat16"):
            loss = objective(values, *others)
        loss.backward()
        if values.is_cuda:
            torch.cuda.synchronize(values.device)
        times.append(time.monotonic() - start)
    return min(times)
