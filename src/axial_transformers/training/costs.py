"""What a step of training needs: FLOPs, and the memory of each device.

    bytes = weights + gradients + moments + EMA weights + what autograd saves

What autograd saves is counted in real forward passes of one example and of two, on the device that trains: another
device computes in another way. Each further example adds as much as the second. Not counted are gradients of
activations, temporaries, and what allocators keep: a step takes more.
"""

import os
import weakref
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.nn import Module
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from axial_transformers.layers.blocks import TransformerBlock, block_matrices, checkpoint_blocks
from axial_transformers.likelihood.bits import random_slice_loss
from axial_transformers.machine import CPU, free_memory
from axial_transformers.models import AxialTransformer, AxialTransformerConfig
from axial_transformers.ops.torch_private import storage_key
from axial_transformers.training.config import TrainConfig
from axial_transformers.wording import engineering

FLOAT = 4
"""Bytes of a number: weights, gradients, moments and EMA weights are always float32."""


@dataclass(frozen=True, kw_only=True)
class StepCosts:
    """What a step takes; bytes are those of one device."""

    parameters: int
    stored: int
    """Weights, gradients, EMA weights, and moments: two of each gradient; of Muon's matrices, one."""
    saved: int
    """By autograd, of the examples that a device takes at a time."""
    flops: int
    """Those of all devices, without recomputed blocks."""

    @property
    def memory(self) -> int:
        return self.stored + self.saved


def step_costs(model: AxialTransformerConfig, training: TrainConfig, devices: int = 1) -> StepCosts:
    """Return what a step needs, with settings without `auto`."""
    empty = _empty(model)
    numbers = _numbers(empty.parameters())
    stored = 5 * FLOAT * numbers
    if training.shard:
        stored //= devices
    if training.optimizer == "muon":  # never in shards
        stored -= FLOAT * _numbers(block_matrices(empty))
    examples = training.batch_size // (devices * training.accumulate)
    return StepCosts(
        parameters=numbers,
        stored=stored,
        saved=saved_bytes(empty, training, examples),
        flops=training_flops(model) * training.batch_size,
    )


def _numbers(weights: Iterable[Tensor]) -> int:
    return sum(weight.numel() for weight in weights)


def saved_bytes(empty: AxialTransformer, training: TrainConfig, examples: int) -> int:
    """Return the bytes that autograd saves in a forward pass of some examples; the model leaves the meta device."""
    model = empty.to_empty(device=training.torch_device())
    with torch.no_grad():
        for tensor in chain(model.parameters(), model.buffers()):
            tensor.zero_()
    if training.checkpoint_blocks:
        checkpoint_blocks(model)
    one = _saved(model, training, 1)
    two = _saved(model, training, 2)
    return one + (examples - 1) * (two - one)


def _saved(model: AxialTransformer, training: TrainConfig, examples: int) -> int:
    """Return the bytes that autograd would save; nothing is kept, so that a model of any depth can be counted."""
    alive = {storage_key(weight.untyped_storage()) for weight in model.parameters()}
    total = 0

    def save(tensor: Tensor) -> None:
        nonlocal total
        storage = tensor.untyped_storage()
        key = storage_key(storage)
        if key in alive:
            return
        total += storage.nbytes()
        alive.add(key)
        weakref.finalize(storage, alive.discard, key)

    def save_input(_: Module, inputs: tuple[Any, ...]) -> None:
        save(inputs[0])

    with ExitStack() as entered:
        for block in model.modules():
            if training.checkpoint_blocks and isinstance(block, TransformerBlock):  # which keeps its input only
                entered.callback(block.register_forward_pre_hook(save_input).remove)
        entered.enter_context(saved_tensors_hooks(save, lambda _: torch.empty(0, device=CPU)))
        entered.enter_context(training.autocast(training.torch_device()))
        _loss(model, examples)
    return total


def parameters(config: AxialTransformerConfig) -> dict[str, int]:
    """Return the number of parameters of each part of a model."""
    return {name: _numbers(module.parameters()) for name, module in _empty(config).named_children()}


@cache
def training_flops(config: AxialTransformerConfig) -> int:
    """Return the FLOPs of matrix products for the loss of one slice of one example, and its gradients."""
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        _loss(_empty(config), 1).backward()
    return counter.get_total_flops()


def _empty(config: AxialTransformerConfig) -> AxialTransformer:
    """Return a model without values, on the meta device."""
    with torch.device("meta"):
        return AxialTransformer(config)


def _loss(model: AxialTransformer, examples: int) -> Tensor:
    config = model.config
    device = next(model.parameters()).device
    x = torch.full((examples, *config.shape, config.channels), config.lowest, device=device)
    channel = torch.full((examples,), model.slices.start, device=device)
    label = torch.zeros_like(channel) if config.num_classes else None
    return random_slice_loss(model, x, label, channel=channel)


def check_memory(costs: StepCosts, training: TrainConfig) -> None:
    """Raise ValueError if a step clearly does not fit into the free memory of its device."""
    device = training.torch_device()
    free = free_memory(device)
    if free is None:
        return
    if device.type == "cpu":
        free //= int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    if costs.memory > free:
        raise ValueError(
            f"a training step would need more than {engineering(costs.memory)}B, and {engineering(free)}B are free "
            "here: try training.accumulate, training.checkpoint_blocks, smaller examples or a smaller model"
        )
