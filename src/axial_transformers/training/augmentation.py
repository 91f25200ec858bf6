"""Distribution augmentation (Jun et al. 2020): rearranged examples, with the rearrangement as conditioning.

Unchanged examples add zero.
"""

from collections.abc import Sequence
from functools import cache
from itertools import product
from math import sqrt
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Integer
from numpy.typing import NDArray
from torch import Tensor

SEED, SEED_OF_SHIFTS = 1, 2


class Symmetry(NamedTuple):
    """Mirrors along the axes of an example, then a transposition."""

    mirrored: tuple[bool, ...]
    transposed: bool
    """Exchange the last two axes, of equal length."""

    def __call__(self, example: Integer[np.ndarray, "*a c"]) -> Integer[np.ndarray, "*a c"]:
        image = np.flip(example, tuple(axis for axis, mirrored in enumerate(self.mirrored) if mirrored))
        return image.swapaxes(-3, -2) if self.transposed else image

    @property
    def operations(self) -> list[bool]:
        return [*self.mirrored, self.transposed]


class Shift(NamedTuple):
    """Cyclic moves along the axes of an example by at most one site."""

    sites: tuple[int, ...]

    def __call__(self, example: Integer[np.ndarray, "*a c"]) -> Integer[np.ndarray, "*a c"]:
        return np.roll(example, self.sites, tuple(range(len(self.sites))))

    @property
    def operations(self) -> list[bool]:
        return [*(sites > 0 for sites in self.sites), *(sites < 0 for sites in self.sites)]


def symmetries(shape: Sequence[int]) -> list[Symmetry]:
    """Return all symmetries of a grid, the identity first."""
    axes = len(shape)
    square = axes > 1 and shape[-1] == shape[-2]
    mirrors = list(product((False, True), repeat=axes))
    return [Symmetry(each, transposed) for transposed in ((False, True) if square else (False,)) for each in mirrors]


def shifts(shape: Sequence[int]) -> list[Shift]:
    """Return all shifts by at most one site per axis, the identity first."""
    return [Shift(sites) for sites in product((0, 1, -1), repeat=len(shape))]


def augmented(
    values: Integer[np.ndarray, "b *a c"],
    among: Sequence[Symmetry] | Sequence[Shift],
    share: float,
    uniform: NDArray[np.float64],
) -> tuple[Integer[np.ndarray, "b *a c"], Bool[Tensor, "b n"]]:
    """Return the examples, a random share of them rearranged as `uniform` [B] decides, and their operations."""
    chosen = [among[int(u / share * len(among))] if u < share else among[0] for u in uniform]
    images = np.stack([rearrange(example) for rearrange, example in zip(chosen, values)])
    return images, torch.tensor([rearrange.operations for rearrange in chosen])


def conditioning(operations: Bool[Tensor, "b n"], grid: Sequence[int], dim: int) -> Float[Tensor, "b *a d"]:
    """Return conditioning [B, *A, D] for operations [B, n]."""
    vectors = _vectors(len(grid), dim, operations.device)[: operations.shape[1]]
    told = (operations.to(vectors.dtype) @ vectors).view(len(operations), *(1,) * len(grid), dim)
    return told.expand(len(operations), *grid, dim)


@cache  # a copy to a GPU waits for all that is queued there
def _vectors(axes: int, dim: int, device: torch.device) -> Float[Tensor, "n d"]:
    counts = {SEED: axes + 1, SEED_OF_SHIFTS: 2 * axes}
    drawn = [torch.randn(count, dim, generator=torch.Generator().manual_seed(s)) for s, count in counts.items()]
    return (torch.cat(drawn) / sqrt(dim)).to(device)
