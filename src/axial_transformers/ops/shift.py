"""Shifts along an axis, by which a decoder's output does not depend on the value that it predicts."""

from itertools import product

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor


def shift(x: Float[Tensor, "..."], axis: int) -> Float[Tensor, "..."]:
    """Moves `x` one place along dimension `axis`: zeros at 0, without the last slab (ShiftRight, ShiftDown)."""
    first = torch.zeros_like(x.narrow(axis, 0, 1))
    return torch.cat([first, x.narrow(axis, 0, x.shape[axis] - 1)], dim=axis)


def shifted_copies(x: Float[Tensor, "b *a c"]) -> Float[Tensor, "b *a n"]:
    """Concatenates the 3^d shifted copies of x [B, *A, C] (zeros outside) into [B, *A, 3^d * C].

    A linear layer of the result is a 3-wide convolution over every axis. The copies are in the order of their offsets
    -1, 0, 1, the last axis fastest, so that a convolution's weight [3, .., 3, C, D] flattens to [3^d * C, D].
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
