"""Distribution augmentation (Jun et al. 2020): examples under symmetries of the grid, which the model is told of.

A model of few examples learns from their mirrored and transposed images too, as of other distributions: a fixed random
vector for each operation is added where conditioning goes. That of the data as they are is zero, so that the trained
model is an ordinary one, of the data only.
"""

from collections.abc import Sequence
from itertools import product
from math import sqrt
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Integer
from numpy.typing import NDArray
from torch import Tensor

SEED = 1
"""Of the vectors, which are the same in every run of a width."""


class Symmetry(NamedTuple):
    """Operations on the axes of an example: the mirrors first, then the transposition."""

    mirrored: tuple[bool, ...]
    """For each axis."""
    transposed: bool
    """Whether the last two axes, of one size, are exchanged."""

    def __call__(self, example: Integer[np.ndarray, "*a c"]) -> Integer[np.ndarray, "*a c"]:
        """The image of an example."""
        image = np.flip(example, tuple(axis for axis, mirrored in enumerate(self.mirrored) if mirrored))
        return image.swapaxes(-3, -2) if self.transposed else image

    @property
    def operations(self) -> list[bool]:
        """The mirror of each axis, and the transposition: true if it is part."""
        return [*self.mirrored, self.transposed]


def symmetries(shape: Sequence[int]) -> list[Symmetry]:
    """All symmetries of a grid of this shape, the identity first: 8 of a square, 4 of another image."""
    axes = len(shape)
    square = axes > 1 and shape[-1] == shape[-2]
    mirrors = list(product((False, True), repeat=axes))
    return [Symmetry(each, transposed) for transposed in ((False, True) if square else (False,)) for each in mirrors]


def augmented(
    values: Integer[np.ndarray, "b *a c"], share: float, uniform: NDArray[np.float64]
) -> tuple[Integer[np.ndarray, "b *a c"], Bool[Tensor, "b n"]]:
    """Examples, a share of them replaced by an image under a random symmetry, and the operations of each.

    Args:
        share: probability of a replacement; all symmetries, the identity among them, are equally likely then.
        uniform: numbers in [0, 1) [B] that decide.
    """
    among = symmetries(values.shape[1:-1])
    chosen = [among[int(u / share * len(among))] if u < share else among[0] for u in uniform]
    images = np.stack([symmetry(example) for symmetry, example in zip(chosen, values)])
    return images, torch.tensor([symmetry.operations for symmetry in chosen])


def conditioning(operations: Bool[Tensor, "b n"], grid: Sequence[int], dim: int) -> Float[Tensor, "b *a d"]:
    """The conditioning that tells a model of width D of operations [B, n]: [B, *A, D], zeros where there is none."""
    drawn = torch.randn(operations.shape[1], dim, generator=torch.Generator().manual_seed(SEED)) / sqrt(dim)
    vectors = drawn.to(operations.device)
    told = (operations.to(vectors.dtype) @ vectors).view(len(operations), *(1,) * len(grid), dim)
    return told.expand(len(operations), *grid, dim)
