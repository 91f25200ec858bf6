"""The numbers that the arithmetic of archives is made of, and the weights that it works on. Nothing here is compiled.

Every constant is a float32. Changing one changes the contents of archives.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]

LANES = 16
"""Numbers that are summed beside each other: number j of a row is in lane j mod LANES."""
EPSILON = float(np.float32(1e-5))
"""Added to the variance in a layer norm."""
STEEPNESS = float(np.float32(1.702))
"""Of the quick GELU."""

LEAST, LARGEST = -87.0, 88.0
"""exp is zero below the first and constant above the second: its results are never denormal or infinite."""
LOG2_E = 1.4426950216293335
LN_2, REST_OF_LN_2 = 0.6931471824645996, -1.9046542121259336e-09
ROUNDING = 12582912.0
"""1.5 * 2^23: adding it rounds to a whole number, which is then in the last bits."""
POWERS = (0.0013751150108873844, 0.00836898759007454, 0.04166954383254051, 0.166665181517601, 0.49999988079071045)
"""(e^r - 1 - r) / r^2 for |r| <= log(2) / 2, the highest power first; the relative error of e^r is below 4e-9."""

HALF_ROOT = 0.7071067690849304
"""The square root of 1/2: log splits x into 2^n m, with m from it to its double."""
LOG_POWERS = (
    *(-0.07634496688842773, 0.1276157647371292, -0.13160182535648346, 0.14201757311820984),
    *(-0.16623356938362122, 0.20001226663589478, -0.2500081956386566, 0.3333333134651184),
)
"""(log(1 + f) - f + f^2 / 2) / f^3, m = 1 + f, the highest power first; the relative error of log(m) is below 6e-9."""

PRECISION = 24
"""The frequencies of a site's values add up to 2^PRECISION."""
FIXED_POINT = 28
"""exp(logit - largest logit) is rounded down to a multiple of 2^-FIXED_POINT."""
RECIPROCAL = 36
"""Bits behind the point of the factor that makes frequencies of fixed-point numbers."""
LEAST_STATE, WORD = 1 << 31, 32
"""The entropy coder's state is in [2^31, 2^63), and its words have 32 bits."""
GROUP = 24
"""Images whose symbols follow each other in a stream, row by row: as many as the row kernel works on at a time."""
MOST_VALUES = 1 << 16
"""Values of a site, at most: beyond, the products of `RECIPROCAL` would not fit into 63 bits."""


class Norm(NamedTuple):
    """Gain and bias of a layer norm: [D]."""

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
    """[L, K], by place along the layer's axis: cosines and sines of queries and keys; L = 0: they are not rotated."""
    out: Linear
    feedforward_norm: Norm
    expand: Linear
    contract: Linear


class Lstm(NamedTuple):
    """An LSTM layer with its norm; gates in torch's order: input, forget, cell, output."""

    norm: Norm
    of_input: Linear
    of_hidden: Linear


class Output(NamedTuple):
    """The head, and the table [V, D] that embeds values."""

    norm: Norm
    head: Linear
    table: Array


class Line(NamedTuple):
    """Places inside a flattened slab that a layer attends along: `length` of them, `stride` apart; 0 if masked."""

    length: int
    stride: int


MASKED = Line(0, 0)
"""Attention across slabs: to the same place of the slabs up to the current one."""

FINE, TOO_SHORT, NOT_FINITE = 0, 1, 2
"""Outcome of a row: the last number of `Stream.state`."""


class Stream(NamedTuple):
    """A stream of the entropy coder that is read."""

    words: NDArray[np.uint32]
    state: NDArray[np.int64]
    """[3]: the coder's state, the number of words that were read, and what became of the row."""


class Prediction(NamedTuple):
    """Predictions along a row of sites, as `decoding.values_so_far.RowPredictions`; of size 0 where there are none."""

    places: NDArray[np.int64]
    """[L, 4]."""
    known: NDArray[np.int64]
    """[B, L, 4]."""
    values: NDArray[np.int64]
    """[B, L], written."""
    planes: NDArray[np.int64]
    """[B, L], written."""
    signed: bool
    """Whether a difference and the same minus V have logits of their own."""


NO_PREDICTION = Prediction(
    places=np.zeros((0, 4), np.int64),
    known=np.zeros((0, 0, 4), np.int64),
    values=np.zeros((0, 0), np.int64),
    planes=np.zeros((0, 0), np.int64),
    signed=False,
)


class Choice(NamedTuple):
    """`decoding.choices.RowChoice` of a batch; top_k = V and top_p = 1 restrict nothing."""

    noise: Array
    """[B, L, V]."""
    known: NDArray[np.int64]
    """[B, L]; negative for values that are not known."""
    temperature: np.float32
    top_k: int
    top_p: np.float32


class Known(NamedTuple):
    """Known values of rows of sites, and what is asked of them; what is not asked for has size 0."""

    values: NDArray[np.int64]
    """[B, L]."""
    predictions: NDArray[np.int64]
    """[B, L], for differences that keep their sign, see `Prediction.signed`; otherwise of size 0."""
    nats: Array
    """[B, L], written: -log of each value's probability; NaN where logits are not finite."""
    intervals: NDArray[np.int64]
    """[B, L, 2], written: start and frequency of each value's interval; zeros where logits are not finite."""
