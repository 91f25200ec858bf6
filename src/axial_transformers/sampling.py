"""Samples and completions: what the one decoding loop is told to choose."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from axial_transformers.decoding import Choose, decode
from axial_transformers.models.axial_transformer import AxialTransformer


@dataclass(frozen=True, kw_only=True)
class GumbelChoice:
    """argmax(logits + temperature * noise): a draw from softmax(logits / temperature) where the noise is standard Gumbel."""

    noise: Float[Tensor, "b *a c v"]
    """[B, *A, C, V]."""
    temperature: float = 1.0
    top_k: int | None = None
    """Only the k most likely values can be drawn."""
    top_p: float | None = None
    """Only the most likely values that together reach probability p can be drawn."""

    def __post_init__(self) -> None:
        if self.temperature < 0:
            raise ValueError(f"temperature must be at least 0, not {self.temperature}")
        if self.top_k is not None and self.top_k < 1:
            raise ValueError(f"top_k must be at least 1, not {self.top_k}")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must be in (0, 1], not {self.top_p}")

    def __call__(self, logits: Float[Tensor, "b v"], site: tuple[int, ...]) -> Int[Tensor, " b"]:
        """Logits [B, V] -> values [B]."""
        noisy = logits + self.temperature * self.noise[(slice(None), *site)]
        return noisy.masked_fill(self._excluded(logits), -torch.inf).argmax(dim=-1)

    def _excluded(self, logits: Tensor) -> Tensor:
        excluded = torch.zeros_like(logits, dtype=torch.bool)
        if self.top_k is not None and self.top_k < logits.shape[-1]:
            excluded |= logits < logits.topk(self.top_k).values[:, -1:]
        if self.top_p is not None and self.temperature > 0:
            ordered, index = (logits / self.temperature).softmax(dim=-1).sort(dim=-1, descending=True)
            reached = ordered.cumsum(dim=-1) - ordered >= self.top_p
            excluded |= torch.zeros_like(excluded).scatter(-1, index, reached)
        return excluded


@dataclass(frozen=True)
class KnownFirst:
    """Values where they are known, and another choice elsewhere."""

    known: Int[Tensor, "b *a c"]
    mask: Bool[Tensor, "*a c"]
    otherwise: Choose

    def __call__(self, logits: Float[Tensor, "b v"], site: tuple[int, ...]) -> Int[Tensor, " b"]:
        """Logits [B, V] -> values [B]."""
        return self.known[(slice(None), *site)] if self.mask[site] else self.otherwise(logits, site)


def gumbel(shape: tuple[int, ...], generator: torch.Generator | None = None) -> Float[Tensor, "..."]:
    """Standard Gumbel noise, float32, drawn on the CPU so that a seed means the same on every device."""
    uniform = torch.rand(shape, generator=generator, dtype=torch.float64).clamp_(min=torch.finfo(torch.float64).tiny)
    return uniform.log_().neg_().log_().neg_().float()


def sample(
    model: AxialTransformer,
    count: int | None = None,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    generator: torch.Generator | None = None,
    noise: Float[Tensor, "b *a c v"] | None = None,
    label: Int[Tensor, " b"] | None = None,
    cond: Float[Tensor, "b *a d"] | None = None,
    known: Int[Tensor, "b *a c"] | None = None,
) -> Int[Tensor, "b *a c"]:
    """Draws from the model.

    Args:
        count: how many, B; may be left out where `noise`, `label`, `cond` or `known` says it.
        temperature: 1 samples the model; 0 takes the most likely value of every site.
        top_k, top_p: restrict each draw to the most likely values.
        generator: a CPU generator, for samples that repeat.
        noise: [B, *A, C, V] standard Gumbel noise, in place of the generator's: sample = argmax(logits + temperature * noise).
        label: [B] classes. cond: [B, *A, D].
        known: [B, *A, C] data whose first known_channels are given; required where the model has known_channels.

    Returns:
        [B, *A, C] uint8 if V <= 256, else int64, on the model's device.

    Raises:
        ValueError: sizes that disagree, or an option out of range.
    """
    config = model.config
    device = model.embed_value.table.device
    sizes = {len(tensor) for tensor in (noise, label, cond, known) if tensor is not None} | ({count} - {None})
    if len(sizes) != 1:
        raise ValueError(
            f"how many samples? count, noise, label, cond and known together say {sorted(sizes) or 'nothing'}"
        )
    batch = sizes.pop()
    site_values = (*config.shape, config.channels, config.num_values)
    if noise is None:
        noise = gumbel((batch, *site_values), generator)
    elif noise.shape != (batch, *site_values):
        raise ValueError(f"noise must be {[batch, *site_values]}, not {list(noise.shape)}")
    if known is None:
        if config.known_channels:
            raise ValueError(f"the model's first {config.known_channels} channels are given: pass them as known=")
        known = torch.zeros(batch, *site_values[:-1], dtype=torch.int64)
    choose = GumbelChoice(noise=noise.to(device), temperature=temperature, top_k=top_k, top_p=top_p)
    return _compact(decode(model, choose, known.to(device), label, cond), config.num_values)


def _compact(x: Tensor, num_values: int) -> Tensor:
    return x.to(torch.uint8) if num_values <= 256 else x
