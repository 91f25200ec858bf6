"""What the values of a model are: how layers see them, and how the last state becomes a distribution.

The network reads the *code* of a position: its value or, if values are centred, value + V * prediction. So one integer
tensor flows through the model, and each part takes from it what it needs.

    categorical   a table of V rows; a softmax of V logits (the paper)
    ordinal       features of numbers; a mixture of K logistic distributions, discretised
"""

from math import log
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Integer
from torch import Tensor, nn

from axial_transformers.engine import MIN_LOG_PRECISION
from axial_transformers.layers.embeddings import Embedding
from axial_transformers.layers.initialisation import Dense
from axial_transformers.models.config import AxialTransformerConfig
from axial_transformers.models.linear_prediction import LinearPrediction

FIRST_WIDTHS = 0.25, 8.0
"""Widths of the components of a new model, in units of the spread: from narrow to wide."""
SCALES = tuple(4**power for power in range(8))
"""Sizes of differences that features tell apart."""


class Scaled(NamedTuple):
    """The feature of a categorical value for the channel encoder: the value, divided."""

    divisor: int
    size: int = 1

    def __call__(self, codes: Integer[Tensor, "*s"], dtype: torch.dtype) -> Float[Tensor, "*s 1"]:
        return (codes.to(dtype) / self.divisor).unsqueeze(-1)


class Features(NamedTuple):
    """Features of an ordinal value: scaled to -1..1; its two bytes, above 256 values; and its centred difference.

    Of a difference d, at each scale t: d and |d| over |d| + t. All are exact divisions in float64, rounded once: every
    processor gets the same numbers.
    """

    num_values: int
    scales: tuple[int, ...]
    """Of differences; none if values are not centred."""

    @property
    def size(self) -> int:
        """Return how many numbers a position has."""
        return (3 if self.num_values > 256 else 1) + 2 * len(self.scales)

    def __call__(self, codes: Integer[Tensor, "*s"], dtype: torch.dtype) -> Float[Tensor, "*s f"]:
        """Return the features of codes."""
        values = codes % self.num_values
        differences = values - codes // self.num_values
        return torch.cat([self.of_values(values), self.of_differences(differences)], dim=-1).to(dtype)

    def of_values(self, values: Integer[Tensor, "*s"]) -> Float[Tensor, "*s f"]:
        """Return the features of values, float64."""
        found = [2 * values.double() / (self.num_values - 1) - 1]
        if self.num_values > 256:
            found += [(values // 256).double() / 127.5 - 1, (values % 256).double() / 127.5 - 1]
        return torch.stack(found, dim=-1)

    def of_differences(self, differences: Integer[Tensor, "*s"]) -> Float[Tensor, "*s g"]:
        """Return the features of differences from predictions, float64."""
        parts = [differences.double() / (differences.abs() + scale) for scale in self.scales]
        found = [feature for part in parts for feature in (part, part.abs())]
        return torch.stack(found, dim=-1) if found else differences.double().unsqueeze(-1)[..., :0]


def features_of(config: AxialTransformerConfig) -> Scaled | Features:
    """Return the features of the values of a model."""
    if config.values == "categorical":
        return Scaled(config.divisor)
    scales = tuple(scale for scale in SCALES if scale < config.num_values)
    return Features(config.num_values, scales if config.centred else ())


class FeatureEmbedding(nn.Module):
    """A linear layer on the features of codes."""

    def __init__(self, features: Features, dim: int):
        super().__init__()
        self.features = features
        self.linear = Dense(features.size, dim)

    def forward(self, codes: Integer[Tensor, "*s"]) -> Float[Tensor, "*s d"]:
        """Return the embedding [*s, dim] of codes [*s]."""
        return self.linear(self.features(codes, next(self.parameters()).dtype))


class CategoricalValues(nn.Module):
    """Values without an order: a table embeds them, and each has a logit."""

    def __init__(self, config: AxialTransformerConfig):
        super().__init__()
        self.num_values = config.num_values
        self.outputs = config.num_logits
        self.features = features_of(config)

    def embedding(self, dim: int) -> Embedding:
        """Return the layer that embeds codes."""
        return Embedding(self.num_values, dim)

    def codes(self, x: Integer[Tensor, "b *a c"]) -> Integer[Tensor, "b *a c"]:
        """Return the codes of values: the values."""
        return x

    def values(self, codes: Integer[Tensor, "*s"]) -> Integer[Tensor, "*s"]:
        """Return the values of codes."""
        return codes

    def nats(self, outputs: Float[Tensor, "*s o"], codes: Integer[Tensor, "*s"]) -> Float[Tensor, "*s"]:
        """Return -log p of the values of codes."""
        # With classes in a strided dimension, it is ten times slower.
        return F.cross_entropy(outputs.flatten(0, -2), codes.flatten(), reduction="none").view(codes.shape)

    def log_probabilities(self, outputs: Float[Tensor, "*s o"], codes: Integer[Tensor, "*s"]) -> Float[Tensor, "*s v"]:
        """Return the logits of all values."""
        return outputs

    def centres(self, codes: Integer[Tensor, "*s"]) -> Integer[Tensor, "*s"]:
        """Return any numbers: values without an order have no centres."""
        return codes

    def middles(self, context: Float[Tensor, "b ..."]) -> Tensor:
        """Return any numbers: values without an order have no centres."""
        return context

    def distribution(self, outputs: Float[Tensor, "*s o"], centres: Tensor) -> Float[Tensor, "*s o"]:
        """Return the logits of all values: the head's outputs."""
        return outputs


class OrdinalValues(nn.Module):
    """Values with an order: P(v) = sum_k w_k [F((v + 1/2 - mean_k) p_k) - F((v - 1/2 - mean_k) p_k)], F logistic.

    The first bin is open below, the last one above. The head gives each component's weight (a logit), mean and log
    precision, K numbers each. Means count from the prediction, in units of `spread`.
    """

    spread: Tensor
    """The mean size of differences from predictions, float32 []."""

    def __init__(self, config: AxialTransformerConfig):
        super().__init__()
        self.num_values = config.num_values
        self.mixtures = config.mixtures
        self.outputs = config.num_logits
        self.max_log_precision = config.max_log_precision
        self.middle = (config.num_values - 1) // 2
        self.prediction = None
        if config.centred:
            self.prediction = LinearPrediction(config.shape, config.channels, config.num_values)
        self.features = features_of(config)
        self.register_buffer("spread", torch.tensor(self.num_values / 4))

    def embedding(self, dim: int) -> FeatureEmbedding:
        """Return the layer that embeds codes."""
        assert isinstance(self.features, Features)
        return FeatureEmbedding(self.features, dim)

    def codes(self, x: Integer[Tensor, "b *a c"]) -> Integer[Tensor, "b *a c"]:
        """Return the codes of values 0..V-1."""
        return x + self.num_values * self.prediction(x) if self.prediction else x

    def values(self, codes: Integer[Tensor, "*s"]) -> Integer[Tensor, "*s"]:
        """Return the values of codes."""
        return codes % self.num_values

    def centres(self, codes: Integer[Tensor, "*s"]) -> Integer[Tensor, "*s"]:
        """Return the values from which means count: the predictions, or the middle."""
        return codes // self.num_values if self.prediction else torch.full_like(codes, self.middle)

    def middles(self, context: Float[Tensor, "b ..."]) -> Integer[Tensor, " b"]:
        """Return the centres of values that are not centred."""
        return torch.full((len(context),), self.middle, device=context.device)

    def nats(self, outputs: Float[Tensor, "*s o"], codes: Integer[Tensor, "*s"]) -> Float[Tensor, "*s"]:
        """Return -log p of the values of codes."""
        return -self.distribution(outputs, self.centres(codes)).log_p(self.values(codes))

    def log_probabilities(self, outputs: Float[Tensor, "*s o"], codes: Integer[Tensor, "*s"]) -> Float[Tensor, "*s v"]:
        """Return the log-probabilities of all values."""
        return self.distribution(outputs, self.centres(codes)).log_probabilities()

    def distribution(self, outputs: Float[Tensor, "*s o"], centres: Integer[Tensor, "*s"]) -> "Mixture":
        """Return the distribution that the head's outputs stand for."""
        weights, means, precisions = outputs.unflatten(-1, (3, -1)).unbind(-2)
        precisions = precisions.clamp(MIN_LOG_PRECISION, self.max_log_precision).exp()
        return Mixture(weights, means * self.spread.to(means.dtype), precisions, centres, self.num_values)

    @torch.no_grad()
    def fit(self, x: Integer[Tensor, "n *a c"], last: Dense) -> None:
        """Fit the prediction and the first distribution, of the layer `last`, to some examples of the training part."""
        if self.prediction:
            self.prediction.fit(x)
        codes = self.codes(x)
        difference = (self.values(codes) - self.centres(codes)).double()
        self.spread.copy_(difference.abs().mean().clamp(min=0.5))
        self.first(last)

    @torch.no_grad()
    def first(self, last: Dense) -> None:
        """Set the biases of the head: components from narrow to wide, around the prediction."""
        last.bias.copy_(self.first_bias())

    def first_bias(self) -> Float[Tensor, " o"]:
        """Return the biases of a head that has not been trained, for the present spread."""
        narrow, wide = (log(width) for width in FIRST_WIDTHS)
        widths = torch.linspace(narrow, wide, self.mixtures, dtype=self.spread.dtype, device=self.spread.device)
        precisions = -widths - self.spread.log()
        return torch.cat([precisions.new_zeros(2 * self.mixtures), precisions])

    def is_new(self, last: Dense) -> bool:
        """Return True if spread, prediction and the biases of the head are those of a new model.

        A step of training changes the biases, and a fit also the spread.
        """
        if float(self.spread) != self.num_values / 4:
            return False
        if self.prediction and not self.prediction.is_new():
            return False
        return torch.allclose(last.bias.detach().to(self.spread.dtype), self.first_bias(), rtol=1e-6, atol=0)


class Mixture(NamedTuple):
    """A distribution over 0..V-1, or several: logistic distributions, discretised; the outer bins are open."""

    weights: Float[Tensor, "*s k"]
    """Logits."""
    means: Float[Tensor, "*s k"]
    """Counted from the centre, apart from which they stay exact."""
    precisions: Float[Tensor, "*s k"]
    centres: Integer[Tensor, "*s"]
    num_values: int

    def log_p(self, values: Integer[Tensor, "*#s"]) -> Float[Tensor, "..."]:
        """Return log p of values (shapes broadcast), by F(u) - F(l) = F(u) F(-l) (1 - e^-(u - l)): nothing cancels."""
        offsets = (values - self.centres).unsqueeze(-1).to(self.means.dtype) - self.means
        upper = (offsets + 0.5) * self.precisions
        lower = (offsets - 0.5) * self.precisions
        is_first = (values == 0).unsqueeze(-1)
        is_last = (values == self.num_values - 1).unsqueeze(-1)
        below = F.logsigmoid(upper).masked_fill(is_last, 0.0)
        above = F.logsigmoid(-lower).masked_fill(is_first, 0.0)
        width = (-torch.expm1(-self.precisions)).log().masked_fill(is_first | is_last, 0.0)
        return (self.weights.log_softmax(-1) + below + above + width).logsumexp(-1)

    def log_probabilities(self) -> Float[Tensor, "*s v"]:
        """Return log p of all values."""
        weights, means, precisions = (part.unsqueeze(-2) for part in self[:3])
        every = torch.arange(self.num_values, device=self.means.device)
        return Mixture(weights, means, precisions, self.centres.unsqueeze(-1), self.num_values).log_p(every)

    def sample(self, noise: Float[Tensor, "*s"], temperature: float) -> Integer[Tensor, "*s"]:
        """Return the values of uniform numbers in (0, 1), int64.

        A number chooses a component by its cumulative weight. How far it lies within that weight is its place in the
        component. The temperature divides the logits of weights, and multiplies the widths. At 0, the most likely
        component's mean is chosen.
        """
        weights = self.weights.double()
        noise = noise.double()
        if temperature == 0:
            chosen = weights.argmax(-1, keepdim=True)
            within = torch.full_like(noise, 0.5).unsqueeze(-1)
        else:
            shares = (weights / temperature).softmax(-1)
            ends = shares.cumsum(-1)
            chosen = (ends[..., :-1] <= noise.unsqueeze(-1)).sum(-1, keepdim=True)
            share = shares.gather(-1, chosen)
            within = ((noise.unsqueeze(-1) - ends.gather(-1, chosen)) / share + 1).clamp(1e-12, 1 - 1e-12)
        mean, precision = (part.double().gather(-1, chosen) for part in (self.means, self.precisions))
        offset = mean + temperature * (within.log() - (-within).log1p()) / precision
        values = self.centres + (offset.squeeze(-1) + 0.5).floor().long()
        return values.clamp(0, self.num_values - 1)


def values_of(config: AxialTransformerConfig) -> CategoricalValues | OrdinalValues:
    """Return what the values of a model are."""
    return OrdinalValues(config) if config.values == "ordinal" else CategoricalValues(config)
