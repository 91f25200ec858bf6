"""Choices of values: functions of logits and position. Compiled rows need one that is made of tensors.

The decoder of an archive is none of these: it reads whole rows from a stream (`backend.ReadsRow`).
"""

from dataclasses import dataclass, replace
from math import inf
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor

from axial_transformers.messages import Message
from axial_transformers.models.values import Mixture


@runtime_checkable
class Choose(Protocol):
    """A choice of values: sampling takes them from the noise, completion keeps known ones, an archive reads them."""

    def __call__(self, logits: Float[Tensor, "b v"], position: tuple[int, ...]) -> Integer[Tensor, " b"]:
        """Logits [B, V] of the position (a1, .., ad, c), in data coordinates -> values int64 [B]."""
        ...


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
            raise ValueError(Message("{temperature} must be at least 0 and finite, not {}", self.temperature))
        if self.top_k is not None and self.top_k < 1:
            raise ValueError(Message("{top_k} must be at least 1, not {}", self.top_k))
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise ValueError(Message("{top_p} must be in (0, 1], not {}", self.top_p))

    def __call__(self, logits: Float[Tensor, "b v"] | Mixture, noise: Float[Tensor, "b ..."]) -> Integer[Tensor, " b"]:
        """Logits [B, V] and noise, Gumbel [B, V] or uniform [B] -> values [B]; of a mixture, uniform noise [B]."""
        if isinstance(logits, Mixture):
            assert self.top_k is self.top_p is None, "`sample` refuses them"
            return logits.sample(noise, self.temperature)
        if self.top_k is not None or self.top_p is not None:
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
        if self.top_k is not None and self.top_k < logits.shape[-1]:
            least = logits.topk(self.top_k).values[:, -1:]
        if self.top_p is not None and self.top_p < 1 and self.temperature > 0:
            ordered = logits.sort(dim=-1, descending=True).values
            reached = ((ordered - ordered[:, :1]) / self.temperature).exp().cumsum(dim=-1)
            before = (reached < self.top_p * reached[:, -1:]).sum(dim=-1, keepdim=True)
            least = torch.maximum(least, ordered.gather(-1, before))
        return least


@dataclass(frozen=True, kw_only=True)
class NoiseChoice:
    """A sample of every value, with fixed noise: at all positions, or at those of one row."""

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


@dataclass(frozen=True)
class KnownFirst:
    """Values where they are known, and another choice elsewhere."""

    known: Integer[Tensor, "b *a c"]
    """Counted from 0, as `AxialTransformer.check` returns them."""
    mask: Bool[Tensor, "*a c"]
    otherwise: "Choose | KnownFirst"


def choose_at(
    choose: Choose | KnownFirst, logits: Float[Tensor, "b v"] | Mixture, position: tuple[int, ...]
) -> Integer[Tensor, " b"]:
    """Return the choice at one position: values [B]."""
    if isinstance(choose, NoiseChoice):
        return choose(logits, position)
    if not isinstance(choose, KnownFirst):
        return choose(logits.log_probabilities() if isinstance(logits, Mixture) else logits, position)
    if choose.mask[position]:
        return _at(choose.known, position).long()
    return choose_at(choose.otherwise, logits, position)


def noise_of(choose: Choose | KnownFirst) -> Float[Tensor, "b ..."] | None:
    """Return the noise of a choice; None if it is not made of tensors."""
    if isinstance(choose, KnownFirst):
        return noise_of(choose.otherwise)
    return choose.noise if isinstance(choose, NoiseChoice) else None


def row_choice(choose: Choose | KnownFirst, positions: Integer[Tensor, "l axes"]) -> NoiseChoice:
    """Return a choice of tensors (see `noise_of`), with `known`, along the row of these positions [L, d + 1]."""
    row = tuple(positions.T)
    if isinstance(choose, KnownFirst):
        otherwise, known = row_choice(choose.otherwise, positions), _at(choose.known, row).long()
        assert otherwise.known is not None
        return replace(otherwise, known=torch.where(choose.mask[row].to(known.device), known, otherwise.known))
    assert isinstance(choose, NoiseChoice)
    noise = _at(choose.noise, row)
    unknown = torch.full(noise.shape[:2], -1, device=noise.device)
    return replace(choose, noise=noise, known=unknown if choose.known is None else _at(choose.known, row).long())


def _at(tensor: Tensor, positions: tuple[int | Tensor, ...]) -> Tensor:
    index: tuple[slice | int | Tensor, ...] = (slice(None), *positions)
    return tensor[index]
