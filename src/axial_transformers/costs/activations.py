"""Memory of the forward and backward pass, counted on the meta device: a second and no memory for the largest model.

The code counted is that which trains. Operations that differ between a GPU and the meta device are replaced by the
GPU's: autocast's casts, fused attention, fused dropout.
"""

import weakref
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from axial_transformers.baselines.by_name import build
from axial_transformers.layers.blocks import TransformerBlock, checkpoint_blocks
from axial_transformers.likelihood.bits import random_slice_loss
from axial_transformers.models import AxialTransformerConfig
from axial_transformers.torch_private import (
    TorchDispatchMode,
    efficient_attention,
    flash_attention,
    storage_key,
    tree_leaves,
)


def activation_bytes(config: AxialTransformerConfig, batch: int, dtype: torch.dtype, recompute: bool) -> int:
    """Largest number of bytes alive during the forward and backward pass, besides the weights and their gradients.

    Args:
        config: the model.
        batch: examples of one part on one device.
        dtype: of matrix products, float32 or bfloat16.
        recompute: blocks keep only their input for backward (`layers.blocks.checkpoint_blocks`).
    """
    with torch.device("meta"):
        model = build(config)
        x = torch.zeros(batch, *config.shape, config.channels, dtype=torch.uint8)
        channel = torch.full((batch,), model.slices.start)
        label = torch.zeros(batch, dtype=torch.int64) if config.num_classes else None
        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(_drop_gradient)
        for block in model.modules():
            if isinstance(block, TransformerBlock):  # on its own, since backward may compute it again
                block.forward = partial(_as_on_gpu, dtype, block.forward)  # type: ignore[method-assign]
        if recompute:
            checkpoint_blocks(model)
        with LiveBytes(parameter.untyped_storage() for parameter in model.parameters()) as memory:
            _as_on_gpu(dtype, random_slice_loss, model, x, label, None, channel).backward()
    return memory.peak


class LiveBytes(TorchDispatchMode):
    """Counts the bytes of storages allocated while it is entered, until they are freed; `known` ones are left out."""

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
                self._watch(tensor.untyped_storage())
        return out

    def _watch(self, storage: torch.UntypedStorage) -> None:
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
            return _attention(*args, **kwargs)
        return function(*args, **kwargs)


def _dropout(x: Tensor, p: float, **_: bool) -> Tensor:
    return torch.native_dropout(x, p, True)[0]


def _attention(q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None, dropout_p: float, is_causal: bool) -> Tensor:
    if q.dtype == torch.float32 or attn_mask is not None:
        return efficient_attention(q, k, v, attn_mask, True, dropout_p, is_causal)[0]
    return flash_attention(q, k, v, dropout_p, is_causal)[0]


def _as_on_gpu(dtype: torch.dtype, function: Callable[..., Tensor], *args: Any) -> Tensor:
    with _GPU(dtype):
        return function(*args)


def _drop_gradient(parameter: Tensor) -> None:
    parameter.grad = None
