"""Integers as differences from a prediction by their neighbours, modulo V: a bijection on {0..V-1}^sites.

A site is predicted from the one before it along the last axis (w), the one before it along the axis outside (n) and the
one before both (nw) by the median of w, n and w + n - nw, the predictor of LOCO-I (Weinberger, Seroussi, Sapiro 2000).
All of them are earlier in the generation order of every layout, so that a difference depends on earlier values only,
and probabilities of differences, given the earlier ones, are those of the values.
"""

import torch
from jaxtyping import Integer
from torch import Tensor


def differences(x: Integer[Tensor, "b *a c"], values: int, of_channels: bool) -> Integer[Tensor, "b *a c"]:
    """Differences 0..V-1 of the values 0..V-1 from their predictions: int64 [B, *A, C].

    Args:
        values: their number V.
        of_channels: every channel but the first is first replaced by its difference from the one before it, plus V / 2.
    """
    planes = _channel_differences(x.long(), values) if of_channels else x.long()
    return (planes - _predicted(*_neighbours(planes, values))) % values


def predicted_at(
    x: Integer[Tensor, "b *a c"], site: tuple[int, ...], values: int, of_channels: bool
) -> Integer[Tensor, " b"]:
    """The number, modulo V, by which value and difference of one site (a1, .., ad, c) differ: int64 [B].

    Args:
        x: values 0..V-1; those of later sites do not matter.
    """
    axes = len(site) - 1
    near = [slice(max(0, at - 1), at + 1) for at in site]
    near[: max(0, axes - 2)] = [slice(at, at + 1) for at in site[: max(0, axes - 2)]]
    window = x[(slice(None), *near)]
    found = (window - differences(window, values, of_channels)) % values
    return found.flatten(1)[:, -1]


def restored(d: Integer[Tensor, "b *a c"], values: int, of_channels: bool) -> Integer[Tensor, "b *a c"]:
    """The values x whose differences are d, int64: the inverse of `differences`."""
    grid = _grid(d.long())
    line = 1 in grid.shape[1:3]
    planes = (_restored_lines(grid, values) if line else _restored_grids(grid, values)).reshape(d.shape)
    return _channel_sums(planes, values) if of_channels else planes


def _restored_lines(grid: Tensor, values: int) -> Tensor:
    """Values [B', H, W, C] with H or W of 1: each site is predicted by the one before it, the first by V / 2."""
    return (grid.flatten(1, 2).cumsum(1) + values // 2) % values


def _restored_grids(grid: Tensor, values: int) -> Tensor:
    """Values [B', H, W, C], diagonal by diagonal: sites of one depend on those of the two before it only."""
    batch, height, width, channels = grid.shape
    rows = torch.arange(height, device=grid.device)
    skewed = grid.new_zeros(height + width + 1, height + 1, batch, channels)  # [diagonal + 2, row + 1]
    for diagonal in range(height + width - 1):
        some = rows[max(0, diagonal - width + 1) : diagonal + 1]
        columns = diagonal - some
        w, n, nw = skewed[diagonal + 1, some + 1], skewed[diagonal + 1, some], skewed[diagonal, some]
        first_row, first_column = (some == 0).view(-1, 1, 1), (columns == 0).view(-1, 1, 1)
        w, n, nw = _at_edges(w, n, nw, first_row, first_column, values)
        skewed[diagonal + 2, some + 1] = (grid[:, some, columns].movedim(1, 0) + _predicted(w, n, nw)) % values
    columns = torch.arange(width, device=grid.device)
    return skewed[rows[:, None] + columns + 2, rows[:, None] + 1].movedim(2, 0)


def _channel_differences(x: Tensor, values: int) -> Tensor:
    steps = (x[..., 1:] - x[..., :-1] + values // 2) % values
    return torch.cat([x[..., :1], steps], dim=-1)


def _channel_sums(planes: Tensor, values: int) -> Tensor:
    steps = torch.cat([planes[..., :1], planes[..., 1:] - values // 2], dim=-1)
    return steps.cumsum(-1) % values


def _grid(x: Tensor) -> Tensor:
    """[B, *A, C] as [B', H, W, C]: a sequence has one row, axes before the last two are part of the batch."""
    return x.unsqueeze(1) if x.ndim == 3 else x.flatten(0, -4)


def _neighbours(x: Tensor, values: int) -> tuple[Tensor, Tensor, Tensor]:
    """w, n and nw of every site, each of the shape of x."""
    grid = _grid(x)
    padded = torch.nn.functional.pad(grid, (0, 0, 1, 0, 1, 0))
    w, n, nw = padded[:, 1:, :-1], padded[:, :-1, 1:], padded[:, :-1, :-1]
    first_row = (torch.arange(grid.shape[1], device=x.device) == 0).view(-1, 1, 1)
    first_column = (torch.arange(grid.shape[2], device=x.device) == 0).view(-1, 1)
    w, n, nw = _at_edges(w, n, nw, first_row, first_column, values)
    return w.reshape(x.shape), n.reshape(x.shape), nw.reshape(x.shape)


def _at_edges(
    w: Tensor, n: Tensor, nw: Tensor, first_row: Tensor, first_column: Tensor, values: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Neighbours where there are none: in the first row those of w, in the first column those of n, at first V / 2."""
    w = torch.where(first_column, torch.where(first_row, values // 2, n), w)
    n = torch.where(first_row, w, n)
    return w, n, torch.where(first_row | first_column, n, nw)


def _predicted(w: Tensor, n: Tensor, nw: Tensor) -> Tensor:
    """The median of w, n and w + n - nw."""
    low, high = torch.minimum(w, n), torch.maximum(w, n)
    return (w + n - nw).clamp(low, high)
