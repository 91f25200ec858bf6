"""What every kind of values has."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Protocol

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn

from axial_transformers.engine import Categorical, Ordinal
from axial_transformers.layers.initialisation import Dense
from axial_transformers.models.config import AxialTransformerConfig
from axial_transformers.models.values.activity import Activity
from axial_transformers.models.values.linear_prediction import LinearPrediction


class Distribution(Protocol):
    """Distributions over 0..V-1, of positions [*S]."""

    def log_probabilities(self) -> Float[Tensor, "*s v"]:
        """Return log p of all values, up to a constant."""

    def sample(
        self, noise: Float[Tensor, "..."], temperature: float, top_k: int | None, top_p: float | None
    ) -> Integer[Tensor, "*s"]:
        """Return samples of fixed noise, int64; see `decoding.Sampler`."""


class NumbersOfCodes(Protocol):
    """The numbers that the channel encoder takes of codes."""

    @property
    def size(self) -> int:
        """Return how many numbers a position has."""

    def __call__(self, codes: Integer[Tensor, "*s"], dtype: torch.dtype) -> Float[Tensor, "*s f"]:
        """Return the numbers of codes."""


class Values(nn.Module, ABC):
    """The values of a model: embedding, features, head, distribution, what is fitted to data, and the engine's view.

    With a `prediction`, values are centred on it; an `activity` is the size of differences from it to expect.
    """

    takes_top_k: ClassVar[bool]
    """Samples can be restricted to the most likely values."""
    trains_in_autocast: ClassVar[bool]
    """Steps of training leave the outputs of the head to autocast."""
    features: NumbersOfCodes

    def __init__(self, config: AxialTransformerConfig):
        super().__init__()
        self.num_values = config.num_values
        self.outputs = self.outputs_of(config)
        self.prediction: LinearPrediction | None = None
        self.activity: Activity | None = None

    @staticmethod
    @abstractmethod
    def outputs_of(config: AxialTransformerConfig) -> int:
        """Return how many numbers the head gives for a position."""

    @staticmethod
    @abstractmethod
    def gumbel_numbers(config: AxialTransformerConfig) -> int:
        """Return how many numbers of Gumbel noise a sample takes at a position; 0: it takes a uniform number."""

    @abstractmethod
    def embedding(self, dim: int, depth: int = 1) -> nn.Module:
        """Return a layer that embeds the codes of positions [*s, depth] as [*s, dim]."""

    def codes(self, x: Integer[Tensor, "b *a c"]) -> Integer[Tensor, "b *a c"]:
        """Return the codes of values 0..V-1."""
        return x + self.num_values * self.prediction(x) if self.prediction else x

    def values(self, codes: Integer[Tensor, "*s"]) -> Integer[Tensor, "*s"]:
        """Return the values of codes."""
        return codes % self.num_values if self.prediction else codes

    def centres(self, codes: Integer[Tensor, "*s"]) -> Integer[Tensor, "*s"]:
        """Return what the distributions of codes are centred on: the predictions, or the middle value."""
        return codes // self.num_values if self.prediction else torch.full_like(codes, (self.num_values - 1) // 2)

    @abstractmethod
    def distribution(self, outputs: Float[Tensor, "*s o"], centres: Integer[Tensor, "*s"]) -> Distribution:
        """Return the distributions that outputs of the head stand for."""

    @abstractmethod
    def nats(self, outputs: Float[Tensor, "*s o"], codes: Integer[Tensor, "*s"]) -> Float[Tensor, "*s"]:
        """Return -log p of the values of codes."""

    def start_head(self, last_layers: Sequence[Dense]) -> None:
        """Set the first biases of the head's last layers; zeros stay by default."""

    def fit(self, x: Integer[Tensor, "n *a c"], last_layers: Sequence[Dense]) -> None:
        """Fit what a new model knows of its data to values 0..V-1 of the training part; one that is not new keeps it.

        Args:
            last_layers: of the head; their biases may follow.
        """

    @abstractmethod
    def in_engine(self, embedding: nn.Module) -> Categorical | Ordinal:
        """Return these values, embedded by a layer of `embedding`, as the engine has them."""
