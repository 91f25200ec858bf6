"""Adam and Muon (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon), learning rates, EMA weights."""

import math
from collections.abc import Iterable, Iterator, Sequence
from math import sqrt
from typing import Any

import torch
import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils import get_total_norm
from torch.optim import Adam, Optimizer

from axial_transformers.layers.blocks import block_matrices
from axial_transformers.likelihood.bits import LOG2
from axial_transformers.models import AxialTransformer
from axial_transformers.ops.torch_private import add_to_each, lerp_each, lerp_each_in_place, multiply_each
from axial_transformers.training.config import TrainConfig
from axial_transformers.training.parallelism import local_shard, shard_like, sum_over_shards

MOMENTUM = 0.95
ITERATIONS = 5
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""X <- a X + (b G + c G^2) X with G = X X^T takes singular values in (0, 1] to about 0.7 .. 1.2."""
FLOOR = 0.1
"""Least norm by which a matrix is divided before it is orthogonalised, in nats/dim per unit of weight. Singular values
below a 500th of that, 3.4445^-5, stay small: they are noise, of which a full step would be a step at random."""
MAX_NUMBERS = 2**22
"""Most numbers orthogonalised at a time; bounds the memory."""


class Muon(Optimizer):
    """Steps along the orthogonalised momentum of each matrix.

    M <- MOMENTUM * M + (1 - MOMENTUM) * gradient
    W <- (1 - lr * weight_decay) * W
    W <- W - lr * sqrt(max(1, rows / columns)) * orthogonalise(MOMENTUM * M + (1 - MOMENTUM) * gradient)

    Unlike in torch.optim.Muon, a parameter can stack several matrices. Processes with copies of one model divide the
    matrices.

    Args:
        parameters: each with its number of stacked matrices.
        lr: about the spectral norm of each step.
        dtype: of the products.
    """

    def __init__(
        self,
        parameters: Iterable[tuple[Tensor, int]],
        lr: float,
        weight_decay: float = 0.0,
        dtype: torch.dtype = torch.bfloat16,
    ) -> None:
        alike: dict[tuple[int, int, int], list[Tensor]] = {}
        for parameter, count in parameters:
            rows, columns = parameter.shape
            alike.setdefault((count, rows // count, columns), []).append(parameter)
        groups = [{"params": tensors, "matrices": shape} for shape, tensors in alike.items()]
        super().__init__(groups, {"lr": lr, "weight_decay": weight_decay})
        self.dtype = dtype

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        processes = dist.get_world_size() if dist.is_initialized() else 1
        begun: list[tuple[dict[str, Any], list[Tensor], Tensor, dist.Work | None]] = []
        for group in self.param_groups:
            with_gradients = [parameter for parameter in group["params"] if parameter.grad is not None]
            for parameters in _split(with_gradients):
                ahead = self._momentum(parameters).to(self.dtype)
                owner = len(begun) % processes
                if processes == 1 or owner == dist.get_rank():
                    matrices = ahead.view(-1, *group["matrices"][1:])
                    ahead = orthogonalise(matrices).reshape(ahead.shape)
                sent = None
                if processes > 1:
                    ahead = ahead.contiguous()  # gloo sends the storage as it lies, and tall matrices come transposed
                    sent = dist.broadcast(ahead, owner, async_op=True)
                begun.append((group, parameters, ahead, sent))
        for group, parameters, steps, sent in begun:
            if sent:
                sent.wait()
            _, rows, columns = group["matrices"]
            rate = group["lr"] * sqrt(max(1.0, rows / columns))
            multiply_each(parameters, 1 - group["lr"] * group["weight_decay"])
            add_to_each(parameters, steps.to(parameters[0].dtype).unbind(), -rate)

    def _momentum(self, parameters: list[Tensor]) -> Tensor:
        """Update the momenta of parameters of one shape; return MOMENTUM * M + (1 - MOMENTUM) * gradient, stacked."""
        gradients: list[Any] = [parameter.grad for parameter in parameters]
        momenta = []
        for parameter in parameters:
            state = self.state[parameter]
            if not state:
                state["momentum_buffer"] = torch.zeros_like(parameter)
            momenta.append(state["momentum_buffer"])
        lerp_each_in_place(momenta, gradients, 1 - MOMENTUM)
        return torch.stack(lerp_each(gradients, momenta, MOMENTUM))


def orthogonalise(matrices: Float[Tensor, "n r c"]) -> Float[Tensor, "n r c"]:
    """Return about U V^T of each matrix U S V^T [N, rows, columns]: singular values 0.7 to 1.2, except of tiny S.

    S is tiny below a 500th of its norm, or of FLOOR.
    """
    a, b, c = COEFFICIENTS
    if matrices.shape[-2] > matrices.shape[-1]:
        return orthogonalise(matrices.mT).mT
    x = matrices / torch.linalg.matrix_norm(matrices, keepdim=True).clamp(min=FLOOR)
    for _ in range(ITERATIONS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x


def _split(parameters: list[Tensor]) -> Iterator[list[Tensor]]:
    size = max(1, MAX_NUMBERS // parameters[0].numel()) if parameters else 1
    for start in range(0, len(parameters), size):
        yield parameters[start : start + size]


WARMUP_SHARE = 8


def learning_rate(step: int, config: TrainConfig, share_of_time: float = 0.0) -> float:
    """Return the learning rate of the update from `step` to `step + 1`: a function of what a checkpoint holds.

    Args:
        share_of_time: `TimeLimit.share`; it moves the schedule where it is ahead of the steps.
    """
    position = max(step, config.steps * share_of_time)
    most = config.steps // WARMUP_SHARE
    rate = config.learning_rate
    if step < config.warmup_steps and position < most:
        begun = 0 if config.as_released else 1
        by_steps = rate * (step + begun) / config.warmup_steps
        by_share = rate * min(position + begun, most) / most
        rate = max(by_steps, by_share)
    if config.schedule == "constant":
        return rate
    warmup = min(config.warmup_steps, most)
    progress = max(0.0, (position - warmup) / (config.steps - warmup))
    if config.schedule == "linear":
        return rate * (1 - progress)
    return rate * (0.5 * (1 + math.cos(math.pi * progress)))


RISE = 20
"""How the decay of EMA weights rises: after t steps, they are a mean over about the newest t / RISE. With 10 they lag
behind where bits fall fast, with 40 they are worse where a model learns by heart (experiments/EXPERIMENTS.md)."""


def ema_decay(step: int, config: TrainConfig) -> float:
    """Return the decay of the EMA weights in the update from `step` to `step + 1`."""
    if config.as_released:
        return config.ema_decay
    return min(config.ema_decay, (1 + step) / (RISE + step))


def optimizers(model: AxialTransformer, config: TrainConfig) -> list[Optimizer]:
    """Return Adam; or Muon for the matrices of the blocks, and Adam for the rest."""
    matrices = block_matrices(model) if config.optimizer == "muon" else {}
    head = [parameter for layer in model.head.last_layers() for parameter in layer.parameters()]
    apart = {*matrices, *head}
    others = [parameter for parameter in model.parameters() if parameter not in apart]
    share = (config.head_learning_rate or config.learning_rate) / config.learning_rate
    groups: list[dict[str, Any]] = [{"params": others}, {"params": head, "share": share}]
    fused = others[0].device.type in ("cpu", "cuda")
    adam = Adam(groups, config.learning_rate, config.betas, fused=fused, capturable=config.cuda_graph)
    if not matrices:
        return [adam]
    muon = Muon(
        matrices.items(),
        config.muon_learning_rate,
        weight_decay=config.muon_weight_decay,
        dtype=getattr(torch, config.precision),
    )
    return [adam, muon]


def step_all(optimizers: Sequence[Optimizer], config: TrainConfig, rate: float | Tensor) -> None:
    """Change the weights at a learning rate of Adam, and at the same share of Muon's."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            if isinstance(optimizer, Muon):
                group["lr"] = config.muon_learning_rate * (rate / config.learning_rate)
            else:
                group["lr"] = rate * group.get("share", 1.0)
        optimizer.step()


def clip_gradients(model: nn.Module, config: TrainConfig, limit: float | Tensor = math.inf) -> Tensor:
    """Scale the gradients of the loss in nats/dim so that their global norm is at most `clip_norm`; to 0 above `limit`.

    Returns:
        Their norm before, a scalar, equal in all processes. With `as_released`, norms are of the loss in bits/dim.
    """
    nats = LOG2 if config.as_released else 1.0
    whole = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    gradients = [*map(local_shard, whole)]
    norm = get_total_norm(gradients)
    if gradients and gradients[0] is not whole[0]:
        norm = sum_over_shards(norm.square(), whole[0]).sqrt()
    factor = (config.clip_norm * nats / (norm + 1e-6)).clamp(max=1.0)
    norm = norm / nats
    multiply_each(gradients, factor.masked_fill(norm > limit, 0.0))
    return norm


@torch.no_grad()
def update_average(average: nn.Module, model: nn.Module, share: float | Tensor) -> None:
    """Set average <- (1 - share) * average + share * model for parameters; copy the buffers."""
    averages = [*map(local_shard, average.parameters())]
    shares = [share] * len(averages) if isinstance(share, Tensor) else share
    lerp_each_in_place(averages, [*map(local_shard, model.parameters())], shares)
    for old, new in zip(average.buffers(), model.buffers()):
        old.copy_(new)


def moments(model: nn.Module, optimizers: Sequence[Optimizer]) -> dict[str, Tensor]:
    """Return the optimizers' state by parameter ("head.weight.exp_avg"), sharded alike; zeros before any gradient."""
    tensors = {}
    for name, kind, parameter, state in _moments_by_name(model, optimizers):
        tensor = state.get(kind)
        if tensor is None:
            tensor = torch.zeros((), device="cpu") if kind == "step" else torch.zeros_like(parameter)
        tensors[name] = tensor
    return tensors


def set_moments(model: nn.Module, optimizers: Sequence[Optimizer], tensors: dict[str, Tensor]) -> None:
    """Invert `moments`."""
    for name, kind, parameter, state in _moments_by_name(model, optimizers):
        tensor = tensors[name]
        if tensor.ndim:
            tensor = shard_like(tensor, parameter)
        state[kind] = tensor.to(parameter.device)


def _moments_by_name(
    model: nn.Module, optimizers: Sequence[Optimizer]
) -> Iterator[tuple[str, str, Tensor, dict[str, Tensor]]]:
    """Yield the name of each moment, its kind, the parameter, and the optimizer's state of this."""
    names = {parameter: name for name, parameter in model.named_parameters()}
    for optimizer in optimizers:
        kinds = ["momentum_buffer"] if isinstance(optimizer, Muon) else ["step", "exp_avg", "exp_avg_sq"]
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                for kind in kinds:
                    yield f"{names[parameter]}.{kind}", kind, parameter, optimizer.state[parameter]
