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
from axial_transformers.models import AxialTransformerConfig
from axial_transformers.models.values import Mixture

NOISE_AT_ONCE = 1 << 20
"""Numbers of noise computed at a time: their float64 form takes 8 MiB."""


@runtime_checkable
class Choose(Protocol):
    """A choice of values: sampling takes them from the noise, completion keeps known ones, an archive reads them."""

    def __call__(self, logits: Float[Tensor, "b v"], position: tuple[int, ...]) -> Integer[Tensor, " b"]:
        """Logits [B, V] of the position (a1, .., ad, c), in data coordinates -> values int64 [B]."""
        ...


@dataclass(frozen=True, kw_only=True)
class Sampler:
    """argmax(logits + temperature * noise): with Gumbel noise, a sample of softmax(logits / temperature)."""

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
        """Logits and noise [B, V] -> values [B]; of ordinal values, a distribution and uniform numbers [B]."""
        if isinstance(logits, Mixture):
            if self.top_k is not None or self.top_p is not None:
                raise ValueError(
                    Message("{top_k} and {top_p} need values without an order: take a {temperature} below 1")
                )
            return logits.sample(noise, self.temperature)
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
class GumbelChoice:
    """A sample of every value, with fixed noise: at all positions, or at those of one row."""

    noise: Float[Tensor, "b *p v"]
    """[B, *A, C, V], standard Gumbel; of a row [B, L, V]."""
    sampler: Sampler = Sampler()
    known: Integer[Tensor, "b ..."] | None = None
    """Known values from 0, [B, *A, C] or of a row [B, L]; -1 where values are sampled. None: nowhere."""

    def __call__(
        self,
        logits: Float[Tensor, "b v"] | Mixture,
        position: tuple[int, ...],
        predicted: Integer[Tensor, " b"] | int = 0,
    ) -> Integer[Tensor, " b"]:
        """Logits [B, V] of a position, predicted values -> differences [B]; from 0 they are values."""
        sampled = self.sampler(logits, _at(self.noise, position))
        if self.known is None:
            return sampled
        known = _at(self.known, position)
        return torch.where(known < 0, sampled, _difference(known, predicted, logits))


@dataclass(frozen=True)
class KnownFirst:
    """Values where they are known, and another choice elsewhere."""

    known: Integer[Tensor, "b *a c"]
    """Counted from 0, as `AxialTransformer.check` returns them."""
    mask: Bool[Tensor, "*a c"]
    otherwise: "Choose | KnownFirst"


def choose_at(
    choose: Choose | KnownFirst,
    logits: Float[Tensor, "b v"] | Mixture,
    position: tuple[int, ...],
    predicted: Integer[Tensor, " b"] | int,
) -> Integer[Tensor, " b"]:
    """Return the choice at one position, as differences [B] from the predicted values.

    Known values are values: they become differences here. With `predicted` = 0, differences are values.
    """
    if isinstance(choose, GumbelChoice):
        return choose(logits, position, predicted)
    if not isinstance(choose, KnownFirst):
        return choose(logits.log_probabilities() if isinstance(logits, Mixture) else logits, position)
    if choose.mask[position]:
        return _difference(_at(choose.known, position).long(), predicted, logits)
    return choose_at(choose.otherwise, logits, position, predicted)


def _difference(known: Tensor, predicted: Tensor | int, logits: Tensor | Mixture) -> Tensor:
    return known if isinstance(logits, Mixture) else (known - predicted) % logits.shape[-1]


def noise_of(choose: Choose | KnownFirst) -> Float[Tensor, "b *a c v"] | None:
    """Return the noise of a choice; None if it is not made of tensors."""
    if isinstance(choose, KnownFirst):
        return noise_of(choose.otherwise)
    return choose.noise if isinstance(choose, GumbelChoice) else None


def row_choice(choose: Choose | KnownFirst, positions: Integer[Tensor, "l axes"]) -> GumbelChoice | None:
    """Return a choice, with `known`, along the row of these positions [L, d + 1]; None if it is not made of tensors."""
    row = tuple(positions.T)
    if isinstance(choose, GumbelChoice):
        noise, known = _at(choose.noise, row), choose.known
        unknown = torch.full(noise.shape[:2], -1, device=noise.device)
        return replace(choose, noise=noise, known=unknown if known is None else _at(known, row).long())
    if isinstance(choose, KnownFirst) and (otherwise := row_choice(choose.otherwise, positions)) is not None:
        known, own = _at(choose.known, row).long(), otherwise.known
        assert own is not None
        return replace(otherwise, known=torch.where(choose.mask[row].to(known.device), known, own))
    return None


def noise_shape(config: AxialTransformerConfig) -> tuple[int, ...]:
    """Return the shape of the noise of an example: [*A, C, V], or [*A, C] of ordinal values."""
    positions = *config.shape, config.channels
    return positions if config.values == "ordinal" else (*positions, config.num_values)


def noise_for(
    config: AxialTransformerConfig,
    batch: int,
    generator: torch.Generator | None = None,
    device: torch.device | str = "cpu",
) -> Float[Tensor, "..."]:
    """Return the noise of some examples: standard Gumbel, or uniform for ordinal values."""
    noise = uniform if config.values == "ordinal" else gumbel
    return noise((batch, *noise_shape(config)), generator, device)


def gumbel(
    shape: tuple[int, ...], generator: torch.Generator | None = None, device: torch.device | str = "cpu"
) -> Float[Tensor, "..."]:
    """Return standard Gumbel noise, float32.

    A CPU generator gives the same noise on every device, up to rounding. Numbers are generated in the order of memory:
    the noise of an example depends only on the generator and on how many numbers came before.
    """
    noise = torch.empty(shape, dtype=torch.float32, device=device)
    for part in noise.view(-1).split(NOISE_AT_ONCE):
        uniform = _uniform(len(part), generator).to(device)  # a GPU takes logarithms while the CPU generates
        part.copy_(uniform.clamp_(min=torch.finfo(torch.float64).tiny).log_().neg_().log_().neg_())
    return noise


def uniform(
    shape: tuple[int, ...], generator: torch.Generator | None = None, device: torch.device | str = "cpu"
) -> Float[Tensor, "..."]:
    """Return uniform numbers in (0, 1), float64; see `gumbel`."""
    noise = torch.empty(shape, dtype=torch.float64, device=device)
    for part in noise.view(-1).split(NOISE_AT_ONCE):
        part.copy_(_uniform(len(part), generator).clamp_(min=torch.finfo(torch.float64).tiny))
    return noise


def skip_noise(count: int, generator: torch.Generator) -> None:
    """Advance the generator as `gumbel` does for `count` values."""
    for start in range(0, count, NOISE_AT_ONCE):
        _uniform(min(NOISE_AT_ONCE, count - start), generator)


def _uniform(count: int, generator: torch.Generator | None) -> Float[Tensor, " n"]:
    device = "cpu" if generator is None else generator.device
    return torch.rand(count, generator=generator, dtype=torch.float64, device=device)


def _at(tensor: Tensor, positions: tuple[int | Tensor, ...]) -> Tensor:
    index: tuple[slice | int | Tensor, ...] = (slice(None), *positions)
    return tensor[index]
