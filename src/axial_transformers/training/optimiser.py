"""Adam, its learning rate, and the running average of the weights."""

import math

import torch
from torch import Tensor, nn
from torch.nn.utils import get_total_norm
from torch.optim import Adam, Optimizer

from axial_transformers.likelihood.bits import LOG2
from axial_transformers.training.config import TrainConfig
from axial_transformers.training.parallelism import local_shard, sharded_like, sum_over_shards

WARMUP_SHARE = 8
"""A warm-up whose length is not set takes at most one in so many steps of a run."""


def schedule_position(step: int, clock: float | None, config: TrainConfig) -> float:
    """Place of the update from `step` to `step + 1` in the schedule, 0 .. config.steps: of steps or of time.

    Args:
        step: updates made.
        clock: seconds spent, as `Counters.clock`; None: only the steps count.
        config: with a time limit, time moves the schedule on where it is ahead of the steps.
    """
    if clock is None or config.time_limit is None:
        return step
    return max(step, config.steps * min(1.0, clock / (60 * config.time_limit)))


def learning_rate(step: int, config: TrainConfig, clock: float | None = None) -> float:
    """The learning rate of the update from `step` to `step + 1`, a pure function of what a checkpoint records."""
    position = schedule_position(step, clock, config)
    rises = [(step, config.longest_warmup), (position, config.steps // WARMUP_SHARE)]
    if config.warmup_steps is not None:
        rises = [(step, config.warmup_steps)]
    rate = config.learning_rate
    if all(at < length for at, length in rises):
        rate = max(rate * min(at + config.warmup_first_step, length) / length for at, length in rises)
    if config.schedule == "constant":
        return rate
    warmup = min(length for _, length in rises)
    progress = (position - warmup) / max(1, config.steps - warmup)
    return rate * 0.5 * (1 + math.cos(math.pi * min(1.0, max(0.0, progress))))


def ema_decay(step: int, config: TrainConfig) -> float:
    """The decay of the average at the update from `step` to `step + 1`."""
    return min(config.ema_decay, (1 + step) / (10 + step)) if config.ema_warmup else config.ema_decay


def adam(model: nn.Module, config: TrainConfig) -> Optimizer:
    """Adam over all of the model's parameters, in one fused kernel where torch has it."""
    fused = next(model.parameters()).device.type in ("cpu", "cuda")
    return Adam(model.parameters(), lr=config.learning_rate, betas=config.betas, fused=fused)


def clip_gradients(model: nn.Module, config: TrainConfig) -> Tensor:
    """Scales the gradients of the loss in nats/dim so that their global norm is at most `clip_norm` in `clip_unit`.

    Returns:
        Their norm before, in that unit: a scalar, the same in every process.
    """
    nats = {"nats": 1.0, "bits": LOG2}[config.clip_unit]
    sharded = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    gradients = [*map(local_shard, sharded)]
    norm = get_total_norm(gradients)
    if any(each is not other for each, other in zip(sharded, gradients, strict=True)):
        norm = sum_over_shards(norm.square(), sharded[0]).sqrt()
    limit = config.clip_norm * nats
    torch._foreach_mul_(gradients, (limit / (norm + 1e-6)).clamp(max=1.0))
    return norm / nats


@torch.no_grad()
def update_average(average: nn.Module, model: nn.Module, decay: float) -> None:
    """average <- decay * average + (1 - decay) * model, for parameters; buffers are copied."""
    torch._foreach_lerp_([*map(local_shard, average.parameters())], [*map(local_shard, model.parameters())], 1 - decay)
    for old, new in zip(average.buffers(), model.buffers(), strict=True):
        old.copy_(new)


def moments(model: nn.Module, optimiser: Optimizer) -> dict[str, Tensor]:
    """Adam's state by the parameters' names ("head.weight.exp_avg"), sharded as they are; zeros before any gradient."""
    found = {
        f"{name}.{kind}": tensor
        for name, parameter in model.named_parameters()
        for kind, tensor in optimiser.state.get(parameter, {}).items()
    }
    return {
        name: found[name] if name in found else torch.zeros_like(like) for name, like in expected_moments(model).items()
    }


def expected_moments(model: nn.Module) -> dict[str, Tensor]:
    """Tensors of the names and shapes that `moments` has."""
    return {
        f"{name}.{kind}": torch.zeros(()) if kind == "step" else parameter
        for name, parameter in model.named_parameters()
        for kind in ("step", "exp_avg", "exp_avg_sq")
    }


def set_moments(model: nn.Module, optimiser: Optimizer, tensors: dict[str, Tensor]) -> None:
    """The inverse of `moments`."""
    index = {name: (i, parameter) for i, (name, parameter) in enumerate(model.named_parameters())}
    state: dict[int, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        name, _, kind = key.rpartition(".")
        number, parameter = index[name]
        state.setdefault(number, {})[kind] = sharded_like(tensor, parameter) if tensor.ndim else tensor
    optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})
