"""Decoding in micro-batches: bounds the memory of activations, while values are chosen for all examples at once."""

from dataclasses import replace
from itertools import repeat
from typing import Any

import torch
from torch import Tensor

from axial_transformers.decoding.backend import Backend, BackendFactory, Steps
from axial_transformers.decoding.choices import Choose, KnownFirst
from axial_transformers.decoding.eager_backend import SiteLogits, eager, row_by_steps
from axial_transformers.models import AxialTransformer


def micro_batches(size: int) -> BackendFactory:
    """Eager decoding that evaluates each part of the model for at most `size` examples at once."""

    def build(model: AxialTransformer, choose: Choose | KnownFirst, batch: int) -> Backend:
        whole = eager(model, choose)

        def context(y: Tensor, c: int, conditioning: Tensor | float) -> Tensor:
            conditionings = conditioning.split(size) if isinstance(conditioning, Tensor) else repeat(conditioning)
            return torch.cat([whole.context(some, c, own) for some, own in zip(y.split(size), conditionings)])

        return replace(
            whole,
            context=context,
            outer_decoders=[_InMicroBatches(outer, size) for outer in whole.outer_decoders],
            row=row_by_steps(model, choose, _InMicroBatches(SiteLogits(model), size)),
        )

    return build


class _InMicroBatches:
    """`Steps` for at most `size` examples at once, with a state for each micro-batch."""

    def __init__(self, steps: Steps, size: int):
        self.steps, self.size = steps, size

    def start(self, batch: int) -> list[Any]:
        return [self.steps.start(min(self.size, batch - first)) for first in range(0, batch, self.size)]

    def step(self, u: Tensor, i: int, state: list[Any]) -> Tensor:
        return torch.cat([self.steps.step(some, i, own) for some, own in zip(u.split(self.size), state)])
