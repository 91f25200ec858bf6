"""How a model lies on its processes: whole on each (DDP), or each holding a share of every tensor (FSDP2)."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from axial_transformers.layers.blocks import TransformerBlock
from axial_transformers.training.processes import Processes


class Objective(nn.Module):
    """A model's loss as a module whose forward is the whole step, which is what DDP and FSDP2 attach to."""

    def __init__(self, model: nn.Module, loss: Callable[..., Tensor]) -> None:
        super().__init__()
        self.model, self.loss = model, loss

    def forward(self, values: Tensor, label: Tensor | None, channel: Tensor) -> Tensor:
        """The mean loss of a batch, nats/dim."""
        return self.loss(self.model, values, label=label, channel=channel)


def spread(objective: Objective, processes: Processes, shard: bool) -> nn.Module:
    """The objective, computed by all processes on their own examples, its gradients the mean over processes."""
    if processes.count == 1:
        return objective
    if not shard:
        return DistributedDataParallel(objective, gradient_as_bucket_view=True)  # else there are two of each gradient
    shard_blocks(objective)
    return objective


def exchange(objective: nn.Module, *, now: bool) -> AbstractContextManager[None]:
    """In here the processes exchange the gradients of each backward pass, or (not `now`) DDP only adds them up.

    FSDP2 always exchanges: to add them up, each process would hold whole gradients, which it is there to avoid.
    """
    if isinstance(objective, DistributedDataParallel) and not now:
        return objective.no_sync()
    return nullcontext()


def shard_blocks(module: nn.Module) -> None:
    """Each transformer block is gathered when its turn comes and let go after it; the rest of the module likewise."""
    for block in module.modules():
        if isinstance(block, TransformerBlock):
            fully_shard(block)
    fully_shard(module)


def local(tensor: Tensor) -> Tensor:
    """This process's share of a tensor."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def whole(tensor: Tensor) -> Tensor:
    """The whole tensor, for every process; all must ask for it."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def share(tensor: Tensor, like: Tensor) -> Tensor:
    """A whole tensor spread as another one is."""
    if isinstance(like, DTensor):
        return distribute_tensor(tensor.to(like.device), like.device_mesh, like.placements)
    return tensor


@torch.no_grad()
def fill(module: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Copies whole tensors into a module, spread or not.

    Raises:
        KeyError: a tensor is missing.
    """
    for name, mine in module.state_dict().items():
        mine.copy_(share(tensors[name], mine))


def gathered(skeleton: Any, module: nn.Module) -> Any:
    """A model like `skeleton` (on the meta device) with the whole tensors of a spread module."""
    skeleton.load_state_dict({name: whole(tensor) for name, tensor in module.state_dict().items()}, assign=True)
    return skeleton
