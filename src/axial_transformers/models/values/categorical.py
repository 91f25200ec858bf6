"""Values without an order, as in the paper: a table embeds them, and each has a logit."""

from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Integer
from torch import Tensor, nn

from axial_transformers.engine import Array, Categorical
from axial_transformers.layers.embeddings import Embedding
from axial_transformers.models.config import AxialTransformerConfig
from axial_transformers.models.values.kind import Values

MAX_GUMBEL = 256
"""Values up to which samples take Gumbel noise: beyond, it would take most of the memory and time of sampling."""


class CategoricalValues(Values):
    """V values without an order, by a softmax."""

    takes_top_k = True
    trains_in_autocast = True

    def __init__(self, config: AxialTransformerConfig):
        super().__init__(config)
        self.features = Scaled(config.divisor)

    @staticmethod
    def outputs_of(config: AxialTransformerConfig) -> int:
        return config.num_values

    @staticmethod
    def gumbel_numbers(config: AxialTransformerConfig) -> int:
        return config.num_values if config.num_values <= MAX_GUMBEL else 0

    def embedding(self, dim: int, depth: int = 1) -> nn.Module:
        assert depth == 1, "the configuration refuses more"
        return ValueEmbedding(self.num_values, dim)

    def distribution(self, outputs: Float[Tensor, "*s o"], centres: Integer[Tensor, "*s"]) -> "Softmax":
        return Softmax(outputs)

    def nats(self, outputs: Float[Tensor, "*s o"], codes: Integer[Tensor, "*s"]) -> Float[Tensor, "*s"]:
        # With classes in a strided dimension, it is ten times slower.
        return F.cross_entropy(outputs.flatten(0, -2), codes.flatten(), reduction="none").view(codes.shape)

    def in_engine(self, embedding: nn.Module) -> Categorical:
        return Categorical(table_of(embedding))


class ValueEmbedding(Embedding):
    """A table of the values of positions that hold one."""

    def forward(self, codes: Integer[Tensor, "*s 1"]) -> Float[Tensor, "*s d"]:
        return super().forward(codes.squeeze(-1))


class Scaled(NamedTuple):
    """The number that the channel encoder takes of a value: the value, divided."""

    divisor: int
    size: int = 1

    def __call__(self, codes: Integer[Tensor, "*s"], dtype: torch.dtype) -> Float[Tensor, "*s 1"]:
        return (codes.to(dtype) / self.divisor).unsqueeze(-1)


class Softmax(NamedTuple):
    """Distributions by a logit for each value."""

    logits: Float[Tensor, "*s v"]

    def log_probabilities(self) -> Float[Tensor, "*s v"]:
        """Return the logits: log p up to a constant."""
        return self.logits

    def sample(
        self, noise: Float[Tensor, "b ..."], temperature: float, top_k: int | None, top_p: float | None
    ) -> Integer[Tensor, " b"]:
        """Return a value for each of B positions; see `decoding.Sampler`.

        Args:
            noise: standard Gumbel [B, V], or uniform in (0, 1) [B].
        """
        logits = self.logits
        if top_k or top_p:
            logits = logits.masked_fill(logits < self._least(temperature, top_k, top_p), -torch.inf)
        if noise.ndim == logits.ndim:
            return (logits + temperature * noise).argmax(dim=-1)
        if temperature == 0:
            return logits.argmax(dim=-1)
        wide = logits.double()
        reached = ((wide - wide.amax(dim=-1, keepdim=True)) / temperature).exp().cumsum(dim=-1)
        total = reached[:, -1]
        # Where noise is near 1, the product may be rounded up to the total, which no value exceeds.
        least = torch.minimum(noise * total, torch.nextafter(total, torch.zeros_like(total)))
        return (reached > least[:, None]).to(torch.uint8).argmax(dim=-1)

    def _least(self, temperature: float, top_k: int | None, top_p: float | None) -> Float[Tensor, "b 1"]:
        """Return the least allowed logit: a threshold, so that tied values are kept together."""
        logits = self.logits
        least = torch.full_like(logits[:, :1], -torch.inf)
        if top_k and top_k < logits.shape[-1]:
            least = logits.topk(top_k).values[:, -1:]
        if top_p and top_p < 1 and temperature > 0:
            ordered = logits.sort(dim=-1, descending=True).values
            reached = ((ordered - ordered[:, :1]) / temperature).exp().cumsum(dim=-1)
            before = (reached < top_p * reached[:, -1:]).sum(dim=-1, keepdim=True)
            least = torch.maximum(least, ordered.gather(-1, before))
        return least


def table_of(embedding: nn.Module) -> Array:
    """Return the table of an embedding, float32 [V, D]."""
    table = embedding.get_parameter("table").detach()
    return np.ascontiguousarray(table.to("cpu", torch.float32).numpy())
