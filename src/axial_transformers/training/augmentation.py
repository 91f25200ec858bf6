"""Distribution augmentation (Jun et al. 2020): examples whose sites are rearranged, which the model is told of.

A model of few examples learns from their mirrored, transposed and shifted images too, as of other distributions: a
fixed random vector for each operation is added where conditioning goes. That of the data as they are is zero, so that
the trained model is an ordinary one, of the data only.
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


class Shift(NamedTuple):
    """Moves along the axes of an example, by one site, the last one to the first place."""

    sites: tuple[int, ...]
    """For each axis: 1, 0 or -1."""

    def __call__(self, example: Integer[np.ndarray, "*a c"]) -> Integer[np.ndarray, "*a c"]:
        """The image of an example."""
        return np.roll(example, self.sites, tuple(range(len(self.sites))))

    @property
    def operations(self) -> list[bool]:
        """The move of each axis forward, and of each axis backward: true if it is part."""
        return [*(sites > 0 for sites in self.sites), *(sites < 0 for sites in self.sites)]


def symmetries(shape: Sequence[int]) -> list[Symmetry]:
    """All symmetries of a grid of this shape, the identity first: 8 of a square, 4 of another image."""
    axes = len(shape)
    square = axes > 1 and shape[-1] == shape[-2]
    mirrors = list(product((False, True), repeat=axes))
    return [Symmetry(each, transposed) for transposed in ((False, True) if square else (False,)) for each in mirrors]


def shifts(shape: Sequence[int]) -> list[Shift]:
    """All shifts of a grid of this shape by at most one site along each axis, the identity first: 9 of an image."""
    return [Shift(sites) for sites in product((0, 1, -1), repeat=len(shape))]


def augmented(
    values: Integer[np.ndarray, "b *a c"],
    among: Sequence[Symmetry] | Sequence[Shift],
    share: float,
    uniform: NDArray[np.float64],
) -> tuple[Integer[np.ndarray, "b *a c"], Bool[Tensor, "b n"]]:
    """Examples, a share of them replaced by a random rearrangement, and the operations of each.

    Args:
        among: rearrangements of one kind, the identity first; all of them are equally likely in the share.
        share: probability of a replacement.
        uniform: numbers in [0, 1) [B] that decide.
    """
    chosen = [among[int(u / share * len(among))] if u < share else among[0] for u in uniform]
    images = np.stack([rearrange(example) for rearrange, example in zip(chosen, values)])
    return images, torch.tensor([rearrange.operations for rearrange in chosen])


def conditioning(operations: Bool[Tensor, "b n"], grid: Sequence[int], dim: int) -> Float[Tensor, "b *a d"]:
    """The conditioning that tells a model of width D of operations: [B, *A, D], zeros where there is none.

    Args:
        operations: those of a symmetry, then, if there may be shifts, those of a shift: [B, n].
    """
    vectors = _vectors(len(grid), dim, operations.device)[: operations.shape[1]]
    told = (operations.to(vectors.dtype) @ vectors).view(len(operations), *(1,) * len(grid), dim)
    return told.expand(len(operations), *grid, dim)


@cache  # a copy to a GPU waits for all that is queued there
def _vectors(axes: int, dim: int, device: torch.device) -> Float[Tensor, "n d"]:
    """Return the vector of each operation: those of a symmetry, then those of a shift."""
    counts = {SEED: axes + 1, SEED_OF_SHIFTS: 2 * axes}
    drawn = [torch.randn(count, dim, generator=torch.Generator().manual_seed(s)) for s, count in counts.items()]
    return (torch.cat(drawn) / sqrt(dim)).to(device)
