"""Copy of a model in float64, where two ways to compute the same logits differ by less than `frequencies` allows."""

import copy
from collections.abc import Iterator
from itertools import repeat
from typing import Any

import torch
from torch import Tensor, nn

from axial_transformers.models import AxialTransformer


def in_float64(model: AxialTransformer) -> AxialTransformer:
    """A copy of the model in float64, without dropout."""
    return copy.deepcopy(model).double().requires_grad_(False).eval()


def in_micro_batches(model: AxialTransformer, size: int) -> AxialTransformer:
    """The model, with every part that `decoding.decode` calls seeing at most `size` examples at once."""
    for name in ("encoder", "inner_decoder", "head"):
        if (part := getattr(model, name)) is not None:
            setattr(model, name, _InMicroBatches(part, size))
    outer_decoders: Any = nn.ModuleList(_InMicroBatches(outer, size) for outer in model.outer_decoders)
    model.outer_decoders = outer_decoders
    return model


class _InMicroBatches(nn.Module):
    def __init__(self, part: nn.Module, size: int):
        super().__init__()
        self.part: Any = part
        self.size = size

    def forward(self, *inputs: Tensor | float) -> Tensor:
        return torch.cat([self.part(*some) for some in zip(*map(self._split, inputs))])

    def start(self, batch: int) -> list[Any]:
        return [self.part.start(min(self.size, batch - first)) for first in range(0, batch, self.size)]

    def step(self, x: Tensor, i: int, states: list[Any]) -> Tensor:
        return torch.cat([self.part.step(some, i, state) for some, state in zip(x.split(self.size), states)])

    def _split(self, x: Tensor | float) -> Iterator[Tensor | float]:
        return iter(x.split(self.size)) if isinstance(x, Tensor) else repeat(x)
