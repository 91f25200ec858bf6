"""The numbers and weights of the arithmetic of archives.

Every constant is a float32. Changing one changes archives.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]

LANES = 16
"""Number j of a row is summed in lane j mod LANES."""
EPSILON = float(np.float32(1e-5))
"""Of layer norms."""
STEEPNESS = float(np.float32(1.702))

LEAST, LARGEST = -87.0, 88.0
"""exp is zero below, constant above: never denormal or infinite."""
LOG2_E = 1.4426950216293335
LN_2, REST_OF_LN_2 = 0.6931471824645996, -1.9046542121259336e-09
ROUNDING = 12582912.0
"""1.5 * 2^23: adding it rounds to a whole number."""
POWERS = (0.0013751150108873844, 0.00836898759007454, 0.04166954383254051, 0.166665181517601, 0.49999988079071045)
"""(e^r - 1 - r) / r^2, |r| <= log(2) / 2, highest power first; accurate to 4e-9."""

HALF_ROOT = 0.7071067690849304
"""log splits x into 2^n m, m from here on."""
LOG_POWERS = (
    *(-0.07634496688842773, 0.1276157647371292, -0.13160182535648346, 0.14201757311820984),
    *(-0.16623356938362122, 0.20001226663589478, -0.2500081956386566, 0.3333333134651184),
)
"""(log(1 + f) - f + f^2 / 2) / f^3, highest power first; accurate to 6e-9."""

PRECISION = 24
FIXED_POINT = 28
"""Bits of exp(logit - largest)."""
RECIPROCAL = 36
"""Bits of the factor to frequencies."""
LEAST_STATE, WORD = 1 << 31, 32
"""The coder's state is in [2^31, 2^63)."""
GROUP = 24
"""Images that share a stream, by row."""
MOST_VALUES = 1 << 16
"""Beyond, products of `RECIPROCAL` exceed 63 bits."""


class Norm(NamedTuple):
    """Gain and bias [D]."""

    gain: Array
    bias: Array


class Linear(NamedTuple):
    """Weight [in, out] and bias [out]."""

    weight: Array
    bias: Array


class Block(NamedTuple):
    """A transformer block."""

    attention_norm: Norm
    qkv: Linear
    rotations: Array
    """[L, K]: cosines, then sines; L = 0: none."""
    out: Linear
    feedforward_norm: Norm
    expand: Linear
    contract: Linear


class Lstm(NamedTuple):
    """Gates: input, forget, cell, output."""

    norm: Norm
    of_input: Linear
    of_hidden: Linear


class Output(NamedTuple):
    """The head, and the table [V, D] that embeds values."""

    norm: Norm
    head: Linear
    table: Array


class Line(NamedTuple):
    """`length` places of a slab, `stride` apart; 0 if masked."""

    length: int
    stride: int


MASKED = Line(0, 0)
"""Attends to earlier slabs."""

FINE, TOO_SHORT, NOT_FINITE = 0, 1, 2
"""A row's outcome, last in `Stream.state`."""


class Stream(NamedTuple):
    """What the coder reads."""

    words: NDArray[np.uint32]
    state: NDArray[np.int64]
    """State, words read, outcome."""


class Prediction(NamedTuple):
    """See `decoding.values_so_far.RowPredictions`; may be empty."""

    places: NDArray[np.int64]
    """[L, 4]."""
    known: NDArray[np.int64]
    """[B, L, 4]."""
    values: NDArray[np.int64]
    """[B, L], written."""
    planes: NDArray[np.int64]
    """[B, L], written."""
    signed: bool


NO_PREDICTION = Prediction(
    places=np.zeros((0, 4), np.int64),
    known=np.zeros((0, 0, 4), np.int64),
    values=np.zeros((0, 0), np.int64),
    planes=np.zeros((0, 0), np.int64),
    signed=False,
)


class Choice(NamedTuple):
    """See `decoding.choices.RowChoice`."""

    noise: Array
    """[B, L, V]."""
    known: NDArray[np.int64]
    """[B, L]; negative where unknown."""
    temperature: np.float32
    top_k: int
    top_p: np.float32


class Known(NamedTuple):
    """Known values of rows, and what to write; the rest is empty."""

    values: NDArray[np.int64]
    predictions: NDArray[np.int64]
    """[B, L] if differences are signed."""
    nats: Array
    """[B, L]; NaN if logits are not finite."""
    intervals: NDArray[np.int64]
    """[B, L, 2]: start and frequency; zeros if logits are not finite."""
