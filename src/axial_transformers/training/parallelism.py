"""A model over many processes: replicated (DDP), or each tensor in shards (FSDP2)."""

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from axial_transformers.layers.blocks import TransformerBlock
from axial_transformers.models import AxialTransformer
from axial_transformers.training.processes import Processes


class Loss(Protocol):
    """A training loss, such as `random_slice_loss`."""

    def __call__(self, model: AxialTransformer, x: Tensor, /, *, label: Tensor | None, channel: Tensor) -> Tensor:
        """The scalar mean in nats/dim over x [B, *A, C] with label [B], of the slices channel [B]."""
        ...


class Objective(nn.Module):
    """A model's loss as a module whose forward is the whole step, to which DDP and FSDP2 attach."""

    def __init__(self, model: AxialTransformer, loss: Loss) -> None:
        super().__init__()
        self.model, self.loss = model, loss

    def forward(self, values: Tensor, label: Tensor | None, channel: Tensor) -> Tensor:
        """The mean loss of a batch, nats/dim."""
        return self.loss(self.model, values, label=label, channel=channel)


def parallelise(objective: Objective, processes: Processes, shard: bool) -> nn.Module:
    """The objective, computed by each process on its own examples; gradients are the mean over processes."""
    if processes.count == 1:
        return objective
    if not shard:
        return DistributedDataParallel(objective, gradient_as_bucket_view=True)  # else there are two of each gradient
    shard_blocks(objective)
    return objective


def synchronise_gradients(objective: nn.Module, *, enabled: bool) -> AbstractContextManager[None]:
    """A context whose backward passes average gradients over processes or, if not `enabled`, only accumulate (DDP).

    FSDP2 always synchronises: to accumulate, each process would need the full gradients, which sharding avoids.
    """
    if isinstance(objective, DistributedDataParallel) and not enabled:
        return objective.no_sync()
    return nullcontext()


def shard_blocks(module: nn.Module) -> None:
    """Shards each transformer block by itself, gathered only while it computes, and then the rest of the module."""
    for block in module.modules():
        if isinstance(block, TransformerBlock):
            fully_shard(block)
    fully_shard(module)


def local_shard(tensor: Tensor) -> Tensor:
    """This process's shard of a tensor; all of one that is not sharded."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def full_tensor(tensor: Tensor) -> Tensor:
    """The full tensor, in every process; a collective operation."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def sharded_like(tensor: Tensor, like: Tensor) -> Tensor:
    """A full tensor, sharded as another one is."""
    if isinstance(like, DTensor):
        return distribute_tensor(tensor.to(like.device), like.device_mesh, like.placements)
    return tensor


@torch.no_grad()
def load_full_tensors(module: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Copies full tensors into a module, sharded or not.

    Raises:
        KeyError: a tensor is missing.
    """
    for name, mine in module.state_dict().items():
        mine.copy_(sharded_like(tensors[name], mine))


def unsharded(skeleton: AxialTransformer, module: nn.Module) -> AxialTransformer:
    """A model like `skeleton` (on the meta device) with the full tensors of a sharded one."""
    skeleton.load_state_dict({name: full_tensor(tensor) for name, tensor in module.state_dict().items()}, assign=True)
    return skeleton
