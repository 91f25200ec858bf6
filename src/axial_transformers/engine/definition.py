"""The numbers that the arithmetic of archives is made of, and the weights that it works on. Nothing here is compiled.

Every constant is a float32 number. Changing one changes the contents of archives.
"""

from decimal import Context
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]

LANES = 16
"""Number j of a row is summed in lane j mod LANES."""
EPSILON = float(np.float32(1e-5))
"""Added to the variance in a layer norm."""
STEEPNESS = float(np.float32(1.702))
"""Of the quick GELU."""

MIN_EXPONENT, MAX_EXPONENT = -87.0, 88.0
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

PRECISION = 28
"""The frequencies of the values of a position add up to 2^PRECISION."""
FIXED_POINT = 28
"""exp(logit - largest logit) is rounded down to a multiple of 2^-FIXED_POINT."""
RECIPROCAL = 34
"""Bits behind the point of the factor that turns fixed-point numbers into frequencies.

A product of the factor and a sum of fixed-point numbers is at most 2^(PRECISION + RECIPROCAL), so it fits 63 bits.
"""
MIN_LOG_PRECISION = -12.0
"""Log precisions of a mixture are at least this: precisions are 2^-17 per value and more."""
MAX_OUTPUT = float(2**100)
"""Parameters of a mixture that are not smaller count as not finite. Nothing that is computed of others overflows."""
LOGISTIC_BITS, LOGISTIC_END = 30, 24
"""1 / (1 + e^z) is a multiple of 2^-LOGISTIC_BITS, and constant from z = LOGISTIC_END on."""
TABLE_BITS, BETWEEN_BITS = 6, 20
"""z is a multiple of 2^-(TABLE_BITS + BETWEEN_BITS). The first bits behind its point choose a row of the table."""
COEFFICIENT_BITS = 24
"""Bits behind the point of the coefficients of a prediction."""
MIN_STATE, WORD = 1 << 31, 32
"""The state of the entropy coder is in [2^31, 2^63), and its words have 32 bits."""
GROUP = 24
"""Images whose symbols follow each other in a stream, row by row. The row kernel computes them together."""
MAX_VALUES = 1 << 16
"""Values of a position at most. The factor of fixed-point numbers then has at least 18 bits that are not zero."""


@cache
def logistic_table() -> NDArray[np.int64]:
    """Return 1 / (1 + e^z) in units of 2^-LOGISTIC_BITS, for z = 0, 2^-TABLE_BITS, .. up to LOGISTIC_END and one more.

    Decimal arithmetic gives the same integers everywhere.
    """
    decimals = Context(prec=40)
    found = []
    for i in range((LOGISTIC_END << TABLE_BITS) + 2):
        power = decimals.exp(decimals.divide(decimals.create_decimal(i), decimals.create_decimal(1 << TABLE_BITS)))
        number = decimals.divide(decimals.create_decimal(1 << LOGISTIC_BITS), decimals.add(power, 1))
        found.append(int(decimals.to_integral_value(number)))
    return np.array(found, np.int64)


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
    """[L, K], by position along the axis of the layer: cosines, then sines; L = 0: no rotation."""
    out: Linear
    feedforward_norm: Norm
    expand: Linear
    contract: Linear


class Lstm(NamedTuple):
    """An LSTM layer with its norm; gates in torch's order: input, forget, cell, output."""

    norm: Norm
    of_input: Linear
    of_hidden: Linear


class Features(NamedTuple):
    """What the network reads of an ordinal value: numbers of the value and of its difference, and a linear layer.

    A code is a value, or value + V * prediction if values are centred. The difference is value - prediction.
    """

    values: Array
    """[V, Fv], by value."""
    differences: Array
    """[2 V - 1, Fd], by difference + V - 1; of size 0 if values are not centred."""
    linear: Linear
    """[Fv + Fd, D]."""


class Ordinal(NamedTuple):
    """Values with an order, whose distribution is a mixture of logistic ones.

    The head has 3 * mixtures outputs: weights, means, log precisions.
    """

    num_values: int
    mixtures: int
    """0: values are categorical, and the head has an output for each."""
    unit: np.float32
    """Means are multiples of it, counted from the prediction."""
    max_log_precision: np.float32
    """Log precisions are at most this."""
    centred: bool
    """True if codes hold predictions. Otherwise each value is predicted as (V - 1) // 2."""


class Output(NamedTuple):
    """The head, and what embeds values: a table [V, D], or features of ordinal values."""

    norm: Norm
    head: Linear
    table: Array
    """Not used with features."""
    features: Features | None = None
    """Given together with `ordinal`."""
    ordinal: Ordinal | None = None
    """None: values are categorical."""


class Line(NamedTuple):
    """The line that a layer attends along inside a flat slab: `length` positions, `stride` rows apart; 0 if masked."""

    length: int
    stride: int


MASKED = Line(0, 0)
"""A masked layer: attention to the same position of the slabs up to the current one."""

FINE, TOO_SHORT, NOT_FINITE = 0, 1, 2
"""What became of a row: the last number of `Stream.state`."""


class Stream(NamedTuple):
    """A stream that the entropy coder reads."""

    words: NDArray[np.uint32]
    state: NDArray[np.int64]
    """[3]: the state of the coder, the number of words read, and what became of the row."""


class Centring(NamedTuple):
    """Predictions of ordinal values along a row, by a linear combination of earlier values."""

    values: NDArray[np.int64]
    """[B, P]: all values so far, without predictions, in any order of positions; the row's own are written."""
    positions: NDArray[np.int64]
    """[L]: where the values of the row are; of size 0 if values are not centred."""
    neighbours: NDArray[np.int64]
    """[L, n]: where the neighbours of each position are; negative where one is missing."""
    coefficients: NDArray[np.int64]
    """[L, n + 1], in units of 2^-COEFFICIENT_BITS: of the neighbours, and a constant that includes a half."""


NO_CENTRING = Centring(
    values=np.zeros((0, 0), np.int64),
    positions=np.zeros(0, np.int64),
    neighbours=np.zeros((0, 0), np.int64),
    coefficients=np.zeros((0, 0), np.int64),
)
NO_UNIFORMS = np.zeros((0, 0), np.float64)


class RowSampling(NamedTuple):
    """How to sample a row, see `decoding.choices.NoiseChoice`; top_k = V and top_p = 1 restrict nothing."""

    noise: Array
    """[B, L, V]; of size 0 if `uniforms` are given."""
    known: NDArray[np.int64]
    """[B, L]; negative where unknown."""
    temperature: np.float32
    top_k: int
    top_p: np.float32
    uniforms: NDArray[np.float64] = NO_UNIFORMS
    """[B, L], from 0 to 1: one number a position chooses ordinal values, and one of many categorical values."""


class Known(NamedTuple):
    """Known values of rows [B, L], and what to write of them; what is not wanted has size 0."""

    values: NDArray[np.int64]
    """Of ordinal values, codes (`Features`)."""
    nats: Array
    """[B, L], written: -log of the probability of each value; NaN if logits are not finite."""
    intervals: NDArray[np.int64]
    """[B, L, 2], written: start and frequency of each value's interval; zeros if logits are not finite."""
