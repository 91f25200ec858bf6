"""The interface of a decoding backend: the parts of a model that the loop calls."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from axial_transformers.decoding.choices import Choose
from axial_transformers.models import AxialTransformer


class Steps(Protocol):
    """A causal part of a model, evaluated one slab at a time, such as `OuterDecoder`."""

    def start(self, batch: int) -> Any:
        """The state before the first slab."""
        ...

    def step(self, u: Tensor, i: int, state: Any) -> Tensor:
        """Slab `i` of the input [B, *S, D] -> its output [B, *S, ..]; updates `state`."""
        ...


@dataclass(frozen=True, kw_only=True)
class Backend:
    """The parts of a model that the loop calls, in one implementation."""

    context: Callable[[Tensor, int, Tensor | float], Tensor]
    """Data in model coordinates, channel, embedded conditioning -> context, expandable to [B, *A', D]."""
    outer_decoders: Sequence[Steps]
    """A step maps slab i of h + context [B, *S, D] to the upper context of slab i + 1 [B, *S, D]."""
    row: Callable[[Tensor, Tensor], Tensor]
    """Context [B, L, D] and sites [L, d + 1] of a row -> its values [B, L]."""


BackendFactory = Callable[[AxialTransformer, Choose, int], Backend]
"""The backend for a model, a choice of values and a number of examples."""
