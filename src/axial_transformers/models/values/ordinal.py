"""Values with an order: features of numbers embed them, and a mixture of logistic distributions predicts them."""

from collections.abc import Sequence
from math import log
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Integer
from torch import Tensor, nn

from axial_transformers import engine
from axial_transformers.engine import MIN_LOG_PRECISION
from axial_transformers.layers.initialisation import Dense
from axial_transformers.models.config import AxialTransformerConfig
from axial_transformers.models.values.activity import Activity, log_scale_of, scale_of
from axial_transformers.models.values.kind import NumbersOfCodes, Values
from axial_transformers.models.values.linear_prediction import LinearPrediction

FIRST_WIDTHS = 0.25, 8.0
"""Widths of the components of a new model, in units of the spread: from narrow to wide."""
SCALES = tuple(4**power for power in range(8))
"""Sizes of differences that features tell apart."""


class OrdinalValues(Values):
    """Values with an order: P(v) = sum_k w_k [F((v + 1/2 - mean_k) p_k) - F((v - 1/2 - mean_k) p_k)], F logistic.

    The first bin is open below, the last one above. The head gives each component's weight (a logit), mean and log
    precision, K numbers each. Means count from the prediction, in units of `spread`. With an activity, those of the
    components 1, 3, 5, .. count in units of its scale, of which their widths are multiples, too. The other components
    stay: in drawings, large differences come where the scale is small, and zeros where it is large.

    A code is a value or, if values are centred, value + V * (prediction + V * level of the activity, if there is one).
    """

    takes_top_k = False
    trains_in_autocast = False
    features: "Features"
    spread: Tensor
    """The mean size of differences from predictions, float32 []."""

    def __init__(self, config: AxialTransformerConfig):
        super().__init__(config)
        self.mixtures = config.mixtures
        self.max_log_precision = config.max_log_precision
        if config.centred:
            self.prediction = LinearPrediction(config.shape, config.channels, config.num_values)
        if config.activity:
            self.activity = Activity(config.shape, config.channels, config.num_values)
        scales = tuple(scale for scale in SCALES if scale < config.num_values)
        self.features = Features(config.num_values, scales if config.centred else (), config.activity)
        self.register_buffer("spread", torch.tensor(self.num_values / 4))

    @staticmethod
    def outputs_of(config: AxialTransformerConfig) -> int:
        return 3 * config.mixtures

    @staticmethod
    def gumbel_numbers(config: AxialTransformerConfig) -> int:
        return 0

    def embedding(self, dim: int, depth: int = 1) -> "FeatureEmbedding":
        return FeatureEmbedding(self.features, dim, depth)

    def codes(self, x: Integer[Tensor, "b *a c"]) -> Integer[Tensor, "b *a c"]:
        if not self.prediction or not self.activity:
            return super().codes(x)
        predictions = self.prediction(x)
        levels = self.activity((x - predictions).abs())
        return x + self.num_values * (predictions + self.num_values * levels)

    def distribution(self, outputs: Float[Tensor, "*s o"], centres: Integer[Tensor, "*s"]) -> "Mixture":
        weights, means, precisions = outputs.unflatten(-1, (3, -1)).unbind(-2)
        unit = self.spread.to(means.dtype)
        if self.activity:
            levels = (centres // self.num_values).unsqueeze(-1)
            in_scale = self._in_scale()
            unit = torch.where(in_scale, scale_of(levels, means.dtype), unit)
            precisions = precisions - in_scale * log_scale_of(levels, means.dtype)
            centres = centres % self.num_values
        precisions = precisions.clamp(MIN_LOG_PRECISION, self.max_log_precision).exp()
        return Mixture(weights, means * unit, precisions, centres, self.num_values)

    def nats(self, outputs: Float[Tensor, "*s o"], codes: Integer[Tensor, "*s"]) -> Float[Tensor, "*s"]:
        return -self.distribution(outputs, self.centres(codes)).log_p(self.values(codes))

    @torch.no_grad()
    def start_head(self, last_layers: Sequence[Dense]) -> None:
        """Set the biases of the head: components from narrow to wide, around the prediction."""
        for last in last_layers:
            last.bias.copy_(self._first_bias())

    @torch.no_grad()
    def fit(self, x: Integer[Tensor, "n *a c"], last_layers: Sequence[Dense]) -> None:
        """Fit prediction, spread and the first distribution to examples, unless they were fitted or trained before."""
        if not self._is_new(last_layers):
            return
        if self.prediction:
            self.prediction.fit(x)
        differences = (x - (self.prediction(x) if self.prediction else (self.num_values - 1) // 2)).abs()
        if self.activity:
            self.activity.fit(differences)
        self.spread.copy_(differences.double().mean().clamp(min=0.5))
        self.start_head(last_layers)

    def _first_bias(self) -> Float[Tensor, " o"]:
        """Return the biases of a head that has not been trained, for the present spread."""
        narrow, wide = (log(width) for width in FIRST_WIDTHS)
        widths = torch.linspace(narrow, wide, self.mixtures, dtype=self.spread.dtype, device=self.spread.device)
        precisions = -widths - self.spread.log()
        if self.activity:
            precisions = torch.where(self._in_scale(), -widths, precisions)
        return torch.cat([precisions.new_zeros(2 * self.mixtures), precisions])

    def _in_scale(self) -> Bool[Tensor, " k"]:
        """Return which components count in units of the scale of an activity."""
        return torch.arange(self.mixtures, device=self.spread.device) % 2 == 1

    def _is_new(self, last_layers: Sequence[Dense]) -> bool:
        """Return True if spread, prediction and the biases of the head are those of a new model.

        A step of training changes the biases, and a fit also the spread.
        """
        if float(self.spread) != self.num_values / 4:
            return False
        if self.prediction and not self.prediction.is_new():
            return False
        first = self._first_bias()
        biases = (last.bias.detach().to(first.dtype) for last in last_layers)
        return all(torch.allclose(bias, first, rtol=1e-6, atol=0) for bias in biases)

    def in_engine(self, embedding: nn.Module) -> engine.Ordinal:
        assert isinstance(embedding, FeatureEmbedding)
        last = self.num_values - 1
        values = self.features.of_values(torch.arange(last + 1, device="cpu"))
        differences = self.features.of_differences(torch.arange(-last, last + 1, device="cpu"))
        weight, bias = (part.detach().to("cpu", torch.float32).numpy() for part in embedding.linear.parameters())
        features = engine.Features(values.float().numpy(), differences.float().numpy(), engine.Linear(weight.T, bias))
        unit, most = np.float32(self.spread.item()), np.float32(self.max_log_precision)
        return engine.Ordinal(features, self.mixtures, unit, most, self.activity is not None, embedding.depth)


class Features(NamedTuple):
    """Features of an ordinal value: scaled to -1..1; its two bytes, above 256 values; and its centred difference.

    Of a difference d, at each scale t: d and |d| over |d| + t. All are exact divisions in float64, rounded once: every
    processor gets the same numbers.
    """

    num_values: int
    scales: tuple[int, ...]
    """Of differences; none if values are not centred."""
    activity: bool = False
    """Codes hold levels of an activity."""

    @property
    def size(self) -> int:
        """Return how many numbers a position has."""
        return (3 if self.num_values > 256 else 1) + 2 * len(self.scales) + 3 * self.activity

    def __call__(self, codes: Integer[Tensor, "*s"], dtype: torch.dtype) -> Float[Tensor, "*s f"]:
        """Return the features of codes."""
        values = codes % self.num_values
        expected = codes // self.num_values
        differences = values - (expected % self.num_values if self.activity else expected)
        features = [self.of_values(values), self.of_differences(differences)]
        if self.activity:
            features.append(self.of_activity(differences, expected // self.num_values))
        return torch.cat(features, dim=-1).to(dtype)

    def of_activity(self, differences: Integer[Tensor, "*s"], levels: Integer[Tensor, "*s"]) -> Float[Tensor, "*s 3"]:
        """Return d / (|d| + scale), its size, and log scale / 8, float64: about as large as the other features."""
        scale = scale_of(levels, torch.float64)
        relative = differences.double() / (differences.abs() + scale)
        return torch.stack([relative, relative.abs(), log_scale_of(levels, torch.float64) / 8], dim=-1)

    def of_values(self, values: Integer[Tensor, "*s"]) -> Float[Tensor, "*s f"]:
        """Return the features of values, float64."""
        features = [2 * values.double() / (self.num_values - 1) - 1]
        if self.num_values > 256:
            features += [(values // 256).double() / 127.5 - 1, (values % 256).double() / 127.5 - 1]
        return torch.stack(features, dim=-1)

    def of_differences(self, differences: Integer[Tensor, "*s"]) -> Float[Tensor, "*s g"]:
        """Return the features of differences from predictions, float64."""
        if not self.scales:
            return differences.double().unsqueeze(-1)[..., :0]
        features: list[Tensor] = []
        for scale in self.scales:
            of_scale = differences.double() / (differences.abs() + scale)
            features += [of_scale, of_scale.abs()]
        return torch.stack(features, dim=-1)


class FeatureEmbedding(nn.Module):
    """A linear layer on the features of all codes of a position."""

    def __init__(self, features: NumbersOfCodes, dim: int, depth: int):
        super().__init__()
        self.features = features
        self.depth = depth
        self.linear = Dense(depth * features.size, dim)

    def forward(self, codes: Integer[Tensor, "*s p"]) -> Float[Tensor, "*s d"]:
        """Return the embedding [*s, dim] of the codes [*s, depth] of positions."""
        return self.linear(self.features(codes, next(self.parameters()).dtype).flatten(-2))


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

    def sample(
        self, noise: Float[Tensor, "*s"], temperature: float, top_k: int | None = None, top_p: float | None = None
    ) -> Integer[Tensor, "*s"]:
        """Return the values of uniform numbers in (0, 1), int64.

        A number chooses a component by its cumulative weight. How far it lies within that weight is its place in the
        component. The temperature divides the logits of weights, and multiplies the widths. At 0, the most likely
        component's mean is chosen.
        """
        assert top_k is top_p is None, "`sample` refuses them"
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
