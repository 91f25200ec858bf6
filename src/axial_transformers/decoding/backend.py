"""The interface of a decoding backend: the parts of a model that the loop calls."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from axial_transformers.decoding.values_so_far import RowPredictions
from axial_transformers.models import AxialTransformer, Conditioning

Slab = Any
"""Numbers [B, *S, D] that the loop indexes and adds: a tensor, or a NumPy array of `inference`."""


class Steps(Protocol):
    """A causal part of a model, evaluated one slab at a time, such as `OuterDecoder`."""

    def start(self, batch: int) -> Any:
        """The state before the first slab."""
        ...

    def step(self, u: Slab, i: int, state: Any) -> Slab:
        """Slab `i` of the input [B, *S, D] -> its output [B, *S, ..]; updates `state`."""
        ...


@dataclass(frozen=True, kw_only=True)
class Backend:
    """The parts of a model that the loop calls, in one implementation."""

    embed_conditioning: Callable[[int, Conditioning], Any]
    """Batch, label and external conditioning -> what `context` takes; raises ValueError for what the model does not."""
    context: Callable[[Tensor, int, Any], Slab]
    """Data in model coordinates, channel, embedded conditioning -> context [B, *A', D]."""
    embed_value: Callable[[Tensor], Slab]
    """Values [B, *S] -> h [B, *S, D]."""
    outer_decoders: Sequence[Steps]
    """A step maps slab i of h + context [B, *S, D] to the upper context of slab i + 1 [B, *S, D]."""
    row: Callable[[Slab, Tensor, RowPredictions | None], Tensor]
    """Context [B, L, D], sites [L, d + 1] and predictions of a row -> its values [B, L], or differences, which the
    predictions keep."""


BackendFactory = Callable[[AxialTransformer, Any, int], Backend]
"""The backend for a model, a choice of values (`Choose`, for `exact_backend` `CodesRows`) and a number of examples."""
