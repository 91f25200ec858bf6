"""What decides the values of sites: any function of logits and site; compiled rows need one that is made of tensors."""

from dataclasses import dataclass, replace
from math import inf
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor


@runtime_checkable
class Choose(Protocol):
    """What decides the values: sampling draws them, completion keeps known ones, an archive's decoder reads them."""

    def __call__(self, logits: Float[Tensor, "b v"], site: tuple[int, ...]) -> Integer[Tensor, " b"]:
        """Logits [B, V] of the site (a1, .., ad, c), in data coordinates -> values int64 [B]."""
        ...


@dataclass(frozen=True, kw_only=True)
class RowChoice:
    """All that decides one row: argmax(logits + temperature * noise), or what is known."""

    noise: Float[Tensor, "b l v"]
    known: Integer[Tensor, "b l"]
    """Values, or -1 where the noise decides."""
    temperature: float
    top_k: int | None
    top_p: float | None

    def __call__(self, logits: Float[Tensor, "b v"], i: int) -> Integer[Tensor, " b"]:
        """Logits [B, V] of the row's site i -> values [B]."""
        drawn = _draw(logits, self.noise[:, i], self.temperature, self.top_k, self.top_p)
        return torch.where(self.known[:, i] < 0, drawn, self.known[:, i])


@dataclass(frozen=True, kw_only=True)
class GumbelChoice:
    """argmax(logits + temperature * noise): with standard Gumbel noise, a draw from softmax(logits / temperature)."""

    noise: Float[Tensor, "b *a c v"]
    """[B, *A, C, V]."""
    temperature: float = 1.0
    top_k: int | None = None
    """Only the k most likely values can be drawn."""
    top_p: float | None = None
    """Only the most likely values that together reach probability p can be drawn."""

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < inf:
            raise ValueError(f"temperature must be at least 0 and finite, not {self.temperature}")
        if self.top_k is not None and self.top_k < 1:
            raise ValueError(f"top_k must be at least 1, not {self.top_k}")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must be in (0, 1], not {self.top_p}")

    def __call__(self, logits: Float[Tensor, "b v"], site: tuple[int, ...]) -> Integer[Tensor, " b"]:
        """Logits [B, V] -> values [B]."""
        return _draw(logits, _at(self.noise, site), self.temperature, self.top_k, self.top_p)


@dataclass(frozen=True)
class KnownFirst:
    """Values where they are known, and another choice elsewhere."""

    known: Integer[Tensor, "b *a c"]
    mask: Bool[Tensor, "*a c"]
    otherwise: Choose

    def __call__(self, logits: Float[Tensor, "b v"], site: tuple[int, ...]) -> Integer[Tensor, " b"]:
        """Logits [B, V] -> values [B]."""
        return _at(self.known, site).long() if self.mask[site] else self.otherwise(logits, site)


def noise_of(choose: Choose) -> Float[Tensor, "b *a c v"] | None:
    """The noise that decides; None if `choose` is not made of tensors."""
    if isinstance(choose, KnownFirst):
        return noise_of(choose.otherwise)
    return choose.noise if isinstance(choose, GumbelChoice) else None


def row_choice(choose: Choose, sites: Integer[Tensor, "l axes"]) -> RowChoice | None:
    """What `choose` amounts to along the row of these sites [L, d + 1]; None if it is not made of tensors."""
    row = tuple(sites.T)
    if isinstance(choose, GumbelChoice):
        noise = _at(choose.noise, row)
        known = torch.full(noise.shape[:2], -1, device=noise.device)
        return RowChoice(
            noise=noise, known=known, temperature=choose.temperature, top_k=choose.top_k, top_p=choose.top_p
        )
    if isinstance(choose, KnownFirst) and (otherwise := row_choice(choose.otherwise, sites)) is not None:
        known = _at(choose.known, row).long()
        return replace(otherwise, known=torch.where(choose.mask[row].to(known.device), known, otherwise.known))
    return None


def gumbel(shape: tuple[int, ...], generator: torch.Generator | None = None) -> Float[Tensor, "..."]:
    """Standard Gumbel noise, float32, drawn on the CPU so that a seed means the same on every device."""
    uniform = torch.rand(shape, generator=generator, dtype=torch.float64).clamp_(min=torch.finfo(torch.float64).tiny)
    return uniform.log_().neg_().log_().neg_().float()


def _at(tensor: Tensor, sites: tuple[int | Tensor, ...]) -> Tensor:
    """What a tensor [B, *A, C, ..] holds at a site, or at each of several, of every example."""
    index: tuple[slice | int | Tensor, ...] = (slice(None), *sites)
    return tensor[index]


def _draw(logits: Tensor, noise: Tensor, temperature: float, top_k: int | None, top_p: float | None) -> Tensor:
    noisy = logits + temperature * noise
    return noisy.masked_fill(_excluded(logits, temperature, top_k, top_p), -torch.inf).argmax(dim=-1)


def _excluded(logits: Tensor, temperature: float, top_k: int | None, top_p: float | None) -> Tensor:
    excluded = torch.zeros_like(logits, dtype=torch.bool)
    if top_k is not None and top_k < logits.shape[-1]:
        excluded |= logits < logits.topk(top_k).values[:, -1:]
    if top_p is not None and top_p < 1 and temperature > 0:
        ordered, index = (logits / temperature).softmax(dim=-1).sort(dim=-1, descending=True)
        reached = ordered.cumsum(dim=-1) - ordered >= top_p
        excluded |= torch.zeros_like(excluded).scatter(-1, index, reached)
    return excluded
