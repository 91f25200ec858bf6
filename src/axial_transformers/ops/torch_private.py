"""Adapter: what the package takes from torch that torch does not declare public.

Torch has no public call that does the same, or only a slower one. No other file of the package uses a private name of
torch. `tests/test_torch_private.py` fails when torch changes one of them; pyproject.toml bounds the version.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

__all__ = ["TorchDispatchMode", "tree_leaves"]

add_to_each = torch._foreach_add_
lerp_each = torch._foreach_lerp
lerp_each_in_place = torch._foreach_lerp_
multiply_each = torch._foreach_mul_
"""Of lists of tensors, in one call: as in torch.optim."""

softmax_backward = torch.ops.aten._softmax_backward_data
"""The gradient of softmax's argument from that of its result, the result, the axis and the dtype."""

efficient_attention = torch.ops.aten._scaled_dot_product_efficient_attention
flash_attention = torch.ops.aten._scaled_dot_product_flash_attention
"""What `scaled_dot_product_attention` calls on a GPU: on the meta device, they tell what it keeps for backward."""

HAS_ONEDNN = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")

MOST_GRAPHS = 1024
"""Graphs of one function that a process may compile."""
HOOKS = ("_forward_hooks", "_forward_pre_hooks")


def is_transformed() -> bool:
    """Return True under a transform of torch.func (grad, vmap, jacrev, ..), which takes operations of torch only."""
    return torch._C._are_functorch_transforms_active()


def onednn_linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return x W^T + b by oneDNN; x is [rows, inputs]. Only where HAS_ONEDNN is True."""
    return cast(Tensor, torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], ""))


def has_hooks(module: nn.Module) -> bool:
    """Return True if a call of this module runs more than its class' `forward`."""
    return "forward" in vars(module) or any(vars(module)[name] for name in HOOKS)


def storage_key(storage: torch.UntypedStorage) -> int:
    """Return a number that no other storage has while this one lives."""
    return storage._cdata


@contextmanager
def whole_graphs() -> Iterator[None]:
    """A context in which compiled blocks stay whole graphs.

    By itself torch compiles a function 8 times, for all models and batch sizes together, and then runs it uncompiled
    without a word. Under DDP it cuts a graph where a bucket of gradients ends.
    """
    import torch._dynamo  # a second of CPU time, which only compiled blocks need

    with torch._dynamo.config.patch(
        optimize_ddp=False, recompile_limit=MOST_GRAPHS, accumulated_recompile_limit=MOST_GRAPHS
    ):
        yield
