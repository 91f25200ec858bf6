"""Positions in attention along one axis: rotary embeddings of queries and keys, and a relative bias of the scores."""

import torch
from jaxtyping import Float, Num
from torch import Tensor

from axial_transformers.ops.argument_checks import check_rotations, data_axis


def rotary(
    x: Float[Tensor, "b *a n k"], axis: int, coordinates: Num[Tensor, "..."] | None = None, base: float = 10000.0
) -> Float[Tensor, "b *a n k"]:
    """Rotary position embedding along one axis (Su et al. 2021): the product of two rotated heads depends on p - o.

    The numbers i and i + K/2 of a head, as a vector of the plane, are rotated by the angle c base^(-2i/K), where c is
    the coordinate of the site.

    Args:
        x: [B, *A, heads, head_dim], queries or keys, before `axial_attention` along the same axis.
        axis: 1..d, or counted from the end.
        coordinates: [L], those along the axis, or of every site, [B or 1, *A], where sizes may be 1. Any unit: other
            resolutions and irregular spacing. By default 0, 1, .., L - 1. Angles are computed in the widest of their
            dtype, that of x, and float32.
        base: the longest wavelength is about 2 pi base.

    Returns:
        [B, *A, heads, head_dim], the dtype of x.

    Raises:
        ValueError: `axis` is not one of the data, an odd head_dim, or coordinates that fit neither shape.
    """
    axis = data_axis(x, axis)
    length, sites = x.shape[axis], x.shape[:-2]
    if coordinates is None:
        coordinates = torch.arange(length, device=x.device)
    if coordinates.ndim == 1 and coordinates.shape[0] == length:
        coordinates = coordinates.view([length if dim == axis else 1 for dim in range(len(sites))])
    if coordinates.ndim != len(sites) or any(a not in (1, b) for a, b in zip(coordinates.shape, sites)):
        raise ValueError(
            f"coordinates must be [{length}], along axis {axis}, or {list(sites)} with sizes of 1 where they are "
            f"the same, not {list(coordinates.shape)}"
        )
    dtype = torch.promote_types(torch.promote_types(x.dtype, coordinates.dtype), torch.float32)
    coordinates = coordinates.to(dtype)[..., None, None]
    angles = coordinates * _frequencies(x.shape[-1], base, coordinates)
    return _turned(x, angles.cos(), angles.sin())


def relative_bias(table: Float[Tensor, "n r"], length: int) -> Float[Tensor, "1 n l l"]:
    """A bias of the offset p - o for `axial_attention` (Raffel et al. 2020; clipped as by Shaw et al. 2018).

    Args:
        table: [heads, 2R + 1], for the offsets -R..R in this order; larger offsets take the first or the last entry.
        length: places L of a line; any.

    Returns:
        [1, heads, L, L], `attn_bias` for lines of length L. For windows, a table of `span` entries is `attn_bias`
        itself, as [1, heads, 1, span].

    Raises:
        ValueError: a table of another number of dimensions, or an even number of entries.
    """
    if table.ndim != 2 or table.shape[-1] % 2 == 0:
        raise ValueError(f"a table must be [heads, 2R + 1], for the offsets -R..R, not {list(table.shape)}")
    radius = table.shape[-1] // 2
    place = torch.arange(length, device=table.device)
    return table[:, (place - place[:, None]).clamp(-radius, radius) + radius][None]


def rotation_table(length: int, width: int, base: float, dtype: torch.dtype = torch.float32) -> Float[Tensor, "l k"]:
    """For places 0..length - 1 the cosines of `width` / 2 angles, then their sines, rounded from float64.

    The angle of number j at place p is p base^(-2j / width). A model stores the table with its weights: cosines differ
    from machine to machine, and the bits of archives must not.

    Raises:
        ValueError: an odd width.
    """
    places = torch.arange(length, dtype=torch.float64)
    angles = places[:, None] * _frequencies(width, base, places)
    return torch.cat([angles.cos(), angles.sin()], dim=1).to(dtype)


def rotate(x: Float[Tensor, "b *a n k"], table: Float[Tensor, "l k"], axis: int) -> Float[Tensor, "b *a n k"]:
    """Heads rotated by the place of their site along an axis: numbers j and j + K/2, as a vector of the plane.

    Args:
        x: [B, *A, heads, K].
        table: [L, K], see `rotation_table`; row p is of place p along the axis, which has at most L.
        axis: 1..d, or counted from the end.

    Returns:
        [B, *A, heads, K], the dtype of x; computed in float32 at least.

    Raises:
        ValueError: a table of fewer rows, or of another width.
    """
    length = x.shape[axis]
    check_rotations(table, length, x.shape[-1])
    of_places = [1] * x.ndim
    of_places[axis], of_places[-1] = length, -1
    cos, sin = (part.reshape(of_places) for part in table[:length].chunk(2, dim=-1))
    return _turned(x, cos, sin)


def _turned(x: Float[Tensor, "*s k"], cos: Float[Tensor, "..."], sin: Float[Tensor, "..."]) -> Float[Tensor, "*s k"]:
    """Numbers j and j + K/2 as vectors of the plane, turned by angles with these cosines and sines [.., K/2]."""
    first, second = x.to(torch.promote_types(x.dtype, torch.float32)).chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1).to(x.dtype)


def _frequencies(width: int, base: float, like: Tensor) -> Float[Tensor, " k"]:
    """Angles of the `width` / 2 pairs of numbers at coordinate 1, of the dtype and device of a tensor."""
    if width % 2:
        raise ValueError(f"rotary positions turn pairs of numbers: head_dim must be even, not {width}")
    return base ** (-torch.arange(0, width, 2, device=like.device, dtype=like.dtype) / width)
