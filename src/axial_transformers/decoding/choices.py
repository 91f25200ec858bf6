"""Choices of values: functions of logits and position."""

from dataclasses import dataclass, replace
from math import inf
from typing import Protocol, Self, runtime_checkable

import torch
from jaxtyping import Float, Integer
from torch import Tensor

from axial_transformers.models.values import Mixture


@runtime_checkable
class Choose(Protocol):
    """A choice of values."""

    def __call__(self, logits: Float[Tensor, "b v"], position: tuple[int, ...]) -> Integer[Tensor, " b"]:
        """Logits [B, V] of the position (a1, .., ad, c), in data coordinates -> values int64 [B]."""


@dataclass(frozen=True, kw_only=True)
class Sampler:
    """A sample of softmax(logits / temperature), as a function of logits and noise.

    | noise of a position | value |
    |---|---|
    | standard Gumbel, one number a value | argmax(logits + temperature * noise) |
    | uniform in (0, 1), one number | the first v with P(0) + ... + P(v) > noise |
    """

    temperature: float = 1.0
    """1 samples from the model's distribution; 0 takes the most likely value."""
    top_k: int | None = None
    """Sample only from the k most likely values, and ties with the last."""
    top_p: float | None = None
    """Sample only from the fewest most likely values that reach probability p, and ties with the last."""

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < inf:
            raise ValueError(f"temperature must be at least 0 and finite, not {self.temperature}")
        if self.top_k is not None and self.top_k < 1:
            raise ValueError(f"top_k must be at least 1, not {self.top_k}")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must be in (0, 1], not {self.top_p}")

    def __call__(self, logits: Float[Tensor, "b v"] | Mixture, noise: Float[Tensor, "b ..."]) -> Integer[Tensor, " b"]:
        """Logits [B, V] and noise, Gumbel [B, V] or uniform [B] -> values [B]; of a mixture, uniform noise [B]."""
        if isinstance(logits, Mixture):
            assert self.top_k is self.top_p is None, "`sample` refuses them"
            return logits.sample(noise, self.temperature)
        if self.top_k or self.top_p:
            logits = logits.masked_fill(logits < self._least(logits), -torch.inf)
        if noise.ndim == logits.ndim:
            return (logits + self.temperature * noise).argmax(dim=-1)
        if self.temperature == 0:
            return logits.argmax(dim=-1)
        wide = logits.double()
        reached = ((wide - wide.amax(dim=-1, keepdim=True)) / self.temperature).exp().cumsum(dim=-1)
        total = reached[:, -1]
        # Where noise is near 1, the product may be rounded up to the total, which no value exceeds.
        least = torch.minimum(noise * total, torch.nextafter(total, torch.zeros_like(total)))
        return (reached > least[:, None]).to(torch.uint8).argmax(dim=-1)

    def _least(self, logits: Tensor) -> Tensor:
        """Return the least allowed logit [B, 1]: a threshold, so that tied values are kept together."""
        least = torch.full_like(logits[:, :1], -torch.inf)
        if self.top_k and self.top_k < logits.shape[-1]:
            least = logits.topk(self.top_k).values[:, -1:]
        if self.top_p and self.top_p < 1 and self.temperature > 0:
            ordered = logits.sort(dim=-1, descending=True).values
            reached = ((ordered - ordered[:, :1]) / self.temperature).exp().cumsum(dim=-1)
            before = (reached < self.top_p * reached[:, -1:]).sum(dim=-1, keepdim=True)
            least = torch.maximum(least, ordered.gather(-1, before))
        return least


@dataclass(frozen=True, kw_only=True)
class NoiseChoice:
    """A sample of every unknown value, with fixed noise: at all positions, or at those of one row.

    Backends compile only this choice: it is made of tensors.
    """

    noise: Float[Tensor, "b ..."]
    """Standard Gumbel [B, *A, C, V], of a row [B, L, V]; or uniform [B, *A, C], of a row [B, L]. See `Sampler`."""
    sampler: Sampler = Sampler()
    known: Integer[Tensor, "b ..."] | None = None
    """Known values from 0, [B, *A, C] or of a row [B, L]; -1 where values are sampled. None: nowhere."""

    def __call__(self, logits: Float[Tensor, "b v"] | Mixture, position: tuple[int, ...]) -> Integer[Tensor, " b"]:
        """Logits [B, V] of a position, or a mixture -> values [B]."""
        sampled = self.sampler(logits, _at(self.noise, position))
        if self.known is None:
            return sampled
        known = _at(self.known, position)
        return torch.where(known < 0, sampled, known)

    def of_row(self, positions: Integer[Tensor, "l axes"]) -> Self:
        """Return the choice, with `known`, along the row of these positions [L, d + 1]."""
        row = tuple(positions.T)
        noise = _at(self.noise, row)
        unknown = torch.full(noise.shape[:2], -1, device=noise.device)
        return replace(self, noise=noise, known=unknown if self.known is None else _at(self.known, row).long())


def choose_at(
    choose: Choose, logits: Float[Tensor, "b v"] | Mixture, position: tuple[int, ...]
) -> Integer[Tensor, " b"]:
    """Return the choice at one position: values [B]. Only `NoiseChoice` takes a mixture as it is."""
    if isinstance(choose, NoiseChoice):
        return choose(logits, position)
    return choose(logits.log_probabilities() if isinstance(logits, Mixture) else logits, position)


def _at(tensor: Tensor, positions: tuple[int | Tensor, ...]) -> Tensor:
    index: tuple[slice | int | Tensor, ...] = (slice(None), *positions)
    return tensor[index]
