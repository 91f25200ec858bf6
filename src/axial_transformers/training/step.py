"""What learns, and one step of it."""

from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from math import inf
from threading import Lock
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from axial_transformers.data import Examples
from axial_transformers.layers.blocks import blocks_restored, checkpoint_blocks, compile_blocks, modes_kept
from axial_transformers.likelihood.bits import random_slice_loss
from axial_transformers.machine import arithmetic
from axial_transformers.models import AxialTransformer
from axial_transformers.ops.cuda_graphs import Graph
from axial_transformers.ops.elementwise import dropout_seeded
from axial_transformers.ops.torch_private import whole_graphs
from axial_transformers.training.batches import Batch, Purpose, batches, random_bits, send
from axial_transformers.training.checkpoints import Checkpoints, Weights
from axial_transformers.training.config import TrainConfig
from axial_transformers.training.metrics import Meter, forget_peak_memory
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
    copy_with_tensors,
    copy_without_weights,
    gather_tensors,
    local_shard,
    parallelise,
    synchronise_gradients,
)
from axial_transformers.training.processes import Processes
from axial_transformers.training.run_state import RunState, TimeLimit, renew_limit

STEPS_BETWEEN_WAITS = 10
"""Steps between reading losses from an accelerator, and between asking all processes whether to end.

Both wait for the device, whose queue of work must not run empty.
"""


@dataclass
class Learner:
    """A model that learns, in the processes of a run; `prepare_learner` makes one, `step` makes its next step."""

    config: TrainConfig
    processes: Processes
    weights: Weights
    """Weights, EMA weights and moments: with the state, what a checkpoint holds."""
    state: RunState
    objective: nn.Module
    """The loss as a module of the model, replicated or in shards."""
    skeleton: AxialTransformer
    """A copy of the model on the meta device, without weights."""
    batches_from: Callable[[int], Generator[Batch, None, None]]
    """Returns the batches of the steps from a number on."""
    batches: Generator[Batch, None, None]
    meter: Meter
    time: TimeLimit
    learning_rate: float = 0.0
    """That of the newest step."""
    graph: Graph | None = None
    """With `cuda_graph`, the step that is recorded."""

    def average(self, keep: bool, device: torch.device | None = None) -> AxialTransformer:
        """Return the EMA weights as a model that this process can use alone; a collective operation.

        All processes must call it at the same step: if weights are in shards, each tensor is gathered from all.

            weights      keep    result
            not sharded  any     the EMA model itself, not a copy
            in shards    True    a new model with whole tensors
            in shards    False   the skeleton, without weights, which nobody reads

        Args:
            keep: True where the process computes with the result.
            device: where gathered tensors go, one by one; None: they stay on the device of the shards.
        """
        if not (self.config.shard and self.processes.count > 1):
            return self.weights.average
        tensors = gather_tensors(self.weights.average.state_dict(), keep, device)
        return copy_with_tensors(self.skeleton, tensors) if keep else self.skeleton

    def go_back(self, checkpoints: Checkpoints) -> None:
        """Return to the state before the steps that were left out (`run_state`); a collective operation."""
        self.batches.close()
        checkpoints.go_back(self.weights, self.state)
        self.graph = None  # it has the moments of before
        self.batches = self.batches_from(self.state.step)

    def is_finite(self) -> bool:
        """Return True if the state is finite in every process; a collective operation."""
        finite = True
        for tensors in self.weights.tensors().values():
            for tensor in tensors.values():
                finite = finite and bool(local_shard(tensor).isfinite().all())
        return not self.processes.any(not finite)

    def line(self) -> dict[str, float]:
        """Return the next line of metrics.jsonl, over the steps since the line before."""
        return {
            **self.meter.line(),
            "learning_rate": self.learning_rate,
            "seconds": self.state.seconds,
        }

    def read_time(self) -> None:
        """Read the clock of the first process for all, since rates and the end follow it; a collective operation."""
        self.state.seconds = self.processes.broadcast(self.time.seconds)

    def close(self) -> None:
        """End the prefetch, and release what refers to the process group."""
        self.batches.close()
        del self.objective


_CHANGES_SETTINGS = Lock()


@contextmanager
def train_alone(config: TrainConfig, device: torch.device) -> Iterator[None]:
    """Refuse a second run in another thread, where steps change settings or generators of the whole process.

    Runs on a CPU without compiled blocks change none, and may train beside each other.

    Raises:
        ValueError: another thread trains so.
    """
    if device.type == "cpu" and not config.compile:
        yield
        return
    if not _CHANGES_SETTINGS.acquire(blocking=False):
        raise ValueError(
            "another thread of this process trains already on a device or with compiled blocks: train in a process of "
            "its own, or on the CPU with training.compile=False"
        )
    try:
        yield
    finally:
        _CHANGES_SETTINGS.release()


@contextmanager
def borrow(model: AxialTransformer) -> Iterator[None]:
    """Give the model back as it came, but for its weights: its device, and mode and `forward` of each part.

    Gradients go. A model in shards stays in shards on the devices.
    """
    home = model.device
    with modes_kept(model), blocks_restored(model):
        try:
            yield
        finally:
            model.zero_grad()
            if not any(isinstance(parameter, DTensor) for parameter in model.parameters()):
                model.to(home)


@contextmanager
def frozen_matrices(model: AxialTransformer) -> Iterator[None]:
    """Freeze all weights but vectors, biases and gains, until the end."""
    frozen = [weight for weight in model.parameters() if weight.requires_grad and weight.ndim != 1]
    for weight in frozen:
        weight.requires_grad_(False)
    try:
        yield
    finally:
        for weight in frozen:
            weight.requires_grad_(True)


def prepare_learner(
    model: AxialTransformer,
    examples: Examples,
    config: TrainConfig,
    processes: Processes,
    checkpoints: Checkpoints | None = None,
    loss: Loss = random_slice_loss,
    identity: dict[str, Any] | None = None,
) -> Learner:
    """Return a model in its place on the devices, in the state of the newest checkpoint; a collective operation.

    A model in shards goes there block by block: a device holds at most one whole block beside its shards.

    Args:
        config: without `auto` (`TrainConfig.resolve_auto`).
        processes: entered.
        checkpoints: those of the run; None: begin at step 0.
        loss: see `train`.
        identity: of the run (`RunRecord.identity`), which that of the checkpoints must be.

    Raises:
        ValueError: the checkpoint is of another run.
    """
    device = processes.device
    sharded = config.shard and processes.count > 1
    if not sharded:
        model.to(device)
    processes.broadcast_tensors([*model.train().parameters(), *model.buffers()])
    skeleton = copy_without_weights(model)
    objective = parallelise(Objective(model, loss), processes, sharded, getattr(torch, config.precision))
    tensors = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
    weights = Weights(model, copy_with_tensors(skeleton, tensors), optimizers(model, config))
    state = RunState(identity=identity or {})
    if checkpoints:
        checkpoints.restore(weights, state)
    if config.compile:
        compile_blocks(model)
    if config.checkpoint_blocks:  # compiled blocks are inside checkpointed ones
        checkpoint_blocks(model)
    every = 1 if device.type == "cpu" else STEPS_BETWEEN_WAITS
    meter = Meter(device, config.batch_size, every, state)
    forget_peak_memory(device)  # of the start
    batches_from = partial(batches, examples, model.slices, model.config.num_classes, config, processes)
    return Learner(
        config=config,
        processes=processes,
        weights=weights,
        state=state,
        objective=objective,
        skeleton=skeleton,
        batches_from=batches_from,
        batches=batches_from(state.step),
        meter=meter,
        time=TimeLimit(config.minutes, spent=state.seconds),
    )


def step(learner: Learner) -> None:
    """Make one step: batch, gradients, clip, learning rate, weights, EMA weights; a collective operation.

    Raises:
        NonFiniteLoss: the loss or the gradient of this step, whose weights are untouched, or of one before it.
    """
    config = learner.config
    state = learner.state
    device = learner.processes.device
    graphs = whole_graphs() if config.compile else nullcontext()
    with graphs, arithmetic(device, tf32=True, deterministic=config.deterministic), _dropout(learner):
        limit = state.norm_limit or inf
        share = 1 - ema_decay(state.step, config)
        learner.learning_rate = state.rates * learning_rate(state.step, config, learner.time.share(state.seconds))
        if config.cuda_graph:
            learner.meter.add(state.step + 1, *_step_by_graph(learner, limit, learner.learning_rate, share))
        else:
            nats = _set_gradients(learner)
            norm = clip_gradients(learner.weights.model, config, limit)
            learner.meter.add(state.step + 1, nats, norm)  # or NonFiniteLoss
            _update_weights(learner, learner.learning_rate, share)
    state.step += 1
    waits = state.step % STEPS_BETWEEN_WAITS == 0
    if waits:
        learner.meter.read()
        renew_limit(state, config)
    if waits or learner.processes.count == 1:
        learner.read_time()


def _dropout(learner: Learner) -> AbstractContextManager[None]:
    """Seed dropout anew for the next step of this process: a resume samples the same."""
    number = learner.state.step * learner.processes.count + learner.processes.rank
    seed = int(random_bits(learner.config.seed, Purpose.DROPOUT, number)[0])
    return dropout_seeded(seed, learner.processes.device)


def _set_gradients(learner: Learner) -> Tensor:
    """Set the gradients of the next batch, summed over its parts; return its mean loss over processes, in nats/dim."""
    device = learner.processes.device
    parts = learner.config.accumulate
    learner.weights.model.zero_grad()
    total = torch.zeros((), device=device)
    for number in range(1, parts + 1):
        batch = next(learner.batches).to(device)
        with synchronise_gradients(learner.objective, enabled=number == parts):
            total += _add_gradients(learner, batch)
    return learner.processes.mean(total)


def _add_gradients(learner: Learner, batch: Batch) -> Tensor:
    """Add the gradients of a part of a batch; return its loss divided by the number of parts."""
    config = learner.config
    with config.autocast(learner.processes.device):
        nats = learner.objective(*batch) / config.accumulate
    nats.backward()
    return nats.detach()


def _update_weights(learner: Learner, rate: float | Tensor, share: float | Tensor) -> None:
    """Change the weights by their gradients at a learning rate, then EMA weights by a share of the weights."""
    weights = learner.weights
    step_all(weights.optimizers, learner.config, rate)
    update_average(weights.average, weights.model, share)


def _step_by_graph(learner: Learner, *numbers: float) -> Tensor:
    """Make a step whose work is recorded the first time, and return its loss and gradient norm: [2].

    Args:
        numbers: what differs from step to step besides the batch: limit of the norm, learning rate, share of the
            weights in EMA weights.
    """
    device = learner.processes.device
    batch = next(learner.batches).to(device)
    tensors = {name: tensor for name, tensor in batch._asdict().items() if tensor is not None}

    def work(numbers: Tensor, *given: Tensor) -> Tensor:
        limit, rate, share = numbers
        model = learner.weights.model
        model.zero_grad()
        nats = _add_gradients(learner, batch._replace(**dict(zip(tensors, given))))
        norm = clip_gradients(model, learner.config, limit)
        _update_weights(learner, rate, share)
        return torch.stack((nats, norm))

    inputs = send(torch.tensor(numbers, device="cpu"), device), *tensors.values()
    if learner.graph:
        return learner.graph(*inputs)
    learner.graph = Graph(work, *inputs)  # which makes this step
    return learner.graph.output
