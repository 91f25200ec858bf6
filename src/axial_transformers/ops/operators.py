"""Operators that torch.compile does not look into; checks protect their memory."""

from collections.abc import Callable, Sequence
from ctypes import Array, c_int64, c_void_p
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from axial_transformers.engine import library
from axial_transformers.ops.argument_checks import (
    check_devices,
    check_encodings,
    check_heads,
    check_rotations,
    check_tensors,
    data_axis,
)
from axial_transformers.ops.torch_private import tree_leaves

LIBRARY = torch.library.Library("axial_transformers", "FRAGMENT")


HAS_ENGINE = library() is not None
"""The engine is compiled. torch.compile takes it as a constant, and does not look into the library."""


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


TABLES = 3


def check_memory(
    lines: Sequence[Tensor],
    written: Sequence[Tensor],
    learned: Sequence[Tensor],
    axis: int,
    present: Tensor | None,
    rotations: Tensor | None,
    sums: Tensor,
) -> None:
    """Raise ValueError for tensors of which C would read or write beyond the memory, or one number as several.

    Args:
        lines: q, k, v, and the result or its gradient.
        written: for the result, or for gradients of q, k, v and `learned`.
        learned: nothing, a bias [heads, 1, B or lines, L, L], or three tables.
    """
    if min(x.ndim for x in lines) < 4 or min(x.numel() for x in lines) < 1:
        raise ValueError(f"q, k and v must be [B, *A, heads, width], not empty, not {[list(x.shape) for x in lines]}")
    q, k, v, result = lines
    check_tensors(None, q=q, k=k, v=v, result=result)
    check_heads(q, k, v)
    if q.dtype not in (torch.float32, torch.bfloat16) or data_axis(q, axis) != axis:
        raise ValueError(f"q must be of float32 or bfloat16, along an axis 1..d, not {q.dtype} along {axis}")
    length = q.shape[axis]
    count = q.shape[:-2].numel() // length
    _require(v, q.dtype, *k.shape[:-1], v.shape[-1])
    _require(result, q.dtype, *q.shape[:-1], v.shape[-1])
    _require_compact(sums, torch.float32, q.shape[:-1].numel(), 2)
    if present is not None:
        _require_compact(present, torch.bool, count, length)
    if rotations is not None:
        check_rotations(rotations, length, q.shape[-1])
    if learned:
        _require(k, q.dtype, *q.shape)
        _check_learned(learned, q, v, axis)
    _check_written(written, [result] if len(written) == 1 else [q, k, v, *learned], axis)


def _check_learned(
    learned: Sequence[Tensor],
    q: Tensor,
    v: Tensor,
    axis: int,
) -> None:
    length = q.shape[axis]
    heads = q.shape[-2]
    if len(learned) == TABLES:
        _require(q, torch.float32, *q.shape)
        check_encodings(learned, heads, q.shape[-1], v.shape[-1])
        rows = min(len(learned[0]), 2 * length - 1)
        for table in learned:
            _require_compact(table, torch.float32, rows, learned[0].shape[1], table.shape[-1])
    else:
        (bias,) = learned
        sharing = q.shape[:-2].numel() // length
        if bias.ndim == 4 and bias.shape[1] in (1, len(q)):
            sharing = bias.shape[1]
        _require_compact(bias, torch.float32, heads, sharing, length, length)


def _check_written(
    written: Sequence[Tensor],
    likes: Sequence[Tensor],
    axis: int,
) -> None:
    if len(written) > len(likes) or len({x.data_ptr() for x in written}) < len(written):
        raise ValueError(f"{len(written)} arrays to write to are not one for each argument, with memory of its own")
    for x, like in zip(written, likes):
        _require(x, like.dtype, *like.shape)
        if not (x.is_contiguous() or (_apart(x.shape, x.stride()) and line_strides(x.shape, x.stride(), axis))):
            raise ValueError(f"an array to write to, {list(x.shape)}, overlaps itself or is uneven: {x.stride()}")


def _require(
    x: Tensor,
    dtype: torch.dtype,
    *shape: int,
) -> None:
    if x.dtype != dtype or x.shape != shape:
        raise ValueError(f"{dtype} {list(shape)} is expected, not {x.dtype} {list(x.shape)}")


def _require_compact(
    x: Tensor,
    dtype: torch.dtype,
    *shape: int,
) -> None:
    _require(x, dtype, *shape)
    if not x.is_contiguous():
        raise ValueError(f"{list(shape)} must be contiguous, not of strides {x.stride()}")


@lru_cache(maxsize=256)
def _apart(shape: torch.Size, strides: tuple[int, ...]) -> bool:
    last = 0
    for stride, size in sorted(zip(strides, shape)):
        if size > 1 and stride <= last:
            return False
        last += (size - 1) * stride
    return True


@lru_cache(maxsize=256)
def line_strides(
    shape: torch.Size,
    strides: tuple[int, ...],
    axis: int,
) -> tuple[int, int, int, int] | None:
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
