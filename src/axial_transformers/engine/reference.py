"""Exact layers and the coder in NumPy, one rounded operation a line: the definition that C follows.

It needs no compiler and is slow. Arrays are float32 unless they say otherwise. Constants are float32 numbers, which
Python holds as floats: what NumPy computes of such a float and an array is float32. A sum of two products with one
rounding is always `fma`. A chain over k is fma(a_k, b_k, sum so far), k ascending.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axial_transformers.engine.definition import (
    BETWEEN_BITS,
    COEFFICIENT_BITS,
    GROUP,
    ITSELF,
    LANES,
    LOGISTIC_BITS,
    LOGISTIC_END,
    MASKED,
    MIN_LOG_PRECISION,
    MIN_STATE,
    NOT_FINITE,
    PRECISION,
    TABLE_BITS,
    TOO_SHORT,
    WORD,
    AnyLinear,
    Array,
    Attention,
    Categorical,
    Centring,
    Convolution,
    Feedforward,
    IntegerLinear,
    Kind,
    Known,
    Layer,
    Lstm,
    Norm,
    Ordinal,
    Output,
    RowSampling,
    Stream,
    level_scales,
    logistic_table,
    rounded_rows,
)
from axial_transformers.engine.library import ieee_arithmetic as ieee_arithmetic

Numbers = NDArray[Any] | np.float32 | float
"""Of any type that float64 holds exactly."""
State = list[list[Any]]
"""For each layer: keys and values, or inputs of a convolution, by slab."""

EPSILON = 9.999999747378752e-06
"""Added to the variance in a layer norm: 1e-5."""
STEEPNESS = 1.7020000219345093
"""A factor in the quick GELU: 1.702."""

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

FIXED_POINT = 28
"""exp(logit - largest logit) is rounded down to a multiple of 2^-FIXED_POINT."""
RECIPROCAL = 34
"""Bits behind the point of the factor that turns fixed-point numbers into frequencies.

A product of the factor and a sum of fixed-point numbers is at most 2^(PRECISION + RECIPROCAL), so it fits 63 bits.
"""
MAX_OUTPUT = float(2**100)
"""Parameters of a mixture that are not smaller count as not finite. Nothing that is computed of others overflows."""


def fma(a: Numbers, b: Numbers, c: Numbers) -> Array:
    """Return a b + c, rounded once.

    The product is exact in float64, and its sum is rounded to odd: rounding again is rounding once.
    """
    product = np.multiply(a, b, dtype=np.float64)
    addend = np.broadcast_to(np.asarray(c, np.float64), np.broadcast_shapes(product.shape, np.shape(c)))
    total = np.asarray(product + addend)
    back = total - addend
    error = (addend - (total - back)) + (product - back)
    bits = total.view(np.int64)
    inexact = (error != 0) & np.isfinite(error) & (bits & 1 == 0)
    towards = np.where((error > 0) == (total > 0), 1, -1)
    return (bits + np.where(inexact, towards, 0)).view(np.float64).astype(np.float32)


def clip(x: Array, low: float, high: float) -> Array:
    """Return the number from `low` to `high` that is nearest to x."""
    at_least = np.where(x > low, x, np.float32(low))
    return np.where(at_least < high, at_least, np.float32(high))


def growth(r: Array) -> Array:
    """Return (e^r - 1) / r, |r| <= log(2) / 2."""
    series = np.full_like(r, POWERS[0])
    for coefficient in (*POWERS[1:], 1.0):
        series = fma(series, r, coefficient)
    return series


def exp(x: Array) -> Array:
    """Return e^x = 2^n e^r, |r| <= log(2) / 2: zero below MIN_EXPONENT, e^MAX_EXPONENT above MAX_EXPONENT."""
    near = clip(x, MIN_EXPONENT, MAX_EXPONENT)
    shifted = fma(near, LOG2_E, ROUNDING)
    n = shifted - ROUNDING
    r = fma(n, -LN_2, near)
    r = fma(n, -REST_OF_LN_2, r)
    series = fma(growth(r), r, 1)
    whole = shifted.view(np.int32) - np.float32(ROUNDING).view(np.int32)
    power = series * ((whole + np.int32(127)) << np.int32(23)).view(np.float32)
    power = np.where(x < MIN_EXPONENT, np.float32(0), power)
    return np.where(x == x, power, x)


def log(x: Array) -> Array:
    """Return n log(2) + log(1 + f) of x = 2^n (1 + f)."""
    bits = x.view(np.int32)
    n = (bits - np.float32(HALF_ROOT).view(np.int32)) >> np.int32(23)
    f = (bits - (n << np.int32(23))).view(np.float32) - 1
    series = np.full_like(f, LOG_POWERS[0])
    for coefficient in (*LOG_POWERS[1:], -0.5):
        series = fma(series, f, coefficient)
    result = fma(f * f, series, f)
    result = fma(n, REST_OF_LN_2, result)
    result = fma(n, LN_2, result)
    return np.where(x == x, result, x)


def logistic(x: Array, numerator: Array | float = 1) -> Array:
    """Return numerator / (1 + e^-x)."""
    return numerator / (1 + exp(-x))


def log_logistic(x: Array) -> Array:
    """Return log(1 / (1 + e^-x)) = min(x, 0) - log(1 + e^-|x|)."""
    return np.where(x < 0, x, np.float32(0)) - log(1 + exp(-np.abs(x)))


def log_one_minus_power(x: Array) -> Array:
    """Return log(1 - e^-x), x > 0, without cancellation: from x growth(-x) up to log(2) / 2."""
    near = np.where(x < LN_2 / 2, x, np.float32(0))
    return log(np.where(x < LN_2 / 2, x * growth(-near), 1 - exp(-x)))


def tanh(x: Array) -> Array:
    """Return 1 - 2 / (1 + e^(2 x))."""
    return 1 - 2.0 / (1 + exp(x + x))


def quick_gelu(x: Array) -> Array:
    """Return x / (1 + e^(-1.702 x))."""
    return logistic(x * STEEPNESS, x)


def by_lane(x: Array, start: float, operation: Callable[[Array, Array], Array]) -> Array:
    """Reduce [.., n] to [.., LANES]: combine number j into lane j mod LANES; behind the last, numbers are `start`."""
    missing = -x.shape[-1] % LANES
    whole = np.concatenate([x, np.full((*x.shape[:-1], missing), start, np.float32)], axis=-1)
    lanes = np.full((*x.shape[:-1], LANES), start, np.float32)
    for first in range(0, whole.shape[-1], LANES):
        lanes = operation(whole[..., first : first + LANES], lanes)
    return lanes


def reduced(x: Array, start: float, operation: Callable[[Array, Array], Array]) -> Array:
    """Reduce [.., n] to [..]: by lanes, then combine lanes j and j + 8, j and j + 4, and so on.

    Processors with registers of any width can follow this order.
    """
    lanes = by_lane(x, start, operation)
    for half in (8, 4, 2, 1):
        lanes = operation(lanes[..., :half], lanes[..., half:])
    return lanes[..., 0]


def total(x: Array) -> Array:
    """Return the sum of the last axis."""
    return reduced(x, 0.0, lambda number, sum: sum + number)


def largest(x: Array) -> Array:
    """Return the largest of the last axis."""
    return reduced(x, -np.inf, lambda a, b: np.where(a > b, a, b))


def layer_norm(x: Array, norm: Norm) -> Array:
    """Return (x - mean) / sqrt(variance + EPSILON) * gain + bias."""
    size = np.float32(x.shape[-1])
    deviation = x - (total(x) / size)[..., None]
    squares = by_lane(deviation, 0.0, lambda number, sum: fma(number, number, sum))
    scale = 1 / np.sqrt(total(squares) / size + EPSILON)
    return fma(deviation * scale[..., None], norm.gain, norm.bias)


def linear(x: Array, layer: AnyLinear) -> Array:
    """Return bias + x W: a chain over inputs from the bias on, or a sum of integers times their unit."""
    if isinstance(layer, IntegerLinear):
        integers, units = rounded_rows(x)
        whole = integers.astype(np.int64) @ layer.integers.astype(np.int64)
        return fma(whole.astype(np.float32), units[..., None] * layer.steps, layer.bias)
    sums = np.broadcast_to(layer.bias, (*x.shape[:-1], len(layer.bias)))
    for k, row in enumerate(layer.weight):
        sums = fma(x[..., k, None], row, sums)
    return sums


def attend(q: Array, keys: Array, values: Array) -> Array:
    """Return softmax(q . keys / sqrt(K)) values: q [.., K], keys and values [.., n, K] -> [.., K]."""
    scores = np.zeros(keys.shape[:-1], np.float32)
    for k in range(q.shape[-1]):
        scores = fma(q[..., k, None], keys[..., k], scores)
    scale = 1 / np.sqrt(np.float32(q.shape[-1]))
    powers = exp((scores - largest(scores)[..., None]) * scale)
    sums = np.zeros(q.shape, np.float32)
    for j in range(keys.shape[-2]):
        sums = fma(powers[..., j, None], values[..., j, :], sums)
    return sums / total(powers)[..., None]


def rotated(x: Array, angles: Array) -> Array:
    """Return heads [.., K] with numbers j and j + K/2 rotated as a vector; angles [.., K]: cosines, then sines."""
    a, b = np.split(x, 2, axis=-1)
    cosines, sines = np.split(angles, 2, axis=-1)
    return np.concatenate([fma(a, cosines, -(b * sines)), fma(b, cosines, a * sines)], axis=-1)


def windows(slabs: Sequence[Array], neighbours: NDArray[np.int64]) -> Array:
    """Return the windows [rows, slabs * T * D] of the rows of a slab: slab by slab, of each the T neighbours.

    Args:
        slabs: [rows, D], the oldest first.
        neighbours: [positions, T]: rows of the same example; -1 is the row of zeros that is put behind them.
    """
    rows, dim = slabs[-1].shape
    examples = np.stack(slabs, axis=1).reshape(-1, len(neighbours), len(slabs), dim)
    padded = np.pad(examples, ((0, 0), (0, 1), (0, 0), (0, 0)))
    return padded[:, neighbours].swapaxes(2, 3).reshape(rows, -1)


@dataclass
class Dense:
    """See `interface.DenseLayer`."""

    layer: AnyLinear

    def __call__(self, x: Array) -> Array:
        return linear(x, self.layer)


@dataclass
class Embedding:
    """See `interface.EmbeddingLayer`."""

    kind: Kind

    def __call__(self, codes: NDArray[np.int64]) -> Array:
        return kind_of(self.kind).embedded(codes)


@dataclass
class Slabs:
    """See `interface.SlabLayers`."""

    layers: Sequence[Layer]
    heads: int
    neighbours: NDArray[np.int64] = field(default_factory=lambda: ITSELF)

    def start(self, rows: int, length: int, positions: int) -> State:
        """See `interface.SlabLayers.start`."""
        return [[] for _ in self.layers]

    def step(self, u: Array, i: int, state: State) -> Array:
        """See `interface.SlabLayers.step`."""
        for layer, before in zip(self.layers, state):
            n = layer_norm(u, layer.norm)
            if isinstance(layer, Attention):
                u = u + linear(self._attended(layer, n, i, before), layer.out)
            elif isinstance(layer, Feedforward):
                u = u + linear(quick_gelu(linear(n, layer.expand)), layer.contract)
            else:
                before.append(n)
                a, b = np.split(linear(self._windows(layer, before), layer.near), 2, axis=-1)
                u = u + linear(logistic(b, a), layer.out)
        return u

    def _attended(self, layer: Attention, n: Array, i: int, cache: list[Any]) -> Array:
        """Return the attention of slab i [rows, D]; a masked layer adds its keys and values to the cache."""
        line = layer.line
        heads = linear(n, layer.qkv).reshape(len(n), 3, self.heads, -1)
        if len(layer.rotations):
            positions = np.full(len(n), i) if line == MASKED else np.arange(len(n)) // line.stride % line.length
            heads[:, :2] = rotated(heads[:, :2], layer.rotations[positions][:, None, None])
        if line == MASKED:
            cache.append((heads[:, 1], heads[:, 2]))
            keys, values = (np.stack(parts, axis=-2) for parts in zip(*cache))
            return attend(heads[:, 0], keys, values).reshape(n.shape)
        q, k, v = np.moveaxis(heads.reshape(-1, *line, *heads.shape[1:]), 3, 0)  # [.., length, stride, N, K]
        k, v = (np.moveaxis(heads, 1, 3)[:, None] for heads in (k, v))
        return attend(q, k, v).reshape(n.shape)

    def _windows(self, layer: Convolution, slabs: list[Array]) -> Array:
        """Return the windows that end in the last of these slabs."""
        count = layer.near.shape[0] // (self.neighbours.shape[1] * slabs[-1].shape[1])
        missing = [np.zeros_like(slabs[-1])] * (count - len(slabs))
        return windows([*missing, *slabs[-count:]], self.neighbours)

    def add_upper(self, context: Array, values: NDArray[np.int64], kind: Kind, length: int, positions: int) -> None:
        """See `interface.SlabLayers.add_upper`."""
        slabs = context.reshape(-1, length, positions, context.shape[1])
        of_slabs = values.reshape(-1, length, positions, values.shape[-1])
        caches = self.start(len(slabs) * positions, length, positions)
        upper = np.zeros_like(slabs[:, 0])
        for i in range(length):
            u = kind_of(kind).embedded(of_slabs[:, i]) + slabs[:, i]
            if i:
                slabs[:, i] += upper
            upper = self.step(u.reshape(-1, u.shape[-1]), i, caches).reshape(u.shape)


@dataclass
class Rows:
    """See `interface.RowLayers`."""

    inner: Sequence[Layer] | Lstm
    heads: int
    output: Output

    def read(self, context: Array, centring: Centring | None, values: NDArray[np.int64], stream: Stream) -> None:
        """See `interface.RowLayers.read`."""
        for first in range(0, len(context), GROUP):
            group = slice(first, first + GROUP)
            own = centring and centring._replace(values=centring.values[group], sizes=centring.sizes[group])
            self._read_group(context[group], own, values[group], stream)

    def _read_group(self, context: Array, centring: Centring | None, values: NDArray[np.int64], stream: Stream) -> None:
        kind = kind_of(self.output.values)
        flat = values.reshape(len(values), -1)
        for n, logits in enumerate(self._logits(context, values)):
            centres = kind.centres(centring, len(values), n)
            for b, outputs in enumerate(logits):
                starts = kind.starts(outputs, int(centres[b]))
                if starts is None:
                    stream.state[2] = NOT_FINITE
                    flat[b, n] = 0
                else:
                    read_from(starts, stream, flat[b, n : n + 1])
            flat[:, n] = kind.keep(centring, n, flat[:, n], centres)

    def sample(self, context: Array, centring: Centring | None, values: NDArray[np.int64], choice: RowSampling) -> None:
        """Refuse: `decoding.choices.Sampler` defines samples."""
        raise NotImplementedError

    def take_known(self, context: Array, known: Known) -> None:
        """See `interface.RowLayers.take_known`."""
        kind = kind_of(self.output.values)
        channels = len(self.output.heads)
        for n, logits in enumerate(self._logits(context, known.values)):
            at = (slice(None), *divmod(n, channels))
            codes = known.values[at]
            values, centres = kind.value_and_centre(codes)
            if known.nats is not None:
                known.nats[at] = kind.nats(logits, codes)
            if known.intervals is not None:
                for b, outputs in enumerate(logits):
                    starts = kind.starts(outputs, int(centres[b]))
                    start, end = (0, 0) if starts is None else starts[values[b] : values[b] + 2]
                    known.intervals[at][b] = start, end - start

    def _logits(self, context: Array, values: NDArray[np.int64]) -> Iterator[Array]:
        """Yield the logits of each value, in the order (position, channel); those before it must be there by then."""
        step = self._start(len(context))
        kind = kind_of(self.output.values)
        for i in range(context.shape[1]):
            x = context[:, i]
            if i:
                x = x + kind.embedded(values[:, i - 1])
            normed = layer_norm(step(x, i), self.output.norm)
            for p, head in enumerate(self.output.heads):
                hidden = np.concatenate([normed, kind.features(values[:, i, :p])], axis=-1)
                if head.expand:
                    hidden = quick_gelu(linear(hidden, head.expand))
                yield linear(hidden, head.contract)

    def _start(self, rows: int) -> Callable[[Array, int], Array]:
        if not isinstance(self.inner, Lstm):
            slabs = Slabs(self.inner, self.heads)
            caches = slabs.start(rows, 0, 1)
            return lambda x, i: slabs.step(x, i, caches)
        lstm = self.inner
        hidden = cell = np.zeros((rows, len(lstm.norm.gain)), np.float32)

        def step(x: Array, i: int) -> Array:
            nonlocal hidden, cell
            gates = linear(layer_norm(x, lstm.norm), lstm.of_input) + linear(hidden, lstm.of_hidden)
            entered, kept, new, shown = np.split(gates, 4, axis=-1)
            cell = fma(logistic(kept), cell, logistic(entered) * tanh(new))
            hidden = logistic(shown) * tanh(cell)
            return x + hidden

        return step


@dataclass
class CategoricalValues:
    """Values without an order, by a softmax; they are their codes, and have no centres."""

    kind: Categorical

    def embedded(self, codes: NDArray[np.int64]) -> Array:
        """Return the rows of the table at codes [.., 1]: [.., D]."""
        return self.kind.table[codes[..., 0]]

    def features(self, codes: NDArray[np.int64]) -> Array:
        """Return no numbers, of no codes: a position has one value."""
        return codes.astype(np.float32)

    def value_and_centre(self, codes: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the values of codes, and any numbers."""
        return codes, codes

    def centres(self, centring: Centring | None, examples: int, i: int) -> NDArray[np.int64]:
        """Return any numbers."""
        return np.zeros(examples, np.int64)

    def keep(
        self, centring: Centring | None, i: int, values: NDArray[np.int64], centres: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Return the codes of values."""
        return values

    def nats(self, logits: Array, values: NDArray[np.int64]) -> Array:
        """Return -log softmax(logits)[value]; NaN if logits are not finite."""
        top = largest(logits)
        chosen = np.take_along_axis(logits, values[:, None], axis=1)[:, 0]
        return log(total(exp(logits - top[:, None]))) - (chosen - top)

    def starts(self, logits: Array, centre: int) -> NDArray[np.int64] | None:
        """Return the lower ends of the intervals of all values, and 2^PRECISION; None if logits [V] are not finite."""
        if not (logits - largest(logits) <= 0).all():
            return None
        return boundaries(fixed_points(logits))


@dataclass
class OrdinalValues:
    """Values with an order, by a mixture of logistic distributions."""

    kind: Ordinal

    def embedded(self, codes: NDArray[np.int64]) -> Array:
        """Return a linear layer of the features of codes [.., P]: [.., D]."""
        return linear(self.features(codes), self.kind.features.linear)

    def features(self, codes: NDArray[np.int64]) -> Array:
        """Return the features of some codes [.., n] of a position, side by side: [.., n * F]."""
        tables = self.kind.features
        value, centre = self.value_and_centre(codes)
        prediction, level = self._split_centre(centre)
        features = tables.values[value]
        if self.kind.centred:
            difference = tables.differences[value - prediction + self.kind.num_values - 1]
            features = np.concatenate([features, difference], axis=-1)
        if self.kind.activity:
            scales, logarithms = level_scales()
            relative = (value - prediction) / (np.abs(value - prediction) + scales[level].astype(np.float64))
            three = np.stack([relative, np.abs(relative), logarithms[level] / 8], axis=-1)
            features = np.concatenate([features, three.astype(np.float32)], axis=-1)
        return features.reshape(*codes.shape[:-1], codes.shape[-1] * features.shape[-1])

    def _split_centre(self, centres: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the predictions, and the levels of the activity or zeros."""
        if not self.kind.activity:
            return centres, np.zeros_like(centres)
        levels, predictions = divmod(centres, self.kind.num_values)
        return predictions, levels

    def _units(self, levels: NDArray[np.int64]) -> tuple[Array, Array]:
        """Return the units of means [.., K], and what is subtracted from log precisions."""
        in_scale = self.kind.activity & (np.arange(self.kind.mixtures) % 2 == 1)
        scales, logarithms = (numbers[levels][..., None] for numbers in level_scales())
        return np.where(in_scale, scales, self.kind.unit), np.where(in_scale, logarithms, np.float32(0))

    def value_and_centre(self, codes: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return values and predictions, which are (V - 1) // 2 if values are not centred."""
        centres, values = divmod(codes, self.kind.num_values)
        return values, centres if self.kind.centred else np.full_like(values, (self.kind.num_values - 1) // 2)

    def centres(self, centring: Centring | None, examples: int, i: int) -> NDArray[np.int64]:
        """Return the predictions [B] of value i of a row; the middle if values are not centred."""
        count = self.kind.num_values
        if not centring:
            return np.full(examples, (count - 1) // 2, np.int64)
        total = weighted(centring.values, centring.neighbours[i], centring.coefficients[i])
        predictions = np.clip(total >> COEFFICIENT_BITS, 0, count - 1)
        if not self.kind.activity:
            return predictions
        total = weighted(centring.sizes, centring.size_neighbours[i], centring.size_coefficients[i])
        sixteenths = np.clip(total >> COEFFICIENT_BITS - 4, 8, count << 4)
        octaves = np.frexp(sixteenths.astype(np.float64))[1].astype(np.int64) - 4
        return predictions + count * (8 * octaves + (sixteenths >> octaves) - 8)

    def keep(
        self, centring: Centring | None, i: int, values: NDArray[np.int64], centres: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Write the values [B], number i of a row, and return their codes."""
        if not centring:
            return values
        centring.values[:, centring.positions[i]] = values
        if self.kind.activity:
            centring.sizes[:, centring.positions[i]] = np.abs(values - centres % self.kind.num_values)
        return values + self.kind.num_values * centres

    def nats(self, outputs: Array, codes: NDArray[np.int64]) -> Array:
        """Return -log of the probability of each value [R], from outputs [R, 3 K]; NaN where these cannot be used.

        The probability is the sum of w_k (F(u) - F(l)), F(x) = 1 / (1 + e^-x), w = softmax of the weights. Component k
        has the bounds u, l = (value - prediction +- 1/2 - unit mean) precision. Since u - l is the precision,
        F(u) - F(l) = F(u) F(-l) (1 - e^-precision). Without a bound below value 0, it is F(u); above the last value,
        F(-l).
        """
        values, centres = self.value_and_centre(codes)
        centres, levels = self._split_centre(centres)
        unit, log_unit = self._units(levels)
        usable_outputs = np.where(usable(outputs)[:, None], outputs, np.float32(0))
        weights, means, precisions = self._split(usable_outputs, log_unit)
        distance = (values - centres).astype(np.float32)[:, None]
        from_upper = log_logistic(fma(means, -unit, distance + np.float32(0.5)) * precisions)
        from_lower = log_logistic(-(fma(means, -unit, distance - np.float32(0.5)) * precisions))
        is_first = (values == 0)[:, None]
        is_last = (values == self.kind.num_values - 1)[:, None]
        powers = weights - largest(weights)[:, None]
        inner = from_upper + from_lower + log_one_minus_power(precisions)
        terms = powers + np.where(is_first, from_upper, np.where(is_last, from_lower, inner))
        most = largest(terms)
        nats = log(total(exp(powers))) - (most + log(total(exp(terms - most[:, None]))))
        return np.where(usable(outputs), nats, np.float32(np.nan))

    def starts(self, outputs: Array, centre: int) -> NDArray[np.int64] | None:
        """Return the lower ends of the intervals of all values, and 2^PRECISION; None if outputs cannot be used."""
        values = np.arange(self.kind.num_values + 1)
        return self.counts_below(values, centre, outputs) if usable(outputs) else None

    def counts_below(self, values: NDArray[np.int64], centre: int, outputs: Array) -> NDArray[np.int64]:
        """Return the starts of the intervals of values [n], each from 0 to V; that of V is 2^PRECISION.

        Each operation on z is monotone in the value, and so is each integer. So a start is at least 1 above the one
        before.
        """
        count = self.kind.num_values
        centres, levels = self._split_centre(np.array(centre))
        unit, log_unit = self._units(levels)
        weights, means, precisions = self._split(outputs, log_unit)
        shares = integer_weights(weights, count)
        below = (values - centres).astype(np.float32)[:, None] - np.float32(0.5)
        logistics = integer_logistic(fma(means, -unit, below) * precisions)
        starts = values + ((logistics @ shares) >> LOGISTIC_BITS)
        starts[values == 0] = 0
        starts[values == count] = 1 << PRECISION
        return starts

    def _split(self, outputs: Array, log_unit: Array) -> tuple[Array, Array, Array]:
        """Return weights, means and precisions [.., K] from outputs [.., 3 K]."""
        weights, means, log_precisions = np.split(outputs, 3, axis=-1)
        log_precisions = log_precisions - log_unit
        return weights, means, exp(clip(log_precisions, MIN_LOG_PRECISION, float(self.kind.max_log_precision)))


def kind_of(kind: Kind) -> CategoricalValues | OrdinalValues:
    """Return the functions of a kind of values."""
    return CategoricalValues(kind) if isinstance(kind, Categorical) else OrdinalValues(kind)


def weighted(
    numbers: NDArray[np.int64], neighbours: NDArray[np.int64], coefficients: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the sums [B] of numbers [B, P] at the neighbours that are there, times coefficients, and the constant."""
    is_there = neighbours >= 0
    return numbers[:, neighbours[is_there]] @ coefficients[:-1][is_there] + coefficients[-1]


def usable(outputs: Array) -> NDArray[np.bool_]:
    """Return True for rows of outputs that are all finite, and not huge."""
    return np.asarray((np.abs(outputs) < MAX_OUTPUT).all(axis=-1))


def integer_weights(weights: Array, count: int) -> NDArray[np.int64]:
    """Return softmax(weights) [K] as integers that add up to 2^PRECISION - count."""
    available = (1 << PRECISION) - count
    return np.diff([*sums_before(fixed_points(weights), available), available])


def integer_logistic(z: Array) -> NDArray[np.int64]:
    """Return 1 / (1 + e^-z) in units of 2^-LOGISTIC_BITS: a table, and straight lines between its rows."""
    size = clip(np.abs(z), 0, LOGISTIC_END) * np.float32(1 << TABLE_BITS + BETWEEN_BITS)
    row, between = divmod(size.astype(np.int64), 1 << BETWEEN_BITS)
    table = logistic_table()
    upper = table[row]
    lower = table[row + 1]
    below = upper - ((upper - lower) * between >> BETWEEN_BITS)
    return np.where(z < 0, below, (1 << LOGISTIC_BITS) - below)


def fixed_points(logits: Array) -> NDArray[np.int64]:
    """Return exp(logits - largest) in units of 2^-FIXED_POINT, rounded down."""
    return (exp(logits - largest(logits)[..., None]) * np.float32(1 << FIXED_POINT)).astype(np.int64)


def boundaries(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the lower ends of the values' intervals of [0, 2^PRECISION), and 2^PRECISION, by fixed-point numbers."""
    count = len(numbers)
    return np.append(np.arange(count) + sums_before(numbers, (1 << PRECISION) - count), 1 << PRECISION)


def sums_before(numbers: NDArray[np.int64], available: int) -> NDArray[np.int64]:
    """Return for each fixed-point number the sum of those before it, where the sum of all is at most `available`."""
    factor = (available << RECIPROCAL) // max(int(numbers.sum()), 1)
    return (np.cumsum(numbers) - numbers) * factor >> RECIPROCAL


def read_from(starts: NDArray[np.integer], stream: Stream, values: NDArray[np.int64]) -> None:
    """Read values [n] of one distribution, whose value v has the interval starts[v] .. starts[v + 1] - 1."""
    for k in range(len(values)):
        value = int(np.searchsorted(starts, int(stream.state[0]) % (1 << PRECISION), "right")) - 1
        advance(stream, int(starts[value]), int(starts[value + 1]))
        values[k] = value


def advance(stream: Stream, start: int, end: int) -> None:
    """Take the next value, with the interval start .. end - 1, from the state of a stream."""
    state = int(stream.state[0])
    position = int(stream.state[1])
    state = (end - start) * (state >> PRECISION) + state % (1 << PRECISION) - start
    if state < MIN_STATE:
        if position >= len(stream.words):
            stream.state[2] = TOO_SHORT
        state = state << WORD | (int(stream.words[position]) if position < len(stream.words) else 0)
        stream.state[1] += 1
    stream.state[0] = state


def write_stream(intervals: NDArray[np.int64], state: int) -> NDArray[np.uint32]:
    """Return the words of symbols with intervals [n, 2], in the order in which they are read; they end with `state`."""
    words: list[int] = []
    for start, frequency in reversed(intervals.tolist()):
        if state >= frequency << (63 - PRECISION):
            words.append(state % (1 << WORD))
            state >>= WORD
        state = (state // frequency << PRECISION) + state % frequency + start
    return np.array([state >> WORD, state % (1 << WORD), *reversed(words)], np.uint32)
