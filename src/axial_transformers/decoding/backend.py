"""The interface of a decoding backend: the parts of a model that the loop calls."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor


class Steps(Protocol):
    """An outer decoder, slab by slab: `OuterDecoder` is one."""

    def start(self, batch: int) -> Any:
        """The state before the first slab."""
        ...

    def step(self, u: Tensor, i: int, state: Any) -> Tensor:
        """Slab `i` of h + context [B, *S, D] -> the upper context of the next [B, *S, D]."""
        ...


@dataclass(frozen=True, kw_only=True)
class Backend:
    """The parts of a model that the loop calls, in one implementation."""

    context: Callable[[Tensor, int, Tensor | float], Tensor]
    """Data in the model's coordinates, channel, what is conditioning -> context [B or 1, *A', D] of the channel."""
    outer_decoders: Sequence[Steps]
    row: Callable[[Tensor, Tensor], Tensor]
    """Context [B, L, D] and sites [L, d + 1] of a row -> its values [B, L]."""
