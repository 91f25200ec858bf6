"""Choices of values: functions of logits and position."""

from dataclasses import dataclass, replace
from math import inf
from typing import Protocol, Self, runtime_checkable

import torch
from jaxtyping import Float, Integer
from torch import Tensor

from axial_transformers.models.values import Distribution
from axial_transformers.models.values.categorical import Softmax


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

    def __call__(self, logits: Float[Tensor, "b v"], noise: Float[Tensor, "b ..."]) -> Integer[Tensor, " b"]:
        """Logits [B, V] and noise, Gumbel [B, V] or uniform [B] -> values [B]."""
        return self.draw(Softmax(logits), noise)

    def draw(self, distribution: Distribution, noise: Float[Tensor, "b ..."]) -> Integer[Tensor, " b"]:
        """Distributions of B positions and the noise that they take -> values [B]."""
        return distribution.sample(noise, self.temperature, self.top_k, self.top_p)


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

    def __call__(self, logits: Float[Tensor, "b v"], position: tuple[int, ...]) -> Integer[Tensor, " b"]:
        """Logits [B, V] of a position -> values [B]."""
        return self.draw(Softmax(logits), position)

    def draw(self, distribution: Distribution, position: tuple[int, ...]) -> Integer[Tensor, " b"]:
        """Distributions of a position -> values [B]."""
        sampled = self.sampler.draw(distribution, _at(self.noise, position))
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


def choose_at(choose: Choose, distribution: Distribution, position: tuple[int, ...]) -> Integer[Tensor, " b"]:
    """Return the choice at one position: values [B]. Only `NoiseChoice` takes distributions as they are."""
    if isinstance(choose, NoiseChoice):
        return choose.draw(distribution, position)
    return choose(distribution.log_probabilities(), position)


def _at(tensor: Tensor, positions: tuple[int | Tensor, ...]) -> Tensor:
    index: tuple[slice | int | Tensor, ...] = (slice(None), *positions)
    return tensor[index]
