"""Integers as differences from a prediction by their neighbours, modulo V: a bijection on {0..V-1}^sites.

A site is predicted from the one before it along the last axis (w), the one before it along the axis outside (n) and the
one before both (nw) by the median of w, n and w + n - nw, the predictor of LOCO-I (Weinberger, Seroussi, Sapiro 2000).
All of them are earlier in the generation order of every layout, so that a difference depends on earlier values only,
and probabilities of differences, given the earlier ones, are those of the values.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Integer
from torch import Tensor


class Predictor(NamedTuple):
    """A prediction of integers 0..V-1.

    Planes are what neighbours are compared in: the values themselves, or, of every channel but the first, their
    differences from those of the channel before, plus V / 2, modulo V.
    """

    values: int
    """Their number V."""
    of_channels: bool
    """Whether planes are differences of channels."""
    signed: bool
    """Whether predictions are clipped to 0..V-1, so that a difference has a sign; otherwise they are taken modulo V."""

    def predictions(self, x: Integer[Tensor, "b *a c"]) -> Integer[Tensor, "b *a c"]:
        """The predictions, 0..V-1, of the values 0..V-1: int64 [B, *A, C]."""
        return self.predicted(*_neighbours(self.planes(x), self.values // 2), self._bases(x.long()))

    def differences(self, x: Integer[Tensor, "b *a c"]) -> Integer[Tensor, "b *a c"]:
        """Differences, modulo V, of the values 0..V-1 from their predictions: int64 [B, *A, C]."""
        return (x.long() - self.predictions(x)) % self.values

    def planes(self, x: Integer[Tensor, "b *a c"]) -> Integer[Tensor, "b *a c"]:
        """The planes of the values 0..V-1: int64 [B, *A, C]."""
        return self.plane(x.long(), self._bases(x.long()))

    def predicted(self, w: Tensor, n: Tensor, nw: Tensor, base: Tensor) -> Tensor:
        """Predictions from the planes of neighbours and from `base`: the channel before, or V / 2."""
        median = (w + n - nw).clamp(torch.minimum(w, n), torch.maximum(w, n))
        found = median + base - self.values // 2
        return found.clamp(0, self.values - 1) if self.signed else found % self.values

    def plane(self, x: Tensor, base: Tensor) -> Tensor:
        """The planes of values."""
        return (x - base + self.values // 2) % self.values

    def logits(self, x: Float[Tensor, "*s n"], predictions: Integer[Tensor, "*s"]) -> Float[Tensor, "*s v"]:
        """Logits of the differences modulo V from those of the head: 2 V of them where differences are signed.

        Difference d leads to d + p, or, beyond the last value, to d + p - V: then it is d - V, and has logit V + d.
        """
        if not self.signed:
            return x
        beyond = torch.arange(self.values, device=x.device) + predictions.unsqueeze(-1) >= self.values
        return torch.where(beyond, x[..., self.values :], x[..., : self.values])

    def first_logits(self) -> Float[Tensor, " n"]:
        """Logits of the head before training: all equal, or, of signed differences s, those of (1 + 64 |s| / V)^-2.

        Large differences have so few examples that they would keep a probability that shows in samples.
        """
        if not self.signed:
            return torch.zeros(self.values)
        sizes = torch.arange(2 * self.values)
        sizes = torch.where(sizes < self.values, sizes, 2 * self.values - sizes)
        return -2 * torch.log1p(64 * sizes / self.values)

    def neighbours(self, shape: tuple[int, ...]) -> Integer[Tensor, "sites 4"]:
        """w, n, nw and the channel before of every site of data [*A, C], as numbers of sites; -1: there is none."""
        sites = torch.arange(torch.Size(shape).numel()).view(1, *shape)
        before = torch.full_like(sites, -1)
        if self.of_channels:
            before[..., 1:] = sites[..., :-1]
        return torch.stack([*_neighbours(sites, -1), before], dim=-1).flatten(0, -2)

    def _bases(self, x: Tensor) -> Tensor:
        bases = torch.full_like(x, self.values // 2)
        if self.of_channels:
            bases[..., 1:] = x[..., :-1]
        return bases


def _neighbours(x: Tensor, otherwise: int) -> tuple[Tensor, Tensor, Tensor]:
    """w, n and nw of every site, each of the shape of x.

    Where there are none: in the first row those of w, in the first column those of n, at first `otherwise`.
    """
    grid = x.unsqueeze(1) if x.ndim == 3 else x.flatten(0, -4)  # [B', H, W, C]; axes before H are part of the batch
    padded = torch.nn.functional.pad(grid, (0, 0, 1, 0, 1, 0))
    w, n, nw = padded[:, 1:, :-1], padded[:, :-1, 1:], padded[:, :-1, :-1]
    first_row = (torch.arange(grid.shape[1], device=x.device) == 0).view(-1, 1, 1)
    first_column = (torch.arange(grid.shape[2], device=x.device) == 0).view(-1, 1)
    w = torch.where(first_column, torch.where(first_row, otherwise, n), w)
    n = torch.where(first_row, w, n)
    nw = torch.where(first_row | first_column, n, nw)
    return w.reshape(x.shape), n.reshape(x.shape), nw.reshape(x.shape)
