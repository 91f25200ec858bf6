"""Rotation of queries and keys by a table of cosines and sines: the rotary positions (Su et al. 2021) of a model.

`ops.positions.rotary` computes angles at each call, of any coordinates. Here the numbers are a table, which is stored
with a model's weights: cosines differ from machine to machine, and the bits of archives must not.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from axial_transformers.ops.argument_checks import check_rotations


def rotation_table(length: int, width: int, base: float, dtype: torch.dtype = torch.float32) -> Float[Tensor, "l k"]:
    """For places 0..length - 1 the cosines of `width` / 2 angles, then their sines, rounded from float64.

    The angle of number j at place p is p base^(-2j / width).

    Raises:
        ValueError: an odd width.
    """
    if width % 2:
        raise ValueError(f"rotary positions turn pairs of numbers: head_dim must be even, not {width}")
    frequencies = base ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    angles = torch.arange(length, dtype=torch.float64)[:, None] * frequencies
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
    return turned(x, cos, sin)


def turned(x: Float[Tensor, "*s k"], cos: Float[Tensor, "..."], sin: Float[Tensor, "..."]) -> Float[Tensor, "*s k"]:
    """Numbers j and j + K/2 as vectors of the plane, turned by angles with these cosines and sines [.., K/2]."""
    first, second = x.to(torch.promote_types(x.dtype, torch.float32)).chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1).to(x.dtype)
