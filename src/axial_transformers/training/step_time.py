"""The measured time of a step and of a run."""

import time
from contextlib import nullcontext
from statistics import median

import numpy as np
import torch
from torch import nn

from axial_transformers.kernels import compilation_time
from axial_transformers.messages import Message
from axial_transformers.models import AxialTransformer
from axial_transformers.ops.cuda_arithmetic import arithmetic
from axial_transformers.ops.torch_private import whole_graphs
from axial_transformers.planning.flops import duration
from axial_transformers.training.batches import Batch, TrainingExamples, batch_at
from axial_transformers.training.checkpoints import Counters
from axial_transformers.training.config import TrainConfig
from axial_transformers.training.processes import Processes

FIRST_STEPS = 10
"""Steps after which the time of a run is told."""
SMOOTHING = 0.98
SHARE = 0.1
"""Of a time limit: the longest step, the longest evaluation, and what is kept for samples until these are timed."""


class Clock:
    """The wall-clock time of a run, over all resumes, without the time in which code compiles."""

    def __init__(self) -> None:
        self._compiled = compilation_time()
        self._zero = time.monotonic() - self._compiled

    @property
    def compiled(self) -> float:
        """Return the seconds in which kernels were compiled since."""
        return compilation_time() - self._compiled

    @property
    def seconds(self) -> float:
        return time.monotonic() - compilation_time() - self._zero

    def add(self, seconds: float) -> None:
        """Count the time before a resume too, or leave time out."""
        self._zero -= seconds


def require_short_steps(
    objective: nn.Module,
    examples: TrainingExamples,
    model: AxialTransformer,
    config: TrainConfig,
    processes: Processes,
    clock: Clock,
) -> None:
    """Raise ValueError where a step takes more than a tenth of the time limit; compile what it needs.

    It times larger and larger parts of a batch: a step takes at least as long as any of them. Compiled blocks compute
    the whole batch at once, since each size would compile again.
    """
    if config.time_limit is None:
        return
    count = config.batch_size // (config.accumulate * processes.count)
    most = 60 * SHARE * config.time_limit / config.accumulate  # seconds, for the examples that are computed at once
    batch = batch_at(examples, model.slices, model.config.num_classes, config, np.arange(count))
    batch, part = batch.to(processes.device), count if config.compile else 1
    if config.compile:
        before = clock.seconds
        _seconds(objective, batch, part, config)
        clock.add(before - clock.seconds)
    while (least := processes.broadcast(_seconds(objective, batch, part, config))) <= most < least * count / part:
        part = min(2 * part, count)
    if least > most:
        half, *shape = (max(1, length // 2) for length in (config.batch_size, *model.config.shape))
        frames = Message(" or {data.frames=}", frames=shape[0]) if len(shape) == 3 else ""
        ways = Message("{batch_size=} or {size=} with {fit=tiles}{}", frames, batch_size=half, size=shape[-1])
        what = f"a step takes {least * config.accumulate:.2g} s or more, over a tenth of"
        text = "{} {time_limit=:g} (minutes): raise the limit, or make steps smaller, as with {}"
        raise ValueError(Message(text, what, ways, time_limit=config.time_limit))


def _seconds(objective: nn.Module, batch: Batch, count: int, config: TrainConfig) -> float:
    """Return the seconds for the gradients of `count` examples: the shorter of two times, since the first compiles."""
    values, *others = (None if each is None else each[:count] for each in batch)
    assert values is not None
    times = []
    for _ in range(2):
        start = time.monotonic()
        graphs = whole_graphs() if config.compile else nullcontext()
        with graphs, arithmetic(values.device, tf32=True, deterministic=config.deterministic):
            with torch.autocast(values.device.type, torch.bfloat16, enabled=config.precision == "bfloat16"):
                loss = objective(values, *others)
            loss.backward()
        if values.is_cuda:
            torch.cuda.synchronize(values.device)
        times.append(time.monotonic() - start)
    return min(times)


class Durations:
    """Seconds of a step, of an evaluation and of sampling, as this process has measured them.

    The time of a step is the median of the first ten, some of which compile; from then on it is a running mean.
    """

    def __init__(self) -> None:
        self.step: float | None = None
        self.evaluation = self.sampling = 0.0
        self._first: list[float] = []

    @property
    def last(self) -> float:
        """Seconds of the evaluation and the samples after the last step."""
        return self.evaluation + self.sampling

    @property
    def are_known(self) -> bool:
        return len(self._first) == FIRST_STEPS

    def add_step(self, seconds: float) -> None:
        if self.are_known and self.step is not None:
            self.step = SMOOTHING * self.step + (1 - SMOOTHING) * seconds
        else:
            self._first.append(seconds)
            self.step = median(self._first)

    def left(self, config: TrainConfig, counters: Counters) -> float:
        """Return the seconds that the rest of a run takes, with evaluations and samples once they are measured."""
        steps = config.steps - counters.step
        left = steps * (self.step or 0.0)
        for seconds, every in ((self.evaluation, config.evaluate_every), (self.sampling, config.sample_every)):
            left += seconds * (config.steps // every - counters.step // every + (config.steps % every > 0))
        return left if config.time_limit is None else min(left, max(0.0, 60 * config.time_limit - counters.seconds))

    def describe_left(self, config: TrainConfig, counters: Counters) -> str:
        seconds, steps = self.left(config, counters), config.steps - counters.step
        within = max(0, round((seconds - self.last) / (self.step or 1.0)))
        if config.time_limit is not None and within < steps:
            return f"{duration(seconds)} left: about {counters.step + within:,} of {config.steps:,} steps"
        durations = {"evaluations": self.evaluation, "samples": self.sampling}
        unknown = " and ".join(name for name, each in durations.items() if not each)
        without = f", without {unknown}" if unknown else ""
        return f"about {duration(seconds)} left for {steps:,} steps of {self.step:.2g} s{without}"
