"""What the exact layers and the coder offer, in C (`network`) and in NumPy (`reference`).

Codes are values, or values with their predictions (`definition.Features`).
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from axial_transformers.engine.definition import (
    ITSELF,
    AnyLinear,
    Array,
    Centring,
    Kind,
    Known,
    Layer,
    Lstm,
    Output,
    RowSampling,
    Stream,
)

Integers = NDArray[np.int64]


class DenseLayer(Protocol):
    """A linear layer."""

    def __call__(self, x: Array) -> Array:
        """Return [rows, out] of [rows, in]."""


class EmbeddingLayer(Protocol):
    """What embeds the values of positions."""

    def __call__(self, codes: Integers) -> Array:
        """Return [rows, D] of codes [rows, P]."""


class SlabLayers(Protocol):
    """Layers, one slab after the other; attention whose line is MASKED, and convolutions, see the slabs before."""

    def start(self, rows: int, length: int, positions: int) -> Any:
        """Return the state before the first of `length` slabs, of `rows` rows in all, `positions` rows an example."""

    def step(self, u: Array, i: int, state: Any) -> Array:
        """Return slab i of the output for slab i of the input, u [rows, D]; add it to the state."""

    def add_upper(self, context: Array, values: Integers, kind: Kind, length: int, positions: int) -> None:
        """Add to the context of each slab the output for the slab before it, whose values are known.

        Args:
            context: [rows, D], changed: of each example `length` slabs of `positions` rows.
            values: codes [rows, P], which `kind` embeds.
        """


class RowLayers(Protocol):
    """Inner decoder and heads of a row of positions, each with P values."""

    def read(self, context: Array, centring: Centring | None, values: Integers, stream: Stream) -> None:
        """Read the codes [B, L, P] of a row with context [B, L, D] from a stream, GROUP examples at a time."""

    def sample(self, context: Array, centring: Centring | None, values: Integers, choice: RowSampling) -> None:
        """Write sampled codes [B, L, P] of a row with context [B, L, D]."""

    def take_known(self, context: Array, known: Known) -> None:
        """Write what `known` asks of the known values of rows with context [B, L, D]."""


class Arithmetic(Protocol):
    """Exact layers and the coder: the modules `network` and `reference`."""

    def Dense(self, layer: AnyLinear) -> DenseLayer:
        """Return a linear layer."""

    def Embedding(self, kind: Kind) -> EmbeddingLayer:
        """Return what embeds values of a kind."""

    def Slabs(self, layers: Sequence[Layer], heads: int, neighbours: Integers = ITSELF) -> SlabLayers:
        """Return layers.

        Args:
            neighbours: [positions, T], what convolutions read of each slab: rows inside a slab, -1 outside it.
        """

    def Rows(self, inner: Sequence[Layer] | Lstm, heads: int, output: Output) -> RowLayers:
        """Return inner decoder and heads of values; an LSTM has no heads of attention."""

    def read_from(self, starts: NDArray[np.int32], stream: Stream, values: Integers) -> None:
        """Read values [n] of one distribution, whose value v has the interval starts[v] .. starts[v + 1] - 1."""

    def write_stream(self, intervals: Integers, state: int) -> NDArray[np.uint32]:
        """Return the words of symbols with intervals [n, 2], in the order of reading; they end with `state`."""

    def ieee_arithmetic(self) -> AbstractContextManager[None]:
        """Round to nearest and keep denormal numbers in this thread."""
