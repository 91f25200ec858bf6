"""Adam and Muon, their learning rates, and the running average of the weights."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils import get_total_norm
from torch.optim import Adam, Optimizer

from axial_transformers.layers.blocks import matrices_of_blocks
from axial_transformers.likelihood.bits import LOG2
from axial_transformers.torch_private import lerp_each_in_place, multiply_each
from axial_transformers.training.config import TrainConfig
from axial_transformers.training.muon import Muon
from axial_transformers.training.parallelism import local_shard, sharded_like, sum_over_shards

WARMUP_SHARE = 8
"""A warm-up whose length is not set takes at most one in so many steps of a run."""


def schedule_position(step: int, clock: float, config: TrainConfig) -> float:
    """Place of the update from `step` to `step + 1` in the schedule, 0 .. config.steps: of steps or of time.

    Args:
        step: updates made.
        clock: seconds spent, as `Counters.clock`.
        config: with a time limit, time moves the schedule on where it is ahead of the steps.
    """
    if config.time_limit is None:
        return step
    return max(step, config.steps * min(1.0, clock / (60 * config.time_limit)))


def learning_rate(step: int, config: TrainConfig, clock: float = 0.0) -> float:
    """The learning rate of the update from `step` to `step + 1`, a pure function of what a checkpoint records."""
    position = schedule_position(step, clock, config)
    rises = [(step, config.longest_warmup), (position, config.steps // WARMUP_SHARE)]
    if config.warmup_steps is not None:
        rises = [(step, config.warmup_steps)]
    rate = config.learning_rate
    if all(at < length for at, length in rises):
        rate = max(rate * min(at + (not config.as_released), length) / length for at, length in rises)
    if config.schedule == "constant":
        return rate
    warmup = min(length for _, length in rises)
    progress = min(1.0, max(0.0, (position - warmup) / max(1, config.steps - warmup)))
    return rate * (1 - progress if config.schedule == "linear" else 0.5 * (1 + math.cos(math.pi * progress)))


def ema_decay(step: int, config: TrainConfig) -> float:
    """The decay of the average at the update from `step` to `step + 1`."""
    return config.ema_decay if config.as_released else min(config.ema_decay, (1 + step) / (10 + step))


def optimisers(model: nn.Module, config: TrainConfig) -> list[Optimizer]:
    """Adam over all of the model's parameters; or Muon over the matrices of its blocks, and Adam over the others."""
    matrices = matrices_of_blocks(model) if config.optimiser == "muon" else {}
    others = [parameter for parameter in model.parameters() if parameter not in matrices]
    fused = others[0].device.type in ("cpu", "cuda")
    found: list[Optimizer] = [Adam(others, lr=config.learning_rate, betas=config.betas, fused=fused)]
    if matrices:
        dtype = torch.bfloat16 if config.precision == "bfloat16" else torch.float32
        found.append(Muon(matrices.items(), config.muon_learning_rate, dtype=dtype))
    return found


def step_all(optimisers: Sequence[Optimizer], config: TrainConfig, rate: float) -> None:
    """Changes the weights at a learning rate of Adam, and at the same share of Muon's."""
    for optimiser in optimisers:
        muon = isinstance(optimiser, Muon)
        for group in optimiser.param_groups:
            group["lr"] = config.muon_learning_rate * (rate / config.learning_rate) if muon else rate
        optimiser.step()


def clip_gradients(model: nn.Module, config: TrainConfig) -> Tensor:
    """Scales the gradients of the loss in nats/dim so that their global norm is at most `clip_norm`.

    Returns:
        Their norm before: a scalar, the same in every process. With `as_released`, norms are those of the loss in bits.
    """
    nats = LOG2 if config.as_released else 1.0
    sharded = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    gradients = [*map(local_shard, sharded)]
    norm = get_total_norm(gradients)
    if any(each is not other for each, other in zip(sharded, gradients, strict=True)):
        norm = sum_over_shards(norm.square(), sharded[0]).sqrt()
    limit = config.clip_norm * nats
    multiply_each(gradients, (limit / (norm + 1e-6)).clamp(max=1.0))
    return norm / nats


@torch.no_grad()
def update_average(average: nn.Module, model: nn.Module, decay: float) -> None:
    """average <- decay * average + (1 - decay) * model, for parameters; buffers are copied."""
    lerp_each_in_place([*map(local_shard, average.parameters())], [*map(local_shard, model.parameters())], 1 - decay)
    for old, new in zip(average.buffers(), model.buffers(), strict=True):
        old.copy_(new)


def moments(model: nn.Module, optimisers: Sequence[Optimizer]) -> dict[str, Tensor]:
    """The optimisers' state by the parameters' names ("head.weight.exp_avg"), sharded as they are; zeros before any
    gradient."""
    states = {parameter: state for each in optimisers for parameter, state in each.state.items()}
    found = {
        f"{name}.{kind}": tensor
        for name, parameter in model.named_parameters()
        for kind, tensor in states.get(parameter, {}).items()
    }
    expected = expected_moments(model, optimisers)
    return {name: found[name] if name in found else torch.zeros_like(like) for name, like in expected.items()}


def expected_moments(model: nn.Module, optimisers: Sequence[Optimizer]) -> dict[str, Tensor]:
    """Tensors of the names and shapes that `moments` has."""
    kinds = {
        parameter: ("momentum_buffer",) if isinstance(each, Muon) else ("step", "exp_avg", "exp_avg_sq")
        for each in optimisers
        for group in each.param_groups
        for parameter in group["params"]
    }
    return {
        f"{name}.{kind}": torch.zeros(()) if kind == "step" else parameter
        for name, parameter in model.named_parameters()
        for kind in kinds[parameter]
    }


def set_moments(model: nn.Module, optimisers: Sequence[Optimizer], tensors: dict[str, Tensor]) -> None:
    """The inverse of `moments`."""
    owners = {parameter: each for each in optimisers for group in each.param_groups for parameter in group["params"]}
    parameters = dict(model.named_parameters())
    for key, tensor in tensors.items():
        name, _, kind = key.rpartition(".")
        parameter = parameters[name]
        state = owners[parameter].state[parameter]
        state[kind] = (sharded_like(tensor, parameter) if tensor.ndim else tensor).to(parameter.device)
