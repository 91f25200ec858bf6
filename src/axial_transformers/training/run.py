"""A training run: its state, and each of the things that the loop of `training_loop` does with it."""

import ctypes
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from math import ceil, isfinite
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from axial_transformers.layers.blocks import checkpoint_blocks, compile_blocks, restore_blocks
from axial_transformers.likelihood.bits import random_slice_loss
from axial_transformers.likelihood.evaluation import Fill
from axial_transformers.models import AxialTransformer
from axial_transformers.models.baselines.by_name import class_of
from axial_transformers.ops.cuda_arithmetic import arithmetic
from axial_transformers.ops.linear import Library, library
from axial_transformers.ops.torch_private import whole_graphs
from axial_transformers.planning.flops import training_flops
from axial_transformers.planning.machine import matmul_rate
from axial_transformers.training.batches import Purpose, TrainingExamples, batches, random_bits
from axial_transformers.training.checkpoints import Checkpoints, State, newest_checkpoint
from axial_transformers.training.config import TrainConfig
from axial_transformers.training.metrics import (
    VALIDATION,
    Meter,
    Metric,
    MetricsLog,
    NonFiniteLoss,
    forget_peak_memory,
)
from axial_transformers.training.optimizer import (
    clip_gradients,
    ema_decay,
    learning_rate,
    optimizers,
    step_all,
    update_average,
)
from axial_transformers.training.parallelism import (
    Loss,
    Objective,
    full_tensors,
    local_shard,
    parallelise,
    skeleton_of,
    synchronise_gradients,
    with_tensors,
)
from axial_transformers.training.processes import Interrupted, Interrupts, Processes
from axial_transformers.training.run_folder import Fingerprint, MachineRecord, Origin, RunRecord, export, read_run
from axial_transformers.training.run_page import RunPage
from axial_transformers.training.step_time import require_short_steps

Callback = Callable[[AxialTransformer, int], Mapping[str, Metric] | None]
"""Takes the EMA model and the step; may return metrics. Only the first process calls it."""


class Collective(NamedTuple):
    """A callback that all processes call, to share its computations.

    After ten steps it is called once more, with a `fill` that measures one part and ends the call.
    """

    call: Callable[[AxialTransformer, int, Fill], Mapping[str, Metric]]
    """Takes the EMA model, the step and `Processes.fill`; returns equal metrics in every process."""


Ending = Literal["finished", "time limit", "interrupted"]

STEPS_BETWEEN_WAITS = 10
"""Steps between reading losses from an accelerator, and between asking all processes whether to end.

Both wait for the device, whose queue of work must not run empty.
"""


class _MeasuredError(Exception):
    """One part of an evaluation has been measured; the rest is not wanted."""


class Run:
    """A training run, ready for its next step.

    All processes of a run make the same calls in the same order, since most methods are collective operations.

    Args:
        model, examples, config, folder, loss, about, started_from: see `train`, which has checked that they fit and
            holds the folder.
        processes: entered.

    Attributes:
        state: weights, EMA weights, moments and counters: what a checkpoint holds.
        objective: the loss as a module of the model, replicated or in shards.
        skeleton: a copy of the model on the meta device, without weights.
        cut_short: True once an interrupt has ended an evaluation.
    """

    def __init__(
        self,
        model: AxialTransformer,
        examples: TrainingExamples,
        config: TrainConfig,
        folder: Path,
        processes: Processes,
        *,
        loss: Loss = random_slice_loss,
        about: Origin | None = None,
        started_from: str | None = None,
    ) -> None:
        config, self.linear = _resolve_auto(config, folder, processes)
        self.config = config
        self.folder, self.processes, self.device = folder, processes, processes.device
        self.dtype = torch.bfloat16 if config.precision == "bfloat16" else torch.float32
        record = RunRecord(
            data=Fingerprint(fingerprint=examples.fingerprint),
            training=config,
            model=model.config,
            model_name=model.name,
            about=about,
            started_from=started_from,
            examples=len(examples.values),
            machine=MachineRecord.found(self.device, processes.count, self.linear),
        )
        processes.barrier()  # the folder is ready
        self._distribute(model, loss)
        self.checkpoints = Checkpoints(folder, record.identity, processes)
        self.checkpoints.restore(self.state)
        counters = self.state.counters
        if counters.step > config.steps:
            raise ValueError(f"{folder} has made {counters.step} steps already, more than steps={config.steps}")
        self.batches = batches(examples, model.slices, model.config.num_classes, config, processes, counters.step)
        if config.checkpoint_blocks:
            checkpoint_blocks(model)
        full_speed = self._full_speed()
        if counters.step == 0:
            require_short_steps(self.objective, examples, self.skeleton, config, processes)
        if config.compile:
            restore_blocks(model)
            compile_blocks(model)
            if config.checkpoint_blocks:
                checkpoint_blocks(model)
        if processes.rank_zero:
            record.write(folder)
        every = 1 if self.device.type == "cpu" else STEPS_BETWEEN_WAITS
        self.meter = Meter(self.device, config.batch_size, every, counters, full_speed)
        forget_peak_memory(self.device)  # of the measurement
        self.log = MetricsLog(folder if processes.rank_zero else None, counters, config.tensorboard)
        self.page = RunPage(folder if processes.rank_zero else None)
        self.started = time.monotonic() - counters.seconds
        self.interrupts = Interrupts()
        self.cut_short = False
        self.learning_rate = 0.0

    def _distribute(self, model: AxialTransformer, loss: Loss) -> None:
        """Put the model, its EMA weights and the optimizer on the devices: the state before the first step.

        A model in shards goes there block by block: a device holds at most one whole block beside its shards.
        """
        if self.device.type == "cpu":
            (return_freed_memory if self.config.saves_memory else keep_freed_memory)()
        sharded = self.config.shard and self.processes.count > 1
        if not sharded:
            model.to(self.device)
        self.processes.broadcast_tensors(model.train().parameters())
        self.skeleton = skeleton_of(model)
        self.objective = parallelise(Objective(model, loss), self.processes, sharded, self.dtype)
        tensors = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
        self.state = State(model, with_tensors(self.skeleton, tensors), optimizers(model, self.config))

    def _full_speed(self) -> float | None:
        """Return the examples/s at which all FLOPs would run at the rate of matrix products; None for other models."""
        if type(self.skeleton) is not class_of(self.skeleton.config):
            return None
        rate = self.processes.count * matmul_rate(self.device, self.dtype)
        return rate / training_flops(self.skeleton.config)

    def close(self) -> None:
        """End the prefetch, give the model back as it came, and release what refers to the process group."""
        self.batches.close()
        restore_blocks(self.state.model)
        del self.objective

    def ending(self) -> Ending | None:
        """Return why the run ends now, or None. Several processes agree only every few steps."""
        counters, limit = self.state.counters, self.config.time_limit
        if counters.step >= self.config.steps:
            return "finished"
        if self.cut_short:
            return "interrupted"
        if self.processes.count > 1 and counters.step % STEPS_BETWEEN_WAITS:
            return None
        if limit is not None and self.processes.any(counters.seconds >= 60 * limit):
            return "time limit"
        return "interrupted" if self.processes.any(self.interrupts.asked) else None

    def update(self) -> None:
        """Make one step: batch, gradients, clip, learning rate, weights, EMA weights."""
        state, config, step = self.state, self.config, self.state.counters.step
        # Seeded anew each step: a resume samples the same dropout, whatever evaluations sampled in between.
        number = step * self.processes.count + self.processes.rank
        torch.manual_seed(int(random_bits(config.seed, Purpose.DROPOUT, number)[0]))
        graphs = whole_graphs() if config.compile else nullcontext()
        with graphs, arithmetic(self.device, tf32=True, deterministic=config.deterministic):
            state.model.zero_grad()
            nats = self._accumulate_gradients()
            self._measure(step + 1, nats, clip_gradients(state.model, config))
            self.learning_rate = learning_rate(step, config, state.counters.clock)
            step_all(state.optimizers, config, self.learning_rate)
            update_average(state.average, state.model, ema_decay(step, config))
        state.counters.step = step + 1
        self._read_clock()

    def metrics(self) -> dict[str, float]:
        """Return the next line of metrics.jsonl, over the steps since the line before."""
        counters = self.state.counters
        return {
            **self.meter.line(),
            "learning_rate": self.learning_rate,
            "seconds": counters.seconds,
        }

    def save(self) -> None:
        """Write a checkpoint; export its average if no evaluation has chosen one."""
        with self.meter.paused():  # reads the losses first: nothing that is not finite is ever saved
            if not self._is_finite():
                step = self.state.counters.step
                raise self._diverged(step, f"step {step} left weights that are not finite")
            self.checkpoints.save(self.state)
            if self.state.counters.best_step is None:
                self._export()

    def evaluation_due(self) -> bool:
        step = self.state.counters.step
        return step > 0 and step % self.config.evaluate_every == 0 and step != self.state.counters.evaluated_step

    def evaluate(self, callback: Callback | Collective) -> None:
        """Save, evaluate the EMA weights, and export them if they are the best.

        After an interrupt, a resume begins with the evaluation.
        """
        self.save()
        counters = self.state.counters
        metrics = self.call(callback, VALIDATION)
        if self.processes.any(metrics is None):
            self.cut_short = True
            return
        assert metrics is not None
        bits_per_dim = self.processes.broadcast(float(metrics["bits_per_dim"]) if self.processes.rank_zero else 0.0)
        counters.evaluated_step = counters.step
        if not isfinite(bits_per_dim):
            if self.processes.rank_zero:
                said = f"step {counters.step} is evaluated to bits_per_dim {bits_per_dim:g}, which is no best one"
                warnings.warn(said, stacklevel=2)
        elif counters.best_bits_per_dim is None or bits_per_dim < counters.best_bits_per_dim:
            counters.best_step, counters.best_bits_per_dim = counters.step, bits_per_dim
            self._export()
        self.checkpoints.save(self.state)

    def measure_evaluation(self, callback: Callback | Collective | None) -> None:
        """Estimate the time of an evaluation from one part of it; a collective operation."""
        durations = self.meter.durations
        if not isinstance(callback, Collective) or durations.evaluation:
            return

        def fill(whole: Tensor, parts: Iterable[slice], compute: Callable[[slice], Tensor]) -> Tensor:
            first, *others = parts
            compute(first)  # which may compile
            start = time.monotonic()
            compute(first)
            durations.evaluation = (time.monotonic() - start) * ceil((1 + len(others)) / self.processes.count)
            raise _MeasuredError

        average = self._average(keep=True)
        with self.meter.paused(), torch.no_grad(), suppress(_MeasuredError):
            callback.call(average, self.state.counters.step, fill)

    def call(self, callback: Callback | Collective, prefix: str = "") -> Mapping[str, Metric] | None:
        """Call back with the EMA weights, and log its metrics; None after an interrupt."""
        step, start = self.state.counters.step, time.monotonic()
        average = self._average(keep=self.processes.rank_zero or isinstance(callback, Collective))
        with self.meter.paused(), torch.no_grad():
            metrics = self._metrics_of(callback, average, step)
        if prefix == VALIDATION:
            self.meter.durations.evaluation = time.monotonic() - start
        else:
            self.meter.durations.sampling = time.monotonic() - start
        if metrics:
            self.log.write(step, {prefix + name: value for name, value in metrics.items()})
        with self.meter.paused():
            self.page.write(self.status("training"))
        return metrics

    def status(self, state: str) -> str:
        """Return the state, the step and the time of the run in words, for its page."""
        counters, steps = self.state.counters, self.config.steps
        return f"{state}, step {counters.step:,} of {steps:,} after {timedelta(seconds=round(counters.seconds))}"

    def _metrics_of(
        self, callback: Callback | Collective, average: AxialTransformer, step: int
    ) -> Mapping[str, Metric] | None:
        if isinstance(callback, Collective):
            try:
                return callback.call(average, step, partial(self.processes.fill, interrupts=self.interrupts))
            except Interrupted:
                return None
        return self.interrupts.until_asked(lambda: callback(average, step) or {}) if self.processes.rank_zero else {}

    def _read_clock(self) -> None:
        counters, several = self.state.counters, self.processes.count > 1
        counters.seconds = time.monotonic() - self.started
        if several and counters.step % STEPS_BETWEEN_WAITS:
            return
        counters.clock = self.processes.broadcast(counters.seconds) if several else counters.seconds

    def _accumulate_gradients(self) -> Tensor:
        config = self.config
        total = torch.zeros((), device=self.device)
        for part in range(1, config.accumulate + 1):
            with self.meter.waiting_for_data():
                batch = next(self.batches).to(self.device)
            with synchronise_gradients(self.objective, enabled=part == config.accumulate):
                with torch.autocast(self.device.type, torch.bfloat16, enabled=config.precision == "bfloat16"):
                    nats = self.objective(*batch) / config.accumulate
                nats.backward()
            total += nats.detach()
        return self.processes.mean(total)

    def _average(self, keep: bool, device: torch.device | None = None) -> AxialTransformer:
        """Return the EMA weights as a model that this process can use alone; a collective operation.

        All processes must call it at the same step: if weights are in shards, each tensor is gathered from all.

            weights      keep    result
            not sharded  any     the EMA model of the state itself, not a copy
            in shards    True    a new model with whole tensors
            in shards    False   the skeleton, without weights, which nobody reads

        Args:
            keep: True where the process computes with the result. In a `Collective` all do; else the first one only.
            device: where gathered tensors go, one by one; None: they stay on the device of the shards.
        """
        if not (self.config.shard and self.processes.count > 1):
            return self.state.average
        tensors = full_tensors(self.state.average.state_dict(), keep, device)
        return with_tensors(self.skeleton, tensors) if keep else self.skeleton

    def _export(self) -> None:
        average = self._average(self.processes.rank_zero, torch.device("cpu"))
        if self.processes.rank_zero:
            export(average, self.folder)

    def _measure(self, step: int, nats: Tensor, norm: Tensor) -> None:
        try:
            self.meter.add(step, nats, norm)
        except NonFiniteLoss as error:
            if error.step == step and self._is_finite():  # noticed before the weights were touched
                self.checkpoints.save(self.state)
            raise self._diverged(error.step, str(error)) from None

    def _is_finite(self) -> bool:
        """Return True if the state is finite in every process; a collective operation."""
        tensors = [local_shard(each) for own in self.state.held().values() for each in own.values()]
        return not self.processes.any(not all(bool(each.isfinite().all()) for each in tensors))

    def _diverged(self, step: int, what: str) -> NonFiniteLoss:
        kept = newest_checkpoint(self.folder)
        state = f"the last good state is in {kept}" if kept else "no state had been saved yet"
        return NonFiniteLoss(step, f"{what}: try a smaller learning rate; {state}")


def _resolve_auto(config: TrainConfig, folder: Path, processes: Processes) -> tuple[TrainConfig, Library]:
    """Return the settings without `auto`, and the library of linear layers; the first process chooses for all.

    Processors of several machines may differ. A resume keeps what its run began with.
    """
    record = read_run(folder) if processes.rank_zero else None
    config = config.resolve_auto(None if record is None else record.training)
    half = processes.broadcast(float(config.precision == "bfloat16"))
    config = replace(config, precision="bfloat16" if half else "float32")
    libraries: tuple[Library, ...] = get_args(Library)
    first = libraries.index(library() if record is None else record.machine.linear)
    return config, libraries[int(processes.broadcast(float(first)))]


M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_MMAP_MAX = -1, -3, -4
"""Options of malloc, numbered as in glibc's malloc.h."""


def keep_freed_memory() -> None:
    """Make glibc keep freed memory for later tensors, for speed.

    By default, a large tensor gets new pages at every step, and the system fills them with zeros. That took 6 to 19 %
    of a step when this was written. With no mmap (M_MMAP_MAX = 0) tensors come from the heap, and with M_TRIM_THRESHOLD
    = -1 the heap never shrinks.
    """
    _set({M_MMAP_MAX: 0, M_TRIM_THRESHOLD: -1})


def return_freed_memory() -> None:
    """Make glibc return freed memory to the system at once, for runs that save memory (`TrainConfig.saves_memory`).

    If it were kept, tensors that come and go between others would leave gaps that no other tensor fits: a step took 2
    to 4.5 times the memory of its tensors (`experiments/EXPERIMENTS.md`, "Memory that a step adds on a CPU").
    Tensors of 1 MiB and more get pages of their own by mmap, which freeing returns; the rest of the heap shrinks from
    128 KiB of free memory on.
    """
    _set({M_MMAP_THRESHOLD: 1 << 20, M_MMAP_MAX: 1 << 16, M_TRIM_THRESHOLD: 1 << 17})


def _set(options: dict[int, int]) -> None:
    if sys.platform == "linux":
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
        if mallopt is not None:
            for option, value in options.items():
                mallopt(option, value)
