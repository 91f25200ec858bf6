"""Rearrange training examples, and tell the model how: distribution augmentation (Jun et al. 2020).

With few examples, a model also learns from their mirrored, transposed and shifted copies. Such copies are other data: a
mirrored digit is no digit. So each copy comes with conditioning that names its operations:

    example -> operations [n], True or False -> their vectors, summed [D] -> conditioning [B, *A, D]

The vectors are fixed random ones. For each sum of them the model learns a distribution of its own.

The trained model is an ordinary model of the data. An unchanged example has no operation, so its sum is zero: the model
computes what it would compute without conditioning. Scoring and sampling give no conditioning, and so they use the
distribution of the unchanged data. The weights are of the usual number and shape.
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

SEED = 1
SEED_OF_SHIFTS = 2
"""Seeds of the vectors of symmetries and of shifts. They are constants, so that all runs have the same vectors."""


class Symmetry(NamedTuple):
    """Mirrors along some axes of an example, then perhaps a transposition."""

    mirrored: tuple[bool, ...]
    """For each axis *A."""
    transposed: bool
    """True if the last two axes, of equal length, are exchanged."""

    def __call__(self, example: Integer[np.ndarray, "*a c"]) -> Integer[np.ndarray, "*a c"]:
        image = np.flip(example, tuple(np.flatnonzero(self.mirrored)))
        if self.transposed:
            image = image.swapaxes(-3, -2)
        return image

    @property
    def operations(self) -> list[bool]:
        """Return axes + 1 flags: for each axis, True if it is mirrored; then True if the last two are exchanged."""
        return [*self.mirrored, self.transposed]


class Shift(NamedTuple):
    """Cyclic moves by at most one position along each axis: the last position becomes the first, or the reverse."""

    offsets: tuple[int, ...]
    """For each axis *A: 1, 0 or -1."""

    def __call__(self, example: Integer[np.ndarray, "*a c"]) -> Integer[np.ndarray, "*a c"]:
        return np.roll(example, self.offsets, tuple(range(len(self.offsets))))

    @property
    def operations(self) -> list[bool]:
        """Return 2 axes flags: for each axis, True if it is moved forward; then True if it is moved backward."""
        forward = [offset > 0 for offset in self.offsets]
        backward = [offset < 0 for offset in self.offsets]
        return forward + backward


def symmetries(shape: Sequence[int]) -> list[Symmetry]:
    """Return all symmetries of a grid, the identity first: 8 of a square, 4 of another image."""
    axes = len(shape)
    mirrors = [*product((False, True), repeat=axes)]
    result = [Symmetry(mirrored, False) for mirrored in mirrors]
    if axes > 1 and shape[-1] == shape[-2]:
        result += [Symmetry(mirrored, True) for mirrored in mirrors]
    return result


def shifts(shape: Sequence[int]) -> list[Shift]:
    """Return all shifts of a grid, the identity first: 9 of an image."""
    return [Shift(offsets) for offsets in product((0, 1, -1), repeat=len(shape))]


def augment(
    values: Integer[np.ndarray, "b *a c"],
    among: Sequence[Symmetry] | Sequence[Shift],
    share: float,
    uniform: NDArray[np.float64],
) -> tuple[Integer[np.ndarray, "b *a c"], Bool[Tensor, "b n"]]:
    """Return the examples, a random share of them rearranged, and the operations of each.

    Args:
        values: [B, *A, C].
        among: rearrangements of one kind, the identity first. Within the share all are equally likely, the identity
            too.
        share: probability that an example takes part.
        uniform: [B], in [0, 1): decides for each example.

    Returns:
        Examples [B, *A, C], and operations [B, n].
    """
    chosen = []
    for number in uniform:
        index = int(number / share * len(among)) if number < share else 0
        chosen.append(among[index])
    images = np.stack([rearrange(example) for rearrange, example in zip(chosen, values)])
    return images, torch.tensor([rearrange.operations for rearrange in chosen], device="cpu")


def conditioning(operations: Bool[Tensor, "b n"], grid: Sequence[int], dim: int) -> Float[Tensor, "b *a d"]:
    """Return the conditioning that names operations; zero for an unchanged example.

    Args:
        operations: [B, n]: flags of a symmetry, then those of a shift if the run has shifts.
        grid: *A.
        dim: D.

    Returns:
        [B, *A, D], the same vector at every position.
    """
    vectors = _vectors(len(grid), dim, operations.device)[: operations.shape[1]]
    told = (operations.to(vectors.dtype) @ vectors).view(len(operations), *(1,) * len(grid), dim)
    return told.expand(len(operations), *grid, dim)


@cache  # a copy to a GPU waits for all that is queued there
def _vectors(axes: int, dim: int, device: torch.device) -> Float[Tensor, "n d"]:
    counts = {SEED: axes + 1, SEED_OF_SHIFTS: 2 * axes}
    vectors = []
    for seed, count in counts.items():
        generator = torch.Generator("cpu").manual_seed(seed)
        vectors.append(torch.randn(count, dim, generator=generator, dtype=torch.float32, device="cpu"))
    return (torch.cat(vectors) / sqrt(dim)).to(device)
