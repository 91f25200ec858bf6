"""Checks of the arguments of attention, which raise ValueError."""

from collections.abc import Iterable, Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def data_axis(q: Float[Tensor, "b *a n k"], axis: int) -> int:
    """Return `axis` as one of 1..d."""
    return _counted(axis, q, "q", "[B, *A, heads, head_dim]", q.ndim - 3)


def check_width(x: Float[Tensor, "b *a d"], dim: int) -> None:
    """Check that a layer's input is D wide, and floating point."""
    if x.ndim < 2 or x.shape[-1] != dim:
        first = x.ndim > 2 and x.shape[1] == dim
        hint = ". Channels come first in it: wrap the layer, axial_transformers.ChannelsFirst(layer)" if first else ""
        raise ValueError(f"the input must be [B, *A, {dim}], not {list(x.shape)}{hint}")
    if not x.is_floating_point():
        raise ValueError(
            f"the input must be floating point, not {x.dtype}: embed it (torch.nn.Embedding), or x.float()"
        )


def input_axis(
    x: Float[Tensor, "b *a d"],
    axis: int,
    dim: int,
) -> int:
    """Return `axis` of a layer's input as one of 1..d."""
    check_width(x, dim)
    return _counted(axis, x, "the input", "[B, *A, D]", x.ndim - 2)


def _counted(
    axis: int,
    x: Tensor,
    name: str,
    layout: str,
    axes: int,
) -> int:
    counted = axis + x.ndim if axis < 0 else axis
    if not 1 <= counted <= axes:
        raise ValueError(f"axis {axis} is not an axis of {name} {list(x.shape)}: {layout} has axes 1..{axes}")
    return counted


def check_devices(tensors: Iterable[Tensor | None]) -> None:
    """Check that all tensors share a device."""
    devices = {str(x.device) for x in tensors if x is not None}
    if len(devices) > 1:
        raise ValueError(f"all tensors must be on one device, not on {' and '.join(sorted(devices))}: move them")


def check_tensors(
    key_mask: Bool[Tensor, " b *a"] | None,
    *others: Tensor | None,
    **qkv: Tensor,
) -> None:
    """Check masks, queries, keys and values (by name) against `k`."""
    check_devices((key_mask, *others, *qkv.values()))
    dtypes = [x.dtype for x in qkv.values()]
    if len(set(dtypes)) > 1 or not dtypes[0].is_floating_point:
        names = ", ".join(map(str, dtypes))
        raise ValueError(f"{', '.join(qkv)} must have one floating-point dtype, not {names}: cast them")
    positions = qkv["k"].shape[:-2]
    if key_mask is not None and (key_mask.dtype != torch.bool or key_mask.shape != positions):
        raise ValueError(
            f"key_mask must be bool {list(positions)}, True where a position is present, not "
            f"{key_mask.dtype} {list(key_mask.shape)}"
        )


def check_rotations(
    rotations: Float[Tensor, "l k"],
    length: int,
    width: int,
) -> None:
    """Check a table of rotations."""
    if rotations.ndim != 2 or rotations.shape[0] < length or rotations.shape[1] != width or width % 2:
        raise ValueError(f"rotations must be [{length} or more, {width}], with K even, not {list(rotations.shape)}")


def fits(x: Tensor, sizes: Sequence[int]) -> bool:
    """Return True if a tensor has these sizes, or 1 in place of some."""
    return x.ndim == len(sizes) and all(own in (1, size) for own, size in zip(x.shape, sizes))


def check_options(
    window: int | None,
    dilation: int,
    dropout: float,
) -> None:
    """Check the options of `axial_attention`."""
    if window is not None:
        check_odd("window", window)
    if dilation < 1:
        raise ValueError(f"dilation must be at least 1, not {dilation}")
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout must be a probability below 1, not {dropout}")


def check_odd(name: str, window: int) -> None:
    """Check a window size."""
    if window < 1 or window % 2 == 0:
        raise ValueError(f"{name} must be odd, so that a position is its centre, not {window}")


def check_heads(
    q: Float[Tensor, "b *a n k"],
    k: Float[Tensor, "b *a h k"],
    v: Float[Tensor, "b *a h w"],
    grouped: bool = True,
) -> None:
    """Check that keys and values lie on the grid of queries, with as many heads or, if grouped, a divisor."""
    heads = q.shape[-2]
    fit = q.shape[:-2] == k.shape[:-2] == v.shape[:-2] and q.shape[-1] == k.shape[-1]
    for own in (k.shape[-2], v.shape[-2]):
        fit = fit and (own == heads or (grouped and 0 < own < heads and heads % own == 0))
    if not fit:
        fewer = "; only the heads of k and v may be fewer, a divisor of those of q" if grouped else ""
        raise ValueError(
            f"q {list(q.shape)}, k {list(k.shape)} and v {list(v.shape)} must share all sizes but v's last{fewer}"
        )


def check_encodings(
    tables: Sequence[Float[Tensor, "r t w"]],
    heads: int,
    width: int,
    value_width: int,
) -> None:
    """Check the tables of equation 4."""
    rows = len(tables[0])
    if rows % 2 == 0:
        raise ValueError(f"a table must have 2R + 1 rows, for the offsets -R..R; an even span {rows} has no centre")
    for name, table, size in zip(("query", "key", "value"), tables, (width, width, value_width)):
        if table.shape not in ((rows, heads, size), (rows, 1, size)):
            shape = f"[{rows}, {heads} or 1, {size}], the rows of all tables"
            raise ValueError(f"{name}_table must be {shape}, not {list(table.shape)}")
