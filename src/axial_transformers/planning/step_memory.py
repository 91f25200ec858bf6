"""Memory of a training step, counted by running the training code on the meta device, in about a second.

On the meta device, tensors have sizes and no contents, and take no memory. The code that trains runs there forward and
backward. Where a CPU computes in another way than a GPU, it runs the GPU's way, for both: autocast's casts, fused
attention, fused dropout. `LiveBytes` counts what is alive.

    needed = factor * (weights + gradients + moments + EMA weights + gathered + activations) + constant

| device | factor | constant | where they come from |
|---|---|---|---|
| CPU, plain steps | 1.4 | 0.15 GB | measured 1.15 to 1.35, see below |
| CPU, steps that save memory | 1.1 | 0.15 GB | measured 0.7 to 0.9, see below |
| GPU | 1.1 | 1 GB | not measured; chosen: a tenth for the allocator, 1 GB for driver and libraries |

The ratios of a CPU were measured on 2026-11-22: the growth of the resident memory less 0.15 GB, divided by the bytes of
tensors. Models were `custom` ones whose steps took 0.3 to 1.8 GB, with glibc 2.36 and one thread. The table is in
`experiments/EXPERIMENTS.md`, "Memory that a step adds on a CPU". 0.15 GB was assumed, not measured. Each factor lies
above the ratios. Plain steps keep freed memory, in which gaps remain; steps that save memory return it
(`training.freed_memory`).

How exact the bytes of tensors are:

- On 2026-11-21 the total was compared with the peak of real steps on a CPU, as torch's profiler saw it. It was 0.95
  times the real one for digits in float32 and 0.97 in bfloat16, 1.03 and 1.02 for fashion_mnist, 1.03 and 1.03 for
  photos32.
- `tests/training/test_sizing.py` fails if it is more than a tenth off a real step of a small model on a CPU. It takes
  blocks that keep their activations, and blocks that recompute them.
- `tests/gpu/test_training.py` counts a whole step of every recipe, optimizer included, on the meta device. It fails if
  the total is more than 5 % off.
- No GPU was measured.

`planning.machine.SHARE_OF_FREE_MEMORY` says which part of the free memory a step may take.
"""

import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import Field, dataclass
from functools import cache, partial
from typing import Any, ClassVar, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from axial_transformers.layers.blocks import TransformerBlock, checkpoint_blocks, matrices_of_blocks
from axial_transformers.likelihood.bits import random_slice_loss
from axial_transformers.models import AxialTransformerConfig
from axial_transformers.models.baselines.by_name import build
from axial_transformers.ops.torch_private import (
    TorchDispatchMode,
    efficient_attention,
    flash_attention,
    storage_key,
    tree_leaves,
)

FLOAT = 4
"""Bytes of a number: weights, gradients, moments and EMA weights are always float32."""


class TrainingSettings(Protocol):
    """The settings of a run that its costs depend on (`training.TrainConfig`)."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    @property
    def steps(self) -> int: ...
    @property
    def batch_size(self) -> int: ...
    @property
    def optimizer(self) -> str: ...
    @property
    def accumulate(self) -> int: ...
    @property
    def precision(self) -> str: ...
    @property
    def shard(self) -> bool: ...
    @property
    def checkpoint_blocks(self) -> bool: ...
    @property
    def saves_memory(self) -> bool: ...


@cache
def activation_bytes(config: AxialTransformerConfig, batch: int, dtype: torch.dtype, recompute: bool) -> int:
    """Return the most bytes alive in the forward and backward pass, besides weights and gradients.

    Args:
        batch: examples of one part of a batch on one device.
        dtype: of matrix products, float32 or bfloat16.
        recompute: blocks keep only their input for the backward pass (`layers.blocks.checkpoint_blocks`).
    """
    with torch.device("meta"):
        model = build(config)
        x = torch.zeros(batch, *config.shape, config.channels, dtype=torch.uint8)
        channel = torch.full((batch,), model.slices.start)
        label = torch.zeros(batch, dtype=torch.int64) if config.num_classes else None
        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(_drop_gradient)  # `memory` counts gradients
        for block in model.modules():
            if isinstance(block, TransformerBlock):  # backward may compute it again, outside of `_as_on_gpu` below
                block.forward = partial(_as_on_gpu, dtype, block.forward)  # type: ignore[method-assign]
        if recompute:
            checkpoint_blocks(model)
        with LiveBytes(parameter.untyped_storage() for parameter in model.parameters()) as memory:
            _as_on_gpu(dtype, random_slice_loss, model, x, label, None, channel).backward()
    return memory.peak


class LiveBytes(TorchDispatchMode):
    """Counts the bytes of storages that operations return while it is entered, until they are freed.

    `live` is their number now, `peak` the most so far.

    Args:
        known: storages that do not count.
    """

    def __init__(self, known: Iterable[torch.UntypedStorage]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.live = self.peak = 0
        self._known = {storage_key(storage) for storage in known}

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = function(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, Tensor):
                self.watch(tensor.untyped_storage())
        return out

    def watch(self, storage: torch.UntypedStorage) -> None:
        key, size = storage_key(storage), storage.nbytes()
        if key in self._known:
            return
        self._known.add(key)
        self.live += size
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self._forget, key, size)

    def _forget(self, key: int, size: int) -> None:
        self._known.discard(key)
        self.live -= size


class _GPU(TorchFunctionMode):
    """Replaces linear layers, dropout and attention by what a GPU computes in this dtype."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype

    def __torch_function__(
        self, function: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if function is F.linear:
            args = [part if part is None else part.to(self.dtype) for part in args]
        elif function is F.dropout:
            return _dropout(*args, **kwargs)
        elif function is F.scaled_dot_product_attention:
            return gpu_attention(*args, **kwargs)
        return function(*args, **kwargs)


def _dropout(x: Tensor, p: float, **_: bool) -> Tensor:
    return torch.native_dropout(x, p, True)[0]


def gpu_attention(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0, is_causal: bool = False
) -> Tensor:
    """Return attention as a GPU's kernels leave it to the backward pass, on the meta device."""
    if q.dtype == torch.float32 or attn_mask is not None:
        return efficient_attention(q, k, v, attn_mask, True, dropout_p, is_causal)[0]
    return flash_attention(q, k, v, dropout_p, is_causal)[0]


def _as_on_gpu(dtype: torch.dtype, function: Callable[..., Tensor], *args: Any) -> Tensor:
    with _GPU(dtype):
        return function(*args)


def _drop_gradient(parameter: Tensor) -> None:
    parameter.grad = None


@dataclass(frozen=True, kw_only=True)
class StepMemory:
    """Bytes of tensors on one device at the peak of a step. Allocator and driver take more, see `needed_memory`."""

    weights: int
    gradients: int
    """As large as the weights."""
    adam: int
    """Moments: two of each gradient; with Muon, one for the matrices of blocks."""
    average: int
    """The EMA weights."""
    gathered: int
    """Weights and gradients that are whole for a while: of two blocks, and of all outside of blocks. 0 without shards.

    Computed, not measured: FSDP gathers the next block while one computes. Weights of blocks have the dtype of matrix
    products; all the rest is float32.
    """
    activations: int
    """What the forward and backward pass hold besides, see `activation_bytes`."""

    @property
    def total(self) -> int:
        """The sum: as if all were alive at the same moment."""
        return self.weights + self.gradients + self.adam + self.average + self.gathered + self.activations


def memory(model: AxialTransformerConfig, training: TrainingSettings, devices: int) -> StepMemory:
    """Return the memory of a step on each of `devices` devices, blocks not compiled (compiled ones take less).

    Raises:
        ValueError: the batch does not divide among the devices.
    """
    numbers, largest_block, outside_blocks, matrices = _sizes(model)
    batch = device_batch(training, devices)
    dtype = torch.bfloat16 if training.precision == "bfloat16" else torch.float32
    share, gathered = FLOAT * numbers, 0
    absent_moments = FLOAT * matrices if training.optimizer == "muon" else 0  # Muon has one; it refuses shards
    if training.shard and devices > 1:
        share = -(-share // devices)
        gathered = 2 * FLOAT * outside_blocks + 2 * (dtype.itemsize + FLOAT) * largest_block
    return StepMemory(
        weights=share,
        gradients=share,
        adam=2 * share - absent_moments,
        average=share,
        gathered=gathered,
        activations=activation_bytes(model, batch, dtype, training.checkpoint_blocks),
    )


def needed_memory(model: AxialTransformerConfig, training: TrainingSettings, devices: int, device: str) -> int:
    """Return the bytes that a step on each device needs in all: tensors, and what is no tensor.

    On a CPU this is the growth of the resident memory. The top of this file says where the factors come from.

    Args:
        device: its type, cpu or cuda.

    Raises:
        ValueError: the batch does not divide among the devices.
    """
    factor, constant = 1.1, 1e9
    if device == "cpu":
        factor, constant = 1.1 if training.saves_memory else 1.4, 0.15e9
    return round(factor * memory(model, training, devices).total + constant)


def device_batch(training: TrainingSettings, devices: int) -> int:
    """Return the number of examples that each device takes at a time.

    Raises:
        ValueError: the batch does not divide.
    """
    if training.batch_size % (devices * training.accumulate):
        raise ValueError(
            f"a batch of {training.batch_size} does not divide into {training.accumulate} parts on each of {devices} "
            f"devices: change --training.batch-size, or the number of devices"
        )
    return training.batch_size // (devices * training.accumulate)


@cache
def _sizes(config: AxialTransformerConfig) -> tuple[int, int, int, int]:
    """Return numbers of parameters: all, of the largest block, outside of blocks, in matrices of blocks."""
    with torch.device("meta"):
        model = build(config)
    blocks = [
        sum(parameter.numel() for parameter in block.parameters())
        for block in model.modules()
        if isinstance(block, TransformerBlock)
    ]
    numbers = sum(parameter.numel() for parameter in model.parameters())
    matrices = sum(parameter.numel() for parameter in matrices_of_blocks(model))
    return numbers, max(blocks, default=0), numbers - sum(blocks), matrices
