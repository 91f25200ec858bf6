"""A GPU that computes nothing, for code that needs one: its tensors have sizes, dtypes and no contents.

While `PretendedGPU` is entered, torch says that there is one CUDA device. Its tensors lie on torch's meta device, so
code takes the branches of a GPU, forward and backward, at any size. What is read from them is 1, or True. A tensor of
the CPU among them raises, as on a GPU; so does what needs more memory than the device has. `torch.compile` compiles
nothing, and recording a CUDA graph runs once what is recorded.
"""

import weakref
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, nullcontext
from inspect import getattr_static
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.profiler import ProfilerActivity, profile
from torch.utils.checkpoint import checkpoint

from axial_transformers.layers import blocks
from axial_transformers.ops import composed_relative, line_groups
from axial_transformers.ops.torch_private import (
    TorchDispatchMode,
    storage_key,
    tree_leaves,
)

CUDA, META = torch.device("cuda", 0), torch.device("meta")
DEVICE, IS_CUDA, IS_META = (getattr_static(Tensor, name).__get__ for name in ("device", "is_cuda", "is_meta"))
aten = torch.ops.aten
TAKE_BOTH = {aten.copy_, aten._to_copy, aten.index, aten.index_put_, aten._index_put_impl_}
"""Operations that take tensors of a CPU and of a GPU."""


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


def gpu_attention(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0, is_causal: bool = False
) -> Tensor:
    """Return attention as a GPU's kernels leave it to the backward pass, on the meta device."""
    if q.dtype == torch.float32 or attn_mask is not None:
        return aten._scaled_dot_product_efficient_attention(q, k, v, attn_mask, True, dropout_p, is_causal)[0]
    return aten._scaled_dot_product_flash_attention(q, k, v, dropout_p, is_causal)[0]


class PretendedGPU:
    """A context with one GPU.

    Args:
        memory: its bytes.
        compiles: False where the machine lacks what compiling needs: then a compiled function raises.
    """

    def __init__(self, memory: float = 80e9, compiles: bool = True) -> None:
        self.memory, self.compiles = int(memory), compiles
        self.waits_raise = False
        """As under torch.cuda.set_sync_debug_mode("error")."""

    def __enter__(self) -> "PretendedGPU":
        self._entered, self.bytes = ExitStack(), _Bytes(())
        functions = self._functions()
        for module in (torch.cuda, torch.accelerator):
            here = {name: each for name, each in functions.items() if hasattr(module, name)}
            self._entered.enter_context(patch.multiple(module, **here))
        for module, name, instead in (
            (torch, "compile", self._compiled),
            (torch.nn.init, "trunc_normal_", lambda tensor, **bounds: tensor),  # samples as long as it reads True
            *((module, "checkpoint", _checkpoint) for module in (blocks, composed_relative, line_groups)),
            (torch.profiler, "profile", lambda activities: profile(activities=[ProfilerActivity.CPU])),
        ):
            self._entered.enter_context(patch.object(module, name, instead))
        for mode in (self.bytes, _Operations(self), _Functions()):
            self._entered.enter_context(mode)
        return self

    def __exit__(self, *error: object) -> None:
        self._entered.close()

    def _functions(self) -> dict[str, Any]:
        return {
            "is_available": lambda: True,
            "device_count": lambda: 1,
            "current_device": lambda: 0,
            "is_bf16_supported": lambda *_, **also: True,
            "set_device": _require_index,
            "get_device_capability": lambda device=None: (9, 0),
            "get_device_name": lambda device=None: "no GPU",
            "get_device_properties": lambda device=None: SimpleNamespace(name="no GPU", total_memory=self.memory),
            "mem_get_info": lambda device=None: (self.memory - self.bytes.live, self.memory),
            "memory_allocated": lambda device=None: self.bytes.live,
            "max_memory_allocated": lambda device=None: self.bytes.peak,
            "reset_peak_memory_stats": self._forget_peak,
            "empty_cache": lambda: None,
            "synchronize": lambda device=None: None,
            "set_sync_debug_mode": self._set_waits,
            "current_stream": lambda device=None: _Queue(),
            **dict.fromkeys(("Stream", "Event", "CUDAGraph"), _Queue),
            **dict.fromkeys(("device", "stream", "graph"), lambda *_, **also: nullcontext()),
        }

    def _compiled(self, function: Any, **options: object) -> Any:
        return function if self.compiles else _uncompiled

    def _forget_peak(self, device: object = None) -> None:
        self.bytes.peak = self.bytes.live

    def _set_waits(self, mode: str) -> None:
        self.waits_raise = mode == "error"

    def wait(self) -> None:
        """What code does that reads from the device."""
        if self.waits_raise:
            raise RuntimeError("called a synchronizing CUDA operation")


def _uncompiled(*_: object, **also: object) -> None:
    raise RuntimeError("fatal error: Python.h: No such file or directory")


def _require_index(device: Any) -> None:
    if torch.device(device).index is None:
        raise ValueError(f"Expected a torch.device with a specified index, but got: {device}")


class _Bytes(LiveBytes):
    """Counts the bytes of the GPU."""

    def watch(self, storage: torch.UntypedStorage) -> None:
        if storage.device == META:
            super().watch(storage)


class _Queue:
    """A stream, an event or a graph: whatever is asked of it is done."""

    def __init__(self, *_: object, **also: object) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **also: 1.0


def _checkpoint(function: Any, *args: Any, **options: Any) -> Any:
    """What is computed again in the backward pass is outside of modes: it enters one, and is not checked by devices."""

    def on_gpu(*args: Any, **kwargs: Any) -> Any:
        with _Functions():
            return function(*args, **kwargs)

    return checkpoint(on_gpu, *args, **options, determinism_check="none")


class _Functions(TorchFunctionMode):
    """Tensors of the meta device are those of the GPU."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function == DEVICE:
            found = function(*args)
            return CUDA if found == META else found
        if function in (IS_CUDA, IS_META):
            return args[0].is_meta == (function == IS_CUDA)
        if function is Tensor.pin_memory:
            return args[0]
        if function is Tensor.tolist:
            return args[0].cpu().tolist()
        if function is Tensor.cuda:
            return args[0].to(META)
        if function is torch.device:
            return function(*args, **kwargs)
        kwargs = {name: _on_meta(value) for name, value in kwargs.items() if name != "pin_memory"}
        args = [*map(_on_meta, args)]
        if function is F.scaled_dot_product_attention and args[0].is_meta:
            return gpu_attention(*args, **kwargs)
        if function is F.linear and args[0].is_meta and torch.is_autocast_enabled("cuda"):
            args = [part if part is None else part.bfloat16() for part in args]
        return function(*args, **kwargs)


def _on_meta(value: Any) -> Any:
    if isinstance(value, str) and value.partition(":")[0] == "cuda":
        return META
    return META if isinstance(value, torch.device) and value.type == "cuda" else value


class _Operations(TorchDispatchMode):
    """What is read from the GPU is 1; what is too large for it raises."""

    def __init__(self, gpu: PretendedGPU) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.gpu = gpu

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = kwargs or {}, function.overloadpacket
        if name is aten._local_scalar_dense and args[0].is_meta:
            self.gpu.wait()
            return torch.ones((), dtype=args[0].dtype).item()
        if name is aten.equal and args[0].is_meta:
            self.gpu.wait()
            return True
        if name is aten._to_copy and "device" in kwargs and (args[0].is_meta != (kwargs["device"] == META)):
            if not kwargs.get("non_blocking"):
                self.gpu.wait()
            if args[0].is_meta:
                return torch.ones(args[0].shape, dtype=kwargs.get("dtype") or args[0].dtype)
        if name is aten.copy_ and args[0].is_meta != args[1].is_meta:
            if not (kwargs.get("non_blocking") or (len(args) > 2 and args[2])):
                self.gpu.wait()
            if args[1].is_meta:
                return args[0].fill_(1)
        if name not in TAKE_BOTH or (name is aten.index and not args[0].is_meta):
            tensors = [each for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor) and each.ndim]
            if len({each.is_meta for each in tensors}) > 1:
                raise RuntimeError(f"{name}: expected all tensors to be on the same device")
        found = function(*args, **kwargs)
        if self.gpu.bytes.live > self.gpu.memory:
            raise torch.OutOfMemoryError(f"CUDA out of memory: {self.gpu.bytes.live:,} bytes of {self.gpu.memory:,}")
        return found
