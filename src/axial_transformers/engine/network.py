"""Exact layers in C, as `reference` defines them: the same classes and the same bits.

This file packs weights as C reads them, checks sizes, and divides examples among threads. What is computed, and how it
lies in memory, stands in `layers.h`, `rows.h` and `network.c`.

    call                              threads
    Slabs.step, Slabs.add_upper       each takes some whole examples
    Rows.sample, Rows.take_known      each takes some examples
    Rows.read                         one: a value is read from the state that the value before left
    Dense, Embedding                  one
"""

from collections.abc import Callable, Sequence
from ctypes import Structure, byref, c_int64, c_uint64, c_void_p, cast
from math import ceil, inf, prod
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from axial_transformers.engine import structures as c
from axial_transformers.engine.definition import (
    GROUP,
    ITSELF,
    LANES,
    LEVELS,
    MASKED,
    MAX_CHANNELS,
    MAX_INPUTS,
    MAX_INTEGER,
    PRECISION,
    AnyLinear,
    Array,
    Attention,
    Categorical,
    Centring,
    Convolution,
    Head,
    Kind,
    Known,
    Layer,
    Line,
    Linear,
    Lstm,
    Norm,
    Ordinal,
    Output,
    RowSampling,
    Stream,
    logistic_table,
)
from axial_transformers.engine.interface import Integers
from axial_transformers.engine.library import exact_library, ieee_arithmetic as ieee_arithmetic
from axial_transformers.engine.threads import parallel_ranges

TILE, SIDE, PLACES, CACHE_LINE = 32, 4, 4, 64
ROWS_AT_ONCE, KNOWN_AT_ONCE = 224, 784
"""Rows of a slab, and of known values, that go through the layers together: they stay in a core's cache."""
MIN_AT_ONCE = 4
"""Examples that are worth a thread: each thread reads all weights, so fewer examples take as long."""
SCALES = tuple(4**n for n in range(8))
"""Scales of the features of a difference; those from V on are left out."""


class Packed:
    """Weights as C reads them. It keeps the arrays that the structures point into."""

    def __init__(self) -> None:
        self._kept: list[Any] = []

    def array(self, x: Any, dtype: Any = np.float32) -> Any:
        """Return the address of a copy, or of x itself, which is kept."""
        kept = np.ascontiguousarray(x, dtype)
        self._kept.append(kept)
        return _for_c(kept)

    def many(self, kind: Any, structures: Sequence[Any]) -> c_void_p:
        """Return the address of an array of structures."""
        kept = (kind * len(structures))(*structures)
        self._kept.append(kept)
        return cast(kept, c_void_p)

    def linear(self, layer: AnyLinear) -> Any:
        """Return a layer in tiles of TILE outputs; see `linear.h`."""
        inputs, outputs = layer.shape
        _check("the bias of a linear layer", layer.bias.shape, (outputs,))
        bias = self.array(_aligned(layer.bias, TILE))
        if isinstance(layer, Linear):
            tiles = _aligned(layer.weight, TILE).reshape(inputs, -1, TILE).swapaxes(0, 1)
            return c.Linear(inputs, outputs, self.array(_aligned(tiles)), bias)
        _check("the steps of a linear layer", layer.steps.shape, (outputs,))
        _require(inputs <= MAX_INPUTS, f"a sum of {inputs:,} products has more than 32 bits: at most {MAX_INPUTS:,}")
        too_large = np.abs(layer.integers).max(initial=0) > MAX_INTEGER
        _require(not too_large, f"integers of weights are above {MAX_INTEGER}")
        size = c_uint64()
        exact_library().size_of_integers(c_uint64(inputs), c_uint64(outputs), byref(size))
        tiles, steps = aligned_zeros(size.value, dtype=np.int8), _aligned(layer.steps, TILE)
        totals = aligned_zeros(len(steps), dtype=np.int32)
        memory = self.array(tiles, np.int8), self.array(steps), self.array(totals, np.int32)
        packed = c.Linear(inputs, outputs, None, bias, *memory)
        _call("pack", packed, np.ascontiguousarray(layer.integers.T, np.int8))
        return packed

    def norm(self, norm: Norm, dim: int) -> Any:
        _check("gain and bias of a layer norm", (norm.gain.shape, norm.bias.shape), ((dim,), (dim,)))
        return c.Norm(self.array(norm.gain), self.array(norm.bias))

    def layer(self, layer: Layer, heads: int, near: int = 1) -> Any:
        """Return a residual layer; a window has `near` neighbours in each slab."""
        dim = len(layer.norm.gain)
        norm = self.norm(layer.norm, dim)
        if isinstance(layer, Attention):
            sizes = (dim, 3 * dim), (dim, dim)
            _check("linear layers of attention", (layer.qkv.shape, layer.out.shape), sizes)
            _require(dim % heads == 0, f"a layer of width {dim} has no {heads} equal heads")
            linear = self.linear(layer.qkv), self.linear(layer.out)
            return c.Layer(dim, heads, 0, norm, *linear, self._rotations(layer, dim // heads))
        _, first, last = layer
        hidden = last.shape[0]
        entered, slabs = (dim, hidden), 0
        if isinstance(layer, Convolution):
            slabs = max(1, first.shape[0] // (near * dim))
            entered = slabs * near * dim, 2 * hidden
        _check("linear layers behind attention", (first.shape, last.shape), (entered, (hidden, dim)))
        return c.Layer(dim, 0, slabs, norm, self.linear(first), self.linear(last))

    def _rotations(self, layer: Attention, width: int) -> Any:
        if not len(layer.rotations):
            return None
        _require(width % 2 == 0, f"rotations need heads of even width, not {width}")
        _check("cosines and sines of a rotation", layer.rotations.shape[1:], (width,))
        length = layer.line.length
        _require(len(layer.rotations) >= length, f"rotations must be for {length} positions")
        return self.array(layer.rotations)

    def head(self, head: Head, inputs: int, outputs: int) -> Any:
        """Return the head of a channel."""
        expand, hidden = c.Linear(), inputs
        if head.expand is not None:
            hidden = len(head.expand.bias)
            _check("the first layer of a head", head.expand.shape, (inputs, hidden))
            expand = self.linear(head.expand)
        _check("the last layer of a head", head.contract.shape, (hidden, outputs))
        return c.Head(expand, self.linear(head.contract))

    def values(self, kind: Kind) -> tuple[Any, Any]:
        """Return what embeds values, and what predicts them: of ordinal ones, C computes features, and a mixture."""
        if isinstance(kind, Categorical):
            count, dim = kind.table.shape
            return c.Embedding(dim, count, 1, 0, self.array(kind.table), c.Linear()), c.Mixture(count)
        count = kind.num_values
        linear = kind.features.linear
        channels = kind.channels
        _require(1 <= channels <= MAX_CHANNELS, f"a position has 1 to {MAX_CHANNELS} values, not {channels}")
        _check("inputs of features", len(linear.weight), channels * feature_count(kind))
        _require(1 <= kind.mixtures <= 256, f"a head has 1 to 256 mixtures, not {kind.mixtures}")
        table = self.array(logistic_table(), np.int64)
        settings = kind.mixtures, kind.unit, kind.max_log_precision, kind.activity
        codes = count, channels, kind.centred
        embedding = c.Embedding(len(linear.bias), *codes, None, self.linear(linear), kind.activity)
        return embedding, c.Mixture(count, *settings, table)


def feature_count(kind: Ordinal) -> int:
    """Return how many numbers C computes of a code, see `write_features` in `rows.h`."""
    count = 3 if kind.num_values > 256 else 1
    if kind.centred:
        count += 2 * len([scale for scale in SCALES if scale < kind.num_values])
    return count + 3 if kind.activity else count


def masked_attention(layers: Sequence[Layer]) -> list[Attention]:
    """Return the layers that attend to the slabs before."""
    return [layer for layer in layers if isinstance(layer, Attention) and layer.line == MASKED]


def max_length(layers: Sequence[Layer]) -> float:
    """Return how many slabs the rotations of masked attention are for."""
    lengths = (len(layer.rotations) for layer in masked_attention(layers))
    return min(filter(None, lengths), default=inf)


class Dense(Packed):
    """See `interface.DenseLayer`."""

    def __init__(self, layer: AnyLinear):
        super().__init__()
        self._layer = self.linear(layer)

    def __call__(self, x: Array) -> Array:
        _check("inputs", x.shape[1:], (self._layer.inputs,))
        x, out = np.ascontiguousarray(x, np.float32), np.empty((len(x), self._layer.outputs), np.float32)
        _call("dense", self._layer, x, len(x), out)
        return out


class Embedding(Packed):
    """See `interface.EmbeddingLayer`."""

    def __init__(self, kind: Kind):
        super().__init__()
        self._embedding, _ = self.values(kind)

    def __call__(self, codes: Integers) -> Array:
        _check("values of a position", codes.shape[1:], (self._embedding.channels,))
        _check_codes(codes, self._embedding)
        codes = np.ascontiguousarray(codes, np.int64)
        out = np.empty((len(codes), self._embedding.dim), np.float32)
        _call("embed", self._embedding, codes, len(codes), out)
        return out


class State(NamedTuple):
    """The state of `Slabs`: keys, values and windows of the slabs so far, see `step` in `network.c`."""

    rows_at_once: int
    """Rows that go through the layers together."""
    keys: Array
    values: Array
    kept: Array
    rows: int
    length: int


class Slabs(Packed):
    """See `interface.SlabLayers`.

    Args:
        neighbours: int64 [positions, T], which only convolutions need.
    """

    def __init__(self, layers: Sequence[Layer], heads: int, neighbours: Integers = ITSELF):
        super().__init__()
        self._dim = len(layers[0].norm.gain)
        self._lines = [layer.line if isinstance(layer, Attention) else MASKED for layer in layers]
        positions, near = neighbours.shape
        _require(near, "a position has no neighbours: it is at least its own")
        inside = -1 <= neighbours.min(initial=0) <= neighbours.max(initial=0) < positions
        _require(inside, f"neighbours must be rows of a slab of {positions}, or -1")
        self._neighbours = self.array(neighbours, np.int64), positions, near
        self._masked = len(masked_attention(layers))
        self._max_length = max_length(layers)
        packed = [self.layer(layer, heads, near) for layer in layers]
        _check("widths of layers", {layer.dim for layer in packed}, {self._dim})
        convolutions = [layer for layer in layers if isinstance(layer, Convolution)]
        self._windows = sum(layer.near.shape[0] for layer in convolutions) // near
        self._layers = self.many(c.Layer, packed)
        self._through_cache = self._along(MASKED)

    def _along(self, line_if_masked: Line) -> Any:
        """Return the structure of these layers, of which masked attention goes along a line, or through the cache."""
        lines = [c.Line(*(line_if_masked if line == MASKED else line), line == MASKED) for line in self._lines]
        return c.Slabs(self._layers, self.many(c.Line, lines), len(lines), *self._neighbours)

    def start(self, rows: int, length: int, positions: int) -> State:
        """See `interface.SlabLayers.start`."""
        self._check_lines(rows, length, positions)
        rows_at_once = examples_at_once(rows // positions, max(1, ROWS_AT_ONCE // positions)) * positions
        numbers = ceil(rows_at_once / SIDE) * ceil(length / PLACES) * LANES * self._dim
        size = self._masked * ceil(rows / rows_at_once) * numbers + LANES
        kept = aligned_zeros(rows * self._windows)
        return State(rows_at_once, aligned_zeros(size), aligned_zeros(size), kept, rows, length)

    def _check_lines(self, rows: int, length: int, positions: int) -> None:
        _require(rows % positions == 0, f"{rows} rows are no whole examples of {positions}")
        _require(length <= self._max_length, f"rotations must be for {length} slabs")
        for line in self._lines:
            inside = line == MASKED or positions % (line.length * line.stride) == 0
            _require(inside, f"an example of {positions} rows has no whole lines {line}")
        if self._windows:
            _check("positions with neighbours", self._neighbours[1], positions)

    def step(self, u: Array, i: int, state: State) -> Array:
        """See `interface.SlabLayers.step`."""
        _check("a slab", u.shape, (state.rows, self._dim))
        _require(0 <= i < state.length, f"slab {i} is not one of {state.length}")
        x = np.array(u, np.float32, order="C")
        size = state.rows_at_once
        after = size, i, state.keys, state.values, state.kept, state.rows, state.length
        _in_parts(size, state.rows, lambda *bounds: _call("step", self._through_cache, x, *bounds, *after))
        return x

    def add_upper(self, context: Array, values: Integers, kind: Kind, length: int, positions: int) -> None:
        """See `interface.SlabLayers.add_upper`. Masked layers attend along the slabs, one layer after the other."""
        example = length * positions
        packed = Packed()
        embedding, _ = packed.values(kind)
        _check("the width of the embedding", embedding.dim, self._dim)
        _check("values", values.shape[1:], (embedding.channels,))
        _check_written("context", context, (len(values), self._dim), np.float32)
        _require(len(values) % example == 0, f"{len(values)} rows are no whole examples of {example}")
        self._check_lines(example, length, positions)
        _check_codes(values, embedding)

        before = self._along(Line(length, positions)), context, np.ascontiguousarray(values, np.int64), embedding
        size = examples_at_once(len(values) // example, max(1, KNOWN_AT_ONCE // example)) * example
        _in_parts(size, len(values), lambda *bounds: _call("add_upper", *before, *bounds, example, positions))


class Rows(Packed):
    """See `interface.RowLayers`."""

    def __init__(self, inner: Sequence[Layer] | Lstm, heads: int, output: Output):
        super().__init__()
        self._embedding, mixture = self.values(output.values)
        self._count, self._mixtures = mixture.count, mixture.mixtures
        dim = self._embedding.dim
        features = self._embedding.of_features.inputs // self._embedding.channels
        outputs = 3 * self._mixtures or self._count
        _check("heads", len(output.heads), self._embedding.channels)
        of_channels = [self.head(head, dim + p * features, outputs) for p, head in enumerate(output.heads)]
        lstm = c.Lstm()
        layers: Sequence[Layer] = []
        if isinstance(inner, Lstm):
            linear = self.linear(inner.of_input), self.linear(inner.of_hidden)
            _check("layers of an LSTM", [(layer.inputs, layer.outputs) for layer in linear], [(dim, 4 * dim)] * 2)
            lstm = c.Lstm(self.norm(inner.norm, dim), *linear)
        else:
            layers = inner
        self._max_length = max_length(layers)
        packed = [self.layer(layer, heads) for layer in layers]
        for layer in packed:
            _check("the width of a layer", layer.dim, dim)
        _require(2 <= self._count <= 1 << 16, f"a position has 2 to 65,536 values, not {self._count}")
        norm = self.norm(output.norm, dim)
        inside = self.many(c.Layer, packed), len(packed), lstm
        self._rows = c.Rows(self._embedding, *inside, norm, self.many(c.Head, of_channels), mixture)

    def read(self, context: Array, centring: Centring | None, values: Integers, stream: Stream) -> None:
        """See `interface.RowLayers.read`: in one thread."""
        context = self._checked(context, values)
        _check_written("values", values, values.shape)
        packed = Packed()
        own = _stream(stream)
        _call("read_rows", self._rows, context, *values.shape[:2], _centring(centring, values, packed), values, own)
        _advance(stream, own)

    def sample(self, context: Array, centring: Centring | None, values: Integers, choice: RowSampling) -> None:
        """See `interface.RowLayers.sample`."""
        context = self._checked(context, values)
        _check_written("values", values, values.shape)
        batch, length, _ = values.shape
        count = self._count
        gumbel = choice.noise.ndim > values.ndim
        _check("noise", choice.noise.shape, (*values.shape, count) if gumbel else values.shape)
        _require(not (gumbel and self._mixtures), "ordinal values need uniform noise")
        _check("known values", choice.known.shape, values.shape)
        _require(choice.known.max(initial=-1) < count, f"known values must be below {count}")

        packed = Packed()
        noise = packed.array(choice.noise, np.float32 if gumbel else np.float64)
        noises = (noise, None) if gumbel else (None, noise)
        known = packed.array(choice.known, np.int64)
        sampling = c.Sampling(*noises, known, choice.temperature, choice.top_p, min(choice.top_k, count))
        after = length, _centring(centring, values, packed), values, sampling
        size = examples_at_once(batch)
        _in_parts(size, batch, lambda *bounds: _call("sample_rows", self._rows, context, *bounds, *after))

    def take_known(self, context: Array, known: Known) -> None:
        """See `interface.RowLayers.take_known`."""
        codes = np.ascontiguousarray(known.values, np.int64)
        context = self._checked(context, codes)
        _check_codes(codes, self._embedding)
        if known.nats is not None:
            _check_written("nats", known.nats, codes.shape, np.float32)
        if known.intervals is not None:
            _check_written("intervals", known.intervals, (*codes.shape, 2))

        batch, length, _ = codes.shape
        after = length, codes, known.nats, known.intervals
        size = examples_at_once(batch, max(1, KNOWN_AT_ONCE // length) if self._rows.count else GROUP)
        _in_parts(size, batch, lambda *bounds: _call("known_rows", self._rows, context, *bounds, *after))

    def _checked(self, context: Array, values: Integers) -> Array:
        """Return the context [B, L, D] in C order, if it fits the values [B, L, P]."""
        _check("values of a position", values.shape[2:], (self._embedding.channels,))
        batch, length, _ = values.shape
        _check("context", context.shape, (batch, length, self._embedding.dim))
        _require(length <= self._max_length, f"rotations must be for {length} positions")
        return np.ascontiguousarray(context, np.float32)


def examples_at_once(examples: int, most: int = GROUP) -> int:
    """Return how many examples one thread takes at a time: an equal share, at least MIN_AT_ONCE, never above `most`.

    Args:
        examples: of the whole call.
        most: examples whose rows fit into a core's cache.
    """
    return max(1, min(most, max(MIN_AT_ONCE, ceil(examples / torch.get_num_threads()))))


def _in_parts(size: int, count: int, work: Callable[[int, int], None]) -> None:
    """Call work(first, last) in threads, each with some whole parts of range(count); a part has `size`."""
    parallel_ranges(lambda first, last: work(first * size, min(last * size, count)), ceil(count / size))


def read_from(starts: NDArray[np.int32], stream: Stream, values: Integers) -> None:
    """See `interface.Arithmetic.read_from`."""
    starts = np.ascontiguousarray(starts, np.int32)
    _check_written("values", values, values.shape)
    _check("the ends of all intervals", (starts[0], starts[-1]), (0, 1 << PRECISION))
    _require((np.diff(starts) > 0).all(), "an interval of a value is empty")
    own = _stream(stream)
    _call("read_from", starts, len(starts) - 1, own, values, len(values))
    _advance(stream, own)


def write_stream(intervals: Integers, state: int) -> NDArray[np.uint32]:
    """See `interface.Arithmetic.write_stream`."""
    intervals = np.ascontiguousarray(intervals, np.int64)
    at = c_uint64()
    words = np.empty(len(intervals) + 2, np.uint32)
    starts, frequencies = intervals.reshape(-1, 2).T
    inside = (starts >= 0) & (frequencies > 0) & (starts + frequencies <= 1 << PRECISION)
    _require(inside.all(), "an interval is empty, or not within those of all values")
    _call("write_stream", intervals, len(intervals), state, words, byref(at))
    return words[at.value :]


def aligned_zeros(*shape: int, dtype: Any = np.float32) -> NDArray[Any]:
    """Return zeros that begin with a cache line: vectors that cross one take longer."""
    size = prod(shape) * np.dtype(dtype).itemsize
    memory = np.zeros(size + CACHE_LINE, np.uint8)
    first = -memory.ctypes.data % CACHE_LINE
    return memory[first : first + size].view(dtype).reshape(shape)


def _aligned(x: NDArray[Any], multiple: int = 1) -> NDArray[Any]:
    """Return a copy that begins with a cache line, with zeros behind the last axis, up to a multiple."""
    length = x.shape[-1]
    copy = aligned_zeros(*x.shape[:-1], length + -length % multiple, dtype=x.dtype)
    copy[..., :length] = x
    return copy


def _call(name: str, *arguments: Any) -> None:
    """Call a C function with arrays and structures, as their addresses, and unsigned numbers."""
    getattr(exact_library(), name)(*map(_for_c, arguments))


def _for_c(argument: Any) -> Any:
    if isinstance(argument, int):
        return c_uint64(argument)
    if isinstance(argument, np.ndarray):
        return c_void_p(argument.ctypes.data)
    return byref(argument) if isinstance(argument, Structure) else argument


def _require(holds: object, problem: str) -> None:
    """Refuse what C would not check."""
    if not holds:
        raise ValueError(problem)


def _check(what: str, actual: object, expected: object) -> None:
    if actual != expected:  # to write the text of an array's type takes long
        raise ValueError(f"{what}: {actual} where {expected} is expected")


def _check_written(what: str, array: NDArray[Any], shape: tuple[int, ...], dtype: Any = np.int64) -> None:
    _check(what, (array.shape, array.dtype), (shape, np.dtype(dtype)))
    _require(array.flags.carray, f"{what} must be in C order and writable")


def _check_codes(codes: Integers, embedding: Any) -> None:
    count = embedding.count ** (2 if embedding.centred else 1) * (LEVELS if embedding.activity else 1)
    if codes.size and not 0 <= codes.min() <= codes.max() < count:
        raise ValueError(f"known values must be in 0..{count - 1}")


def _stream(stream: Stream) -> Any:
    words = stream.words
    _require(words.dtype == np.uint32 and words.flags.c_contiguous, "words of a stream must be uint32, in C order")
    state, at, _ = stream.state.tolist()
    return c.Stream(_for_c(words), len(words), at, state, 0)


def _advance(stream: Stream, own: Any) -> None:
    """Write what C has made of a stream; the state of a damaged one may have 64 bits."""
    stream.state[:] = c_int64(own.state).value, own.at, own.status or stream.state[2]


def _centring(centring: Centring | None, values: Integers, packed: Packed) -> Any:
    """Return the prediction of the values [B, L, P] of a row, as C takes it."""
    if not centring:
        return c.Centring()
    batch, length = len(values), prod(values.shape[1:])
    size = centring.values.shape[1]
    count = centring.neighbours.shape[1]
    places = centring.positions, centring.neighbours, centring.coefficients
    _check_written("values so far", centring.values, (batch, size))
    _check("predictions", [array.shape for array in places], [(length,), (length, count), (length, count + 1)])
    highest = max(centring.positions.max(initial=0), centring.neighbours.max(initial=0))
    _require(centring.positions.min(initial=0) >= 0 and highest < size, f"predictions leave the {size} positions")
    addresses = [packed.array(array, np.int64) for array in places]
    predictions = _for_c(centring.values), size, *addresses, count
    if not centring.sizes.size:
        return c.Centring(*predictions)
    _check_written("sizes so far", centring.sizes, (batch, size))
    neighbours, coefficients = centring.size_neighbours, centring.size_coefficients
    k = neighbours.shape[1]
    _check("sizes of differences", [neighbours.shape, coefficients.shape], [(length, k), (length, k + 1)])
    _require(neighbours.max(initial=0) < size, f"neighbours leave the {size} positions")
    addresses = [packed.array(array, np.int64) for array in (neighbours, coefficients)]
    return c.Centring(*predictions, _for_c(centring.sizes), *addresses, k)
