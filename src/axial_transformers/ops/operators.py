"""Operators that torch.compile does not look into; checks protect their memory."""

from collections.abc import Callable, Sequence
from ctypes import Array, c_int64, c_void_p
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from axial_transformers.engine import library
from axial_transformers.ops.argument_checks import check_devices, check_rotations
from axial_transformers.ops.torch_private import tree_leaves

LIBRARY = torch.library.Library("axial_transformers", "FRAGMENT")


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def has_engine() -> bool:
    """Return True if the engine is compiled."""
    return library() is not None


def pointer(x: Tensor | None) -> c_void_p:
    """Return where a tensor begins in memory, or NULL."""
    return c_void_p(None if x is None else x.data_ptr())


@lru_cache(maxsize=256)
def integers(numbers: tuple[int, ...]) -> Array[c_int64]:
    """Return an array for C, which only reads it."""
    return (c_int64 * len(numbers))(*numbers)


def cpu_operator(
    name: str,
    fake: Callable[..., Any] = lambda *arguments: None,
    mutates_args: tuple[str, ...] = (),
    tags: tuple[torch.Tag, ...] = (),
) -> Callable[[Callable[..., Any]], Any]:
    """Declare an operator that is called faster than `torch.library.custom_op`; `fake` returns no values."""
    own = name.removeprefix("axial_transformers::")

    def without_values(*arguments: Any) -> Any:
        check_devices(x for x in tree_leaves(arguments) if isinstance(x, Tensor))
        return fake(*arguments)

    def declare(function: Callable[..., Any]) -> Any:
        schema = torch.library.infer_schema(function, mutates_args=mutates_args)
        LIBRARY.define(own + schema, tags=(torch.Tag.pt2_compliant_tag, *tags))
        LIBRARY.impl(own, function, "CPU")
        torch.library.register_fake(name, without_values, lib=LIBRARY)
        return getattr(torch.ops.axial_transformers, own).default

    return declare


SINGLE, SINGLE_OR_HALF = (torch.float32,), (torch.float32, torch.bfloat16)


def check_array(name: str, x: Tensor, dtypes: Sequence[torch.dtype], shape: Sequence[int]) -> None:
    """Check dtype and shape."""
    if x.dtype not in dtypes or x.shape != tuple(shape):
        raise ValueError(f"{name} must be {' or '.join(map(str, dtypes))} {list(shape)}, not {x.dtype} {list(x.shape)}")


def check_contiguous(name: str, x: Tensor, dtypes: Sequence[torch.dtype], shape: Sequence[int]) -> None:
    """Check dtype, shape and that numbers adjoin."""
    check_array(name, x, dtypes, shape)
    if not x.is_contiguous():
        raise ValueError(f"{name} must be contiguous, not of strides {x.stride()}")


def check_lines(
    tensors: Sequence[Tensor],
    axis: int,
    sums: Tensor,
    grouped: bool = False,
    half: bool = True,
) -> None:
    """Check queries, keys, values, one like the result, and sums."""
    if len(tensors) != 4 or min(x.ndim for x in tensors) < 4 or min(x.numel() for x in tensors) < 1:
        raise ValueError(f"q, k and v must be [B, *A, heads, width], not empty, not {[list(x.shape) for x in tensors]}")
    q, k, v, result = tensors
    (*positions, heads, width), groups, value_width = q.shape, k.shape[-2], v.shape[-1]
    if not 1 <= axis <= len(positions) - 1:
        raise ValueError(f"axis must be 1..{len(positions) - 1} of {list(q.shape)}, not {axis}")
    if groups != heads and (heads % groups or not grouped):
        raise ValueError(f"{groups} heads of keys do not serve {heads} of queries")
    check_array("q", q, SINGLE_OR_HALF if half else SINGLE, q.shape)
    check_array("k", k, [q.dtype], [*positions, groups, width])
    check_array("v", v, [q.dtype], [*positions, groups, value_width])
    check_array("the result or its gradient", result, [q.dtype], [*positions, heads, value_width])
    check_contiguous("sums", sums, SINGLE, [q.shape[:-1].numel(), 2])


def check_extras(q: Tensor, axis: int, bias: Tensor | None, rotations: Tensor | None, present: Tensor | None) -> None:
    """Check a bias [heads, 1, B or lines, L, L], rotations and where keys are present [lines, L], or None."""
    length = q.shape[axis]
    lines = q.shape[:-2].numel() // length
    if bias is not None:
        own = bias.shape[1] if bias.ndim == 4 and bias.shape[1] in (1, len(q)) else lines
        check_contiguous("bias", bias, SINGLE, [q.shape[-2], own, length, length])
    if present is not None:
        check_contiguous("present", present, [torch.bool], [lines, length])
    if rotations is not None:
        check_rotations(rotations, length, q.shape[-1])


def check_tables(tables: Sequence[Tensor], qkv: Sequence[Tensor], axis: int) -> None:
    """Check three tables against q, k and v."""
    (rows, of_heads), length = (*tables[0].shape, 0, 0)[:2], qkv[0].shape[axis]
    if len(tables) != 3 or rows % 2 == 0 or rows // 2 >= length or of_heads not in (1, qkv[0].shape[-2]):
        raise ValueError(f"{len(tables)} tables, {list(tables[0].shape)}, do not fit lines of {length} positions")
    for table, x in zip(tables, qkv):
        check_contiguous("a table", table, SINGLE, [rows, of_heads, x.shape[-1]])


def check_written(arrays: Sequence[Tensor], like: Sequence[Tensor | None], axis: int) -> None:
    """Check outputs: no two numbers may share memory."""
    if len({x.data_ptr() for x in arrays}) != len(like) or any(other is None for other in like):
        raise ValueError(f"{len(arrays)} arrays to write to are not one for each argument, with memory of its own")
    for x, other in zip(arrays, like):
        assert other is not None
        check_array("an array to write to", x, [other.dtype], other.shape)
        if not (x.is_contiguous() or (_apart(x.shape, x.stride()) and strides_of_lines(x.shape, x.stride(), axis))):
            raise ValueError(f"an array to write to, {list(x.shape)}, overlaps itself or is uneven: {x.stride()}")


@lru_cache(maxsize=256)
def strides_of_lines(shape: torch.Size, strides: tuple[int, ...], axis: int) -> tuple[int, int, int, int] | None:
    """Return the strides of outer axes, inner axes, heads and `axis`, or None; torch finds them slowly."""
    x = torch.empty_strided(shape, strides, device="meta")
    try:
        lines = x.view(shape[:axis].numel(), shape[axis], shape[axis + 1 : -2].numel(), *shape[-2:])
    except RuntimeError:
        return None
    outer, position, inner, head, number = lines.stride()
    if number != 1 and shape[-1] > 1:
        return None
    return outer, inner, head, position


@lru_cache(maxsize=256)
def _apart(shape: torch.Size, strides: tuple[int, ...]) -> bool:
    last = 0
    for stride, size in sorted(zip(strides, shape)):
        if size > 1 and stride <= last:
            return False
        last += (size - 1) * stride
    return True
