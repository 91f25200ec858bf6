"""Adapter: the only file that uses private names of torch.

`tests/ops/test_torch_private.py` fails when one changes; pyproject.toml bounds the version.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch._dynamo  # sets a variable of the environment: so not within a call, as at the first step of an optimizer
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass
from torch.utils._pytree import tree_leaves

__all__ = ["TorchDispatchMode", "tree_leaves"]

lerp_each = torch._foreach_lerp
lerp_each_in_place = torch._foreach_lerp_
multiply_each = torch._foreach_mul_

MAX_GRAPHS = 1024
HOOKS = ("_forward_hooks", "_forward_pre_hooks")
COMPILED = "_orig_mod."
"""In the names of what torch.compile has wrapped."""


def add_to_each(tensors: list[Tensor], others: tuple[Tensor, ...], factor: float | Tensor) -> None:
    """Add others times a factor in place."""
    if isinstance(factor, Tensor):
        torch._foreach_add_(tensors, torch._foreach_mul(others, factor))
    else:
        torch._foreach_add_(tensors, others, alpha=factor)


def is_transformed() -> bool:
    """Return True under torch.func and in forward mode, which take only operations of torch that have a formula."""
    return torch._C._are_functorch_transforms_active() or is_forward_mode()


def is_forward_mode() -> bool:
    """Return True if tensors may have tangents: dual numbers, torch.func.jvp and what uses it."""
    return forward_ad._current_level >= 0


def is_differentiated(grad: Tensor) -> bool:
    """Return True in a backward pass that is differentiated or has a batch of gradients: it takes a formula."""
    return torch.is_grad_enabled() or is_transformed() or torch._C._functorch.is_legacy_batchedtensor(grad)


def is_recorded() -> bool:
    """Return True if torch records or transforms operations, which then may not depend on sizes or be our own."""
    return torch.compiler.is_compiling() or is_traced() or is_transformed()


def is_traced() -> bool:
    """Return True in torch.jit.trace."""
    return bool(torch.jit.is_tracing())  # type: ignore[attr-defined]


def is_observed(x: Tensor) -> bool:
    """Return True if an operator must be called by way of torch, which takes longer: a mode or a class watches."""
    return torch.compiler.is_compiling() or type(x) is not Tensor or torch._C._len_torch_dispatch_stack() > 0


def is_wrapper(x: Tensor) -> bool:
    """Return True for a tensor without memory of its own, such as a DTensor or quantised weights."""
    return is_traceable_wrapper_subclass(x)


def is_shard(x: Tensor) -> bool:
    """Return True for a DTensor, of which a process holds a part."""
    return is_wrapper(x) and hasattr(x, "full_tensor")


def has_hooks(module: nn.Module) -> bool:
    """Return True if a call runs more than `forward`."""
    return any(vars(module)[name] for name in HOOKS)


def is_bare(module: nn.Module, *kinds: type[nn.Module]) -> bool:
    """Return True if a call is that of one of the classes, without hooks, parametrizations or weight_norm."""
    return type(module) in kinds and "forward" not in vars(module) and not has_hooks(module)


def storage_key(storage: torch.UntypedStorage) -> int:
    """Return a number that no other living storage has."""
    return storage._cdata


@contextmanager
def whole_graphs() -> Iterator[None]:
    """Keep compiled blocks whole graphs.

    By default, torch silently stops compiling a function after 8 graphs, and DDP cuts graphs.
    """
    with torch._dynamo.config.patch(
        optimize_ddp=False, recompile_limit=MAX_GRAPHS, accumulated_recompile_limit=MAX_GRAPHS
    ):
        yield
