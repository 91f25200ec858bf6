"""What goes into exact layers and the coder: weights, sampling, streams. Changing a constant changes archives."""

from collections.abc import Sequence
from decimal import Context, Decimal, localcontext
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]

LANES = 16
"""Number j of a row is summed in lane j mod LANES."""
PRECISION = 28
"""The frequencies of the values of a position add up to 2^PRECISION."""
MIN_LOG_PRECISION = -12.0
"""Log precisions of a mixture are at least this: precisions are 2^-17 per value and more."""
LOGISTIC_BITS, LOGISTIC_END = 30, 24
"""1 / (1 + e^z) is a multiple of 2^-LOGISTIC_BITS, and constant from z = LOGISTIC_END on."""
TABLE_BITS, BETWEEN_BITS = 6, 20
"""z is a multiple of 2^-(TABLE_BITS + BETWEEN_BITS). The first bits behind its point choose a row of the table."""
COEFFICIENT_BITS = 24
"""Bits behind the point of the coefficients of a prediction."""
LEVELS = 144
"""Levels of an activity: eight an octave of sizes, from 2^-1 to 2^17."""
LEVEL_LOGS = (
    *(-0.6325225587435105, -0.5212969236332861, -0.42121346507630353, -0.33024168687057687),
    *(-0.24686007793152578, -0.16989903679539747, -0.09844007281325252, -0.0317486983145803),
)
"""log((17 + 2 m) / 32)."""
LOG_2 = 0.6931471805599453
MAX_INTEGER = 90
"""The largest integer of inputs and of weights. If inputs are shifted to 0 .. 180, 16 bits hold two products."""
MAX_INPUTS = 0x7FFFFFFF // (2 * MAX_INTEGER * MAX_INTEGER)
"""Inputs of a layer of integers, whose sums have 32 bits."""
MIN_STATE, WORD = 1 << 31, 32
"""The state of the entropy coder is in [2^31, 2^63), and its words have 32 bits."""
GROUP = 24
"""Images whose symbols follow each other in a stream, row by row. They are computed together.

Symbols of a row are in the order position, channel of the position, image.
"""
MAX_CHANNELS = 8
"""Values of a position, at most."""


@cache
def logistic_table() -> NDArray[np.int64]:
    """Return 1 / (1 + e^z) in units of 2^-LOGISTIC_BITS, for z = 0, 2^-TABLE_BITS, .. up to LOGISTIC_END and one more.

    Decimal arithmetic gives the same integers everywhere.
    """
    table = np.empty((LOGISTIC_END << TABLE_BITS) + 2, np.int64)
    with localcontext(Context(prec=40)):
        for i in range(len(table)):
            power = (Decimal(i) / (1 << TABLE_BITS)).exp()
            table[i] = ((1 << LOGISTIC_BITS) / (power + 1)).to_integral_value()
    return table


@cache
def level_scales() -> tuple[Array, Array]:
    """Return the scales [LEVELS] of the levels 8 n + m of an activity, (17 + 2 m) / 32 * 2^n, and their logarithms.

    A logarithm is LEVEL_LOGS[m] + n * LOG_2 in float64, rounded once.
    """
    octave, part = np.divmod(np.arange(LEVELS), 8)
    logarithms = np.array(LEVEL_LOGS)[part] + octave * LOG_2
    return np.ldexp((17 + 2 * part) / 32, octave).astype(np.float32), logarithms.astype(np.float32)


def rounded_rows(x: Array) -> tuple[NDArray[np.int8], Array]:
    """Round each row of x [.., n] to integers from -MAX_INTEGER to MAX_INTEGER, half to even.

    Returns:
        The integers, and the units [..] that they count: largest / MAX_INTEGER. A row whose unit would be below the
        normal numbers is zeros of unit 0; a row that is not finite is zeros of unit NaN.
    """
    largest = np.abs(x).max(axis=-1)
    units = largest / np.float32(MAX_INTEGER)
    finite = np.isfinite(largest)
    usable = finite & (units >= np.finfo(np.float32).tiny)
    factors = np.float32(MAX_INTEGER) / np.where(usable, largest, np.float32(1))
    integers = np.rint(np.where(usable[..., None], x, np.float32(0)) * factors[..., None]).astype(np.int8)
    return integers, np.where(usable, units, np.where(finite, np.float32(0), np.float32(np.nan)))


class Norm(NamedTuple):
    """Gain and bias [D]."""

    gain: Array
    bias: Array


class Linear(NamedTuple):
    """Weight [in, out] and bias [out]."""

    weight: Array
    bias: Array

    @property
    def shape(self) -> tuple[int, ...]:
        return self.weight.shape


class IntegerLinear(NamedTuple):
    """A linear layer of archives: products and sums of integers, which are exact in any order.

    Its inputs are rounded, row by row.
    """

    integers: NDArray[np.int8]
    """[in, out], from -MAX_INTEGER to MAX_INTEGER."""
    steps: Array
    """[out]: a weight is its integer times the step of its output."""
    bias: Array

    @property
    def shape(self) -> tuple[int, ...]:
        return self.integers.shape


AnyLinear = Linear | IntegerLinear


def rounded_linear(layer: Linear) -> IntegerLinear:
    """Return a layer with the weights of each output rounded to integers."""
    integers, steps = rounded_rows(np.ascontiguousarray(layer.weight.T))
    return IntegerLinear(integers.T, steps, layer.bias)


class Line(NamedTuple):
    """The line that a layer attends along inside a flat slab: `length` positions, `stride` rows apart; 0 if masked."""

    length: int
    stride: int


MASKED = Line(0, 0)
"""A masked layer: attention to the same position of the slabs up to the current one."""


class Attention(NamedTuple):
    """x + out(attention), of the queries, keys and values that `qkv` makes of LayerNorm(x)."""

    norm: Norm
    qkv: AnyLinear
    rotations: Array
    """[L, K], by position along the axis of the layer: cosines, then sines; L = 0: no rotation."""
    out: AnyLinear
    line: Line


class Feedforward(NamedTuple):
    """x + contract(quick_gelu(expand(LayerNorm(x))))."""

    norm: Norm
    expand: AnyLinear
    contract: AnyLinear


class Convolution(NamedTuple):
    """x + out(a * sigmoid(b)), where a, then b, are the outputs of `near` for a window.

    The window of a position in slab i has LayerNorm(x) of its T neighbours in the slabs i - R .. i: [R + 1, T, D]. What
    is outside counts as zeros. In the inner decoder, a slab is one position, and T = 1.
    """

    norm: Norm
    near: AnyLinear
    """[(R + 1) T D, 2 hidden]."""
    out: AnyLinear
    """[hidden, D]."""


Layer = Attention | Feedforward | Convolution


class Lstm(NamedTuple):
    """An LSTM layer with its norm; gates in torch's order: input, forget, cell, output."""

    norm: Norm
    of_input: AnyLinear
    of_hidden: AnyLinear


class Categorical(NamedTuple):
    """Values without an order: a table embeds them, and the head has an output for each. A position has one."""

    table: Array
    """[V, D]."""


class Features(NamedTuple):
    """What the network reads of an ordinal value: numbers of the value and of its difference, and a linear layer.

    A code is a value, or value + V * prediction if values are centred, or value + V * (prediction + V * level) with an
    activity. The difference d is value - prediction. An activity adds d / (|d| + scale), its size, and log scale / 8.
    """

    values: Array
    """[V, Fv], by value."""
    differences: Array
    """[2 V - 1, Fd], by difference + V - 1; of size 0 if values are not centred."""
    linear: Linear
    """[P F, D], of the P codes of a position side by side: F = Fv + Fd, or Fv + Fd + 3 with an activity."""


class Ordinal(NamedTuple):
    """Values with an order, whose distribution is a mixture of logistic ones.

    The head has 3 * mixtures outputs: weights, means, log precisions.
    """

    features: Features
    mixtures: int
    unit: np.float32
    """Means are multiples of it, counted from the prediction."""
    max_log_precision: np.float32
    """Log precisions are at most this."""
    activity: bool = False
    """The scale of a position's level takes the place of `unit` in components 1, 3, ..; it divides their precisions."""
    channels: int = 1
    """P, values of a position: 1 to MAX_CHANNELS."""

    @property
    def num_values(self) -> int:
        return len(self.features.values)

    @property
    def centred(self) -> bool:
        """Return True if codes hold predictions. Otherwise each value is predicted as (V - 1) // 2."""
        return self.features.differences.size > 0


Kind = Categorical | Ordinal
"""What values are: how they are embedded, and what the outputs of the head stand for."""


class Head(NamedTuple):
    """The head of channel p: contract(quick_gelu(expand(n))), or contract(n) without `expand`.

    Its inputs n [D + p F] are LayerNorm of what the inner decoder gives, and features of the channels 0 .. p - 1.
    """

    expand: AnyLinear | None
    contract: AnyLinear


class Output(NamedTuple):
    """The heads, and what they predict."""

    norm: Norm
    heads: Sequence[Head]
    """P: one for each channel."""
    values: Kind


FINE, TOO_SHORT, NOT_FINITE = 0, 1, 2
"""What became of a row: the last number of `Stream.state`."""


class Stream(NamedTuple):
    """A stream that the entropy coder reads."""

    words: NDArray[np.uint32]
    state: NDArray[np.int64]
    """[3]: the state of the coder, the number of words read, and what became of the row."""


ITSELF = np.zeros((1, 1), np.int64)
"""Neighbours [positions, T] of a position that is alone in its slab."""
NO_NUMBERS = np.zeros((0, 0), np.int64)


class Centring(NamedTuple):
    """Predictions of ordinal values along a row, by a linear combination of earlier values.

    A row has N = L P values, in the order (position, channel).
    """

    values: NDArray[np.int64]
    """[B, all]: all values so far, without predictions, in any order; the row's own are written."""
    positions: NDArray[np.int64]
    """[N]: where the values of the row are."""
    neighbours: NDArray[np.int64]
    """[N, n]: where the neighbours of each value are; negative where one is missing."""
    coefficients: NDArray[np.int64]
    """[N, n + 1], in units of 2^-COEFFICIENT_BITS: of the neighbours, and a constant that includes a half."""
    sizes: NDArray[np.int64] = NO_NUMBERS
    """[B, all]: of the differences from the predictions so far, or of size 0 without an activity."""
    size_neighbours: NDArray[np.int64] = NO_NUMBERS
    """[N, k]."""
    size_coefficients: NDArray[np.int64] = NO_NUMBERS
    """[N, k + 1], at least 0."""


class RowSampling(NamedTuple):
    """How to sample a row, see `decoding.choices.NoiseChoice`; top_k = V and top_p = 1 restrict nothing."""

    noise: NDArray[np.floating]
    """Gumbel [B, L, P, V], or uniform [B, L, P]: one number chooses an ordinal value, or one of many categories."""
    known: NDArray[np.int64]
    """[B, L, P]; negative where unknown."""
    temperature: np.float32
    top_k: int
    top_p: np.float32


class Known(NamedTuple):
    """Known values of rows [B, L, P], and what to write of them, if anything."""

    values: NDArray[np.int64]
    """Ordinal ones are codes (`Features`)."""
    nats: Array | None = None
    """[B, L, P], written: -log of the probability of each value; NaN if logits are not finite."""
    intervals: NDArray[np.int64] | None = None
    """[B, L, P, 2], written: start and frequency of each value's interval; zeros if logits are not finite."""
