"""Shifts along an axis: how a decoder is kept from seeing what it predicts."""

from itertools import product

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor


def shift(x: Float[Tensor, "..."], axis: int) -> Float[Tensor, "..."]:
    """Moves `x` one place along dimension `axis`: zeros come in at 0, the last slab goes (ShiftRight, ShiftDown)."""
    first = torch.zeros_like(x.narrow(axis, 0, 1))
    return torch.cat([first, x.narrow(axis, 0, x.shape[axis] - 1)], dim=axis)


def shifted_copies(x: Float[Tensor, "b *a c"]) -> Float[Tensor, "b *a n"]:
    """Concatenates the 3^d shifted copies of x [B, *A, C] (zeros outside) into [B, *A, 3^d * C].

    A linear map of the result is a 3-wide convolution over every axis. Copies run through the offsets -1, 0, 1 with the
    last axis fastest, so a convolution weight [3, .., 3, C, D] flattens to [3^d * C, D] as it stands.
    """
    shape = x.shape[1:-1]
    padded = F.pad(x, (0, 0) + (1, 1) * len(shape))
    copies = []
    for corner in product(range(3), repeat=len(shape)):
        copy = padded
        for axis, (start, size) in enumerate(zip(corner, shape), start=1):
            copy = copy.narrow(axis, start, size)
        copies.append(copy)
    return torch.cat(copies, dim=-1)
