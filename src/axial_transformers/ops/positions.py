"""Rotary embeddings and relative biases along one axis."""

import torch
from jaxtyping import Float, Int64, Num
from torch import Tensor

from axial_transformers.ops.argument_checks import check_rotations, data_axis, fits


def rotary(
    x: Float[Tensor, "b *a n k"],
    axis: int,
    coordinates: Num[Tensor, "..."] | None = None,
    base: float = 10000.0,
) -> Float[Tensor, "b *a n k"]:
    """Apply rotary position embeddings along one axis (Su et al. 2021).

    Numbers i and i + K/2 of a head are rotated by the angle c base^(-2i/K) at coordinate c, so that q . k depends on p
    - o.

    Args:
        x: [B, *A, heads, head_dim], queries or keys, before `axial_attention` along the same axis.
        axis: 1..d, or from the end.
        coordinates: [L] along the axis, or [B or 1, *A] for every position, where sizes may be 1; any unit and spacing.
            Default: 0, 1, .., L - 1. Angles have at least float32.
        base: the longest wavelength is about 2 pi base.

    Returns:
        [B, *A, heads, head_dim], the dtype of x.

    Raises:
        ValueError: `axis` is no axis of the data, head_dim is odd, or coordinates do not fit.
    """
    axis = data_axis(x, axis)
    length = x.shape[axis]
    positions = x.shape[:-2]
    if coordinates is None:
        coordinates = torch.arange(length, device=x.device)
    if coordinates.ndim == 1 and coordinates.shape[0] == length:
        coordinates = coordinates.view([length if dim == axis else 1 for dim in range(len(positions))])
    if not fits(coordinates, positions):
        raise ValueError(
            f"coordinates must be [{length}], along axis {axis}, or {list(positions)} with sizes of 1 where they are "
            f"the same, not {list(coordinates.shape)}"
        )
    dtype = torch.promote_types(torch.promote_types(x.dtype, coordinates.dtype), torch.float32)
    coordinates = coordinates.to(dtype)[..., None, None]
    angles = coordinates * _frequencies(x.shape[-1], base, coordinates)
    return _turned(x, angles.cos(), angles.sin())


def relative_bias(table: Float[Tensor, "n r"], length: int) -> Float[Tensor, "1 n l l"]:
    """Return a bias for `axial_attention` that depends on the offset p - o (Raffel et al. 2020).

    Args:
        table: [heads, 2R + 1], for the offsets -R..R; larger offsets take the nearest (Shaw et al. 2018).
        length: the length L of a line.

    Returns:
        [1, heads, L, L]. For windows, pass a table of `window` entries itself as `attn_bias` [1, heads, 1, window].

    Raises:
        ValueError: the table has another shape.
    """
    if table.ndim != 2 or table.shape[-1] % 2 == 0:
        raise ValueError(f"a table must be [heads, 2R + 1], for the offsets -R..R, not {list(table.shape)}")
    radius = table.shape[-1] // 2
    offset = offsets(length, length, table.device).clamp(-radius, radius)
    return table[:, offset + radius][None]


def offsets(
    queries: int,
    keys: int,
    device: torch.device,
) -> Int64[Tensor, "l s"]:
    """Return p - o for each key p and query o: [queries, keys]."""
    return torch.arange(keys, device=device) - torch.arange(queries, device=device)[:, None]


def rotation_table(
    length: int,
    width: int,
    base: float,
    dtype: torch.dtype = torch.float32,
) -> Float[Tensor, "l k"]:
    """Return cosines, then sines, of p base^(-2j / width) for each position p.

    A model stores them: they differ between machines, and the bits of archives must not.
    """
    positions = torch.arange(length, dtype=torch.float64)
    angles = positions[:, None] * _frequencies(width, base, positions)
    return torch.cat([angles.cos(), angles.sin()], dim=1).to(dtype)


def rotate(
    x: Float[Tensor, "b *a n k"],
    table: Float[Tensor, "l k"],
    axis: int,
) -> Float[Tensor, "b *a n k"]:
    """Rotate heads at position p by row p of a table."""
    length = x.shape[axis]
    check_rotations(table, length, x.shape[-1])
    sizes = [1] * x.ndim
    sizes[axis] = length
    sizes[-1] = -1
    cos, sin = (columns.reshape(sizes) for columns in table[:length].chunk(2, dim=-1))
    return _turned(x, cos, sin)


def _turned(
    x: Float[Tensor, "*s k"],
    cos: Float[Tensor, "..."],
    sin: Float[Tensor, "..."],
) -> Float[Tensor, "*s k"]:
    first, second = x.to(torch.promote_types(x.dtype, torch.float32)).chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1).to(x.dtype)


def _frequencies(
    width: int,
    base: float,
    like: Tensor,
) -> Float[Tensor, " k"]:
    if width % 2:
        raise ValueError(f"rotary positions turn pairs of numbers: head_dim must be even, not {width}")
    return base ** (-torch.arange(0, width, 2, device=like.device, dtype=like.dtype) / width)
