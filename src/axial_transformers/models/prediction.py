"""Integers as differences, modulo V, from a prediction by neighbours: a bijection.

The prediction is the median of w, n and w + n - nw, as in LOCO-I (Weinberger, Seroussi, Sapiro 2000): the positions
before along the last axis, the axis outside, and both. They come earlier in every layout.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Integer
from torch import Tensor


class Predictor(NamedTuple):
    """A prediction of integers 0..V-1.

    It compares planes: the values, or differences from the channel before, plus V / 2, modulo V.
    """

    values: int
    of_channels: bool
    """Planes are differences of channels."""
    signed: bool
    """Clip predictions to 0..V-1, so that differences have a sign."""

    def predictions(self, x: Integer[Tensor, "b *a c"]) -> Integer[Tensor, "b *a c"]:
        return self.predicted(*_neighbours(self.planes(x), self.values // 2), self._bases(x.long()))

    def differences(self, x: Integer[Tensor, "b *a c"]) -> Integer[Tensor, "b *a c"]:
        return (x.long() - self.predictions(x)) % self.values

    def planes(self, x: Integer[Tensor, "b *a c"]) -> Integer[Tensor, "b *a c"]:
        return self.plane(x.long(), self._bases(x.long()))

    def predicted(self, w: Tensor, n: Tensor, nw: Tensor, base: Tensor) -> Tensor:
        median = (w + n - nw).clamp(torch.minimum(w, n), torch.maximum(w, n))
        found = median + base - self.values // 2
        return found.clamp(0, self.values - 1) if self.signed else found % self.values

    def plane(self, x: Tensor, base: Tensor) -> Tensor:
        return (x - base + self.values // 2) % self.values

    def logits(self, x: Float[Tensor, "*s n"], predictions: Integer[Tensor, "*s"]) -> Float[Tensor, "*s v"]:
        """Return the logits of differences modulo V.

        Beyond the last value, difference d is d - V, with logit V + d.
        """
        if not self.signed:
            return x
        beyond = torch.arange(self.values, device=x.device) + predictions.unsqueeze(-1) >= self.values
        return torch.where(beyond, x[..., self.values :], x[..., : self.values])

    def first_logits(self) -> Float[Tensor, " n"]:
        """Return the first logits of the head: equal, or (1 + 64 |s| / V)^-2 for signed differences s.

        Large differences are rare: equal logits would show in samples.
        """
        if not self.signed:
            return torch.zeros(self.values)
        sizes = torch.arange(2 * self.values)
        sizes = torch.where(sizes < self.values, sizes, 2 * self.values - sizes)
        return -2 * torch.log1p(64 * sizes / self.values)

    def neighbours(self, shape: tuple[int, ...]) -> Integer[Tensor, "positions 4"]:
        """Return w, n, nw and the channel before, as numbers of positions; -1: none."""
        positions = torch.arange(torch.Size(shape).numel()).view(1, *shape)
        before = torch.full_like(positions, -1)
        if self.of_channels:
            before[..., 1:] = positions[..., :-1]
        return torch.stack([*_neighbours(positions, -1), before], dim=-1).flatten(0, -2)

    def _bases(self, x: Tensor) -> Tensor:
        bases = torch.full_like(x, self.values // 2)
        if self.of_channels:
            bases[..., 1:] = x[..., :-1]
        return bases


def _neighbours(x: Tensor, otherwise: int) -> tuple[Tensor, Tensor, Tensor]:
    grid = x.unsqueeze(1) if x.ndim == 3 else x.flatten(0, -4)  # outer axes join the batch
    padded = torch.nn.functional.pad(grid, (0, 0, 1, 0, 1, 0))
    w, n, nw = padded[:, 1:, :-1], padded[:, :-1, 1:], padded[:, :-1, :-1]
    first_row = (torch.arange(grid.shape[1], device=x.device) == 0).view(-1, 1, 1)
    first_column = (torch.arange(grid.shape[2], device=x.device) == 0).view(-1, 1)
    w = torch.where(first_column, torch.where(first_row, otherwise, n), w)
    n = torch.where(first_row, w, n)
    nw = torch.where(first_row | first_column, n, nw)
    return w.reshape(x.shape), n.reshape(x.shape), nw.reshape(x.shape)
