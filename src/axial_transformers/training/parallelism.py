"""A model over many processes: replicated (DDP), or each tensor in shards (FSDP2)."""

import copy
import warnings
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from axial_transformers.layers.blocks import TransformerBlock
from axial_transformers.models import AxialTransformer
from axial_transformers.training import augmentation
from axial_transformers.training.processes import Processes

Loss = Callable[..., Tensor]
"""A training loss, such as `random_slice_loss`; see `train`."""


class Objective(nn.Module):
    """The loss of a model as a module. Its forward is the whole computation, to which DDP and FSDP2 attach."""

    def __init__(self, model: AxialTransformer, loss: Loss) -> None:
        super().__init__()
        self.model = model
        self.loss = loss

    def forward(
        self, values: Tensor, label: Tensor | None, channel: Tensor, operations: Tensor | None = None
    ) -> Tensor:
        given: dict[str, Any] = {}
        if operations is not None:
            config = self.model.config
            given["cond"] = augmentation.conditioning(operations, config.shape, config.dim)
        return self.loss(self.model, values, label=label, channel=channel, **given)


def parallelise(objective: Objective, processes: Processes, shard: bool, dtype: torch.dtype) -> nn.Module:
    """Return the objective as each process computes it on its own examples; gradients are the mean over processes.

    Args:
        objective: on the device of `processes`. To be sharded, it may be on the CPU: it moves block by block.
        dtype: of matrix products, float32 or bfloat16.
    """
    if processes.count == 1:
        return objective
    if not shard:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # torch before 2.13 has no other name for broadcast_buffers
            # no second copy of each gradient; buffers are constants
            return DistributedDataParallel(objective, gradient_as_bucket_view=True, broadcast_buffers=False)
    shard_blocks(objective, processes, dtype)
    return objective


def synchronise_gradients(objective: nn.Module, *, enabled: bool) -> AbstractContextManager[None]:
    """Average gradients over processes or, if not `enabled`, only accumulate (DDP).

    FSDP2 always synchronises: to accumulate, each process would need the full gradients, which sharding avoids.
    """
    if isinstance(objective, DistributedDataParallel) and not enabled:
        return objective.no_sync()
    return nullcontext()


def shard_blocks(objective: Objective, processes: Processes, dtype: torch.dtype) -> None:
    """Shard each transformer block by itself, then the rest of the objective. A block is whole only while it computes.

    In bfloat16, blocks are gathered as autocast would cast them. Sums of gradients over processes are float32, and so
    are the LayerNorms of blocks and what lies outside of blocks.
    """
    mesh = init_device_mesh(processes.device.type, (processes.count,))
    policy = MixedPrecisionPolicy(cast_forward_inputs=False)
    if dtype != torch.float32:
        policy = MixedPrecisionPolicy(dtype, torch.float32, cast_forward_inputs=False)
    blocks = [module for module in objective.modules() if isinstance(module, TransformerBlock)]
    # Listed here, they are gathered once with the rest: hooks of their own would cut the graph of a compiled block.
    objective.norms = nn.ModuleList()
    for block in blocks:
        objective.norms.extend(module for module in block.modules() if isinstance(module, nn.LayerNorm))
    for block in blocks:
        fully_shard(block, mesh=mesh, mp_policy=policy, ignored_params={*objective.norms.parameters()})
    fully_shard(objective, mesh=mesh)


def local_shard(tensor: Tensor) -> Tensor:
    """Return this process's shard of a tensor; the tensor itself if it is not sharded."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def sum_over_shards(number: Tensor, like: Tensor) -> Tensor:
    """Return the sum of a number over the processes that have shards of `like`; a collective operation if there are."""
    if isinstance(like, DTensor):
        dist.all_reduce(number, group=like.device_mesh.get_group())
    return number


def gather_tensors(tensors: Mapping[str, Tensor], keep: bool, device: torch.device | None) -> dict[str, Tensor]:
    """Return the full tensors; a collective operation if they are sharded.

    Args:
        keep: True if this process needs them. Else it gets none, but still takes part, with one tensor at a time.
        device: where to put each; None: where its shards are.
    """
    gathered = {}
    for name, tensor in tensors.items():
        if isinstance(tensor, DTensor):
            tensor = tensor.full_tensor()
        if keep:
            gathered[name] = tensor if device is None else tensor.to(device)
    return gathered


def shard_like(tensor: Tensor, like: Tensor) -> Tensor:
    """Return a full tensor, sharded as another one is."""
    if isinstance(like, DTensor):
        return distribute_tensor(tensor.to(like.device), like.device_mesh, like.placements)
    return tensor


@torch.no_grad()
def load_full_tensors(module: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Copy full tensors into a module, sharded or not; KeyError if one is missing."""
    for name, mine in module.state_dict().items():
        mine.copy_(shard_like(tensors[name], mine))


def copy_without_weights(model: AxialTransformer) -> AxialTransformer:
    """Return a copy of the model for evaluation, its parameters on the meta device: with sizes and without values."""
    replaced = {
        id(parameter): nn.Parameter(parameter.detach().to("meta"), requires_grad=False)
        for parameter in model.parameters()
    }
    return copy.deepcopy(model, replaced).eval()


def copy_with_tensors(skeleton: AxialTransformer, tensors: Mapping[str, Tensor]) -> AxialTransformer:
    """Return a model like `skeleton` that has these tensors, full or sharded; they are not copied."""
    model = copy.deepcopy(skeleton)
    model.load_state_dict(tensors, assign=True)
    return model
