"""Choices of values: functions of logits and position. Compiled rows need one that is made of tensors."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float, Integer
from numpy.typing import NDArray
from torch import Tensor

from axial_transformers.kernels import Stream

DRAWN_AT_ONCE = 1 << 20
"""Numbers of noise computed at a time: their float64 form takes 8 MiB."""


@runtime_checkable
class Choose(Protocol):
    """A choice of values: sampling draws them, completion keeps known ones, an archive reads them."""

    def __call__(self, logits: Float[Tensor, "b v"], site: tuple[int, ...]) -> Integer[Tensor, " b"]:
        """Logits [B, V] of the site (a1, .., ad, c), in data coordinates -> values int64 [B]."""
        ...


class CodesRows(Protocol):
    """A choice of whole rows in kernels: an archive's entropy decoder."""

    def __call__(
        self, read: Callable[[NDArray[np.int64], Stream], None], sites: Integer[Tensor, "l axes"]
    ) -> Integer[Tensor, "b l"]:
        """Return the values of a row [B, L].

        Args:
            read: takes values int64 [B, L], which it fills from a stream, and the stream.
            sites: [L, d + 1], the positions of the row.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class Draw:
    """argmax(logits + temperature * noise): with Gumbel noise, a draw from softmax(logits / temperature)."""

    temperature: float = 1.0
    """1 draws from the model's distribution; 0 takes the most likely value."""
    top_k: int | None = None
    """Draw only from the k most likely values, and ties with the last."""
    top_p: float | None = None
    """Draw only from the fewest most likely values that reach probability p, and ties with the last."""

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < inf:
            raise ValueError(f"temperature must be at least 0 and finite, not {self.temperature}")
        if self.top_k is not None and self.top_k < 1:
            raise ValueError(f"top_k must be at least 1, not {self.top_k}")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must be in (0, 1], not {self.top_p}")

    def __call__(self, logits: Float[Tensor, "b v"], noise: Float[Tensor, "b v"]) -> Integer[Tensor, " b"]:
        """Logits and noise [B, V] -> values [B]."""
        noisy = logits + self.temperature * noise
        if self.top_k is not None or self.top_p is not None:
            noisy = noisy.masked_fill(logits < self._least(logits), -torch.inf)
        return noisy.argmax(dim=-1)

    def _least(self, logits: Tensor) -> Tensor:
        """Return the least allowed logit [B, 1]: a threshold, so that tied values are kept together."""
        least = torch.full_like(logits[:, :1], -torch.inf)
        if self.top_k is not None and self.top_k < logits.shape[-1]:
            least = logits.topk(self.top_k).values[:, -1:]
        if self.top_p is not None and self.top_p < 1 and self.temperature > 0:
            ordered = logits.sort(dim=-1, descending=True).values
            reached = ((ordered - ordered[:, :1]) / self.temperature).exp().cumsum(dim=-1)
            before = (reached < self.top_p * reached[:, -1:]).sum(dim=-1, keepdim=True)
            least = torch.maximum(least, ordered.gather(-1, before))
        return least


@dataclass(frozen=True, kw_only=True)
class RowChoice:
    """The choices of one row."""

    noise: Float[Tensor, "b l v"]
    known: Integer[Tensor, "b l"]
    """-1 where values are drawn."""
    draw: Draw

    def __call__(
        self, logits: Float[Tensor, "b v"], i: int, predicted: Integer[Tensor, " b"] | int
    ) -> Integer[Tensor, " b"]:
        """Logits [B, V] of position i of the row, predicted values -> differences [B]; from 0 they are values."""
        known = self.known[:, i]
        return torch.where(known < 0, self.draw(logits, self.noise[:, i]), (known - predicted) % logits.shape[-1])


@dataclass(frozen=True, kw_only=True)
class GumbelChoice:
    """A draw of every value, with fixed noise."""

    noise: Float[Tensor, "b *a c v"]
    """[B, *A, C, V], standard Gumbel."""
    draw: Draw = Draw()

    def __call__(self, logits: Float[Tensor, "b v"], site: tuple[int, ...]) -> Integer[Tensor, " b"]:
        return self.draw(logits, _at(self.noise, site))


@dataclass(frozen=True)
class KnownFirst:
    """Values where they are known, and another choice elsewhere."""

    known: Integer[Tensor, "b *a c"]
    mask: Bool[Tensor, "*a c"]
    otherwise: "Choose | KnownFirst"


def choose_at(
    choose: Choose | KnownFirst,
    logits: Float[Tensor, "b v"],
    site: tuple[int, ...],
    predicted: Integer[Tensor, " b"] | int,
) -> Integer[Tensor, " b"]:
    """Return the choice at one position, as differences [B] from the predicted values.

    Known values are values: they become differences here. With `predicted` = 0, differences are values.
    """
    if not isinstance(choose, KnownFirst):
        return choose(logits, site)
    if choose.mask[site]:
        return (_at(choose.known, site).long() - predicted) % logits.shape[-1]
    return choose_at(choose.otherwise, logits, site, predicted)


def noise_of(choose: Choose | KnownFirst) -> Float[Tensor, "b *a c v"] | None:
    """Return the noise of a choice; None if it is not made of tensors."""
    if isinstance(choose, KnownFirst):
        return noise_of(choose.otherwise)
    return choose.noise if isinstance(choose, GumbelChoice) else None


def row_choice(choose: Choose | KnownFirst, sites: Integer[Tensor, "l axes"]) -> RowChoice | None:
    """Return a choice along the row of these positions [L, d + 1]; None if it is not made of tensors."""
    row = tuple(sites.T)
    if isinstance(choose, GumbelChoice):
        noise = _at(choose.noise, row)
        known = torch.full(noise.shape[:2], -1, device=noise.device)
        return RowChoice(noise=noise, known=known, draw=choose.draw)
    if isinstance(choose, KnownFirst) and (otherwise := row_choice(choose.otherwise, sites)) is not None:
        known = _at(choose.known, row).long()
        return replace(otherwise, known=torch.where(choose.mask[row].to(known.device), known, otherwise.known))
    return None


def gumbel(
    shape: tuple[int, ...], generator: torch.Generator | None = None, device: torch.device | str = "cpu"
) -> Float[Tensor, "..."]:
    """Return standard Gumbel noise, float32.

    A CPU generator gives the same noise on every device, up to rounding. Numbers are generated in the order of memory:
    the noise of an example depends only on the generator and on how many numbers came before.
    """
    noise = torch.empty(shape, dtype=torch.float32, device=device)
    for part in noise.view(-1).split(DRAWN_AT_ONCE):
        uniform = _uniform(len(part), generator).to(device)  # a GPU takes logarithms while the CPU draws
        part.copy_(uniform.clamp_(min=torch.finfo(torch.float64).tiny).log_().neg_().log_().neg_())
    return noise


def skip_noise(count: int, generator: torch.Generator) -> None:
    """Advance the generator as `gumbel` does for `count` values."""
    for start in range(0, count, DRAWN_AT_ONCE):
        _uniform(min(DRAWN_AT_ONCE, count - start), generator)


def _uniform(count: int, generator: torch.Generator | None) -> Float[Tensor, " n"]:
    device = "cpu" if generator is None else generator.device
    return torch.rand(count, generator=generator, dtype=torch.float64, device=device)


def _at(tensor: Tensor, sites: tuple[int | Tensor, ...]) -> Tensor:
    index: tuple[slice | int | Tensor, ...] = (slice(None), *sites)
    return tensor[index]
