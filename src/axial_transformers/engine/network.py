"""The exact network in C, as `reference` defines it: the same classes and the same bits.

This file packs weights as C reads them, checks sizes, and divides examples among threads. What is computed, and how it
lies in memory, stands in `layers.h`, `rows.h` and `network.c`.

    call                              threads
    Slabs.step, Slabs.add_upper       each takes some whole examples
    Rows.sample, Rows.take_known      each takes some examples
    Rows.read                         one: a value is read from the state that the value before left
    Dense                             one
"""

from collections.abc import Callable, Sequence
from ctypes import Structure, byref, c_float, c_int, c_int64, c_uint64, c_void_p, cast
from math import ceil, prod
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from axial_transformers.engine.definition import (
    GROUP,
    LANES,
    MASKED,
    Array,
    Block,
    Centring,
    Features,
    Known,
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
from axial_transformers.engine.library import exact_library, ieee_arithmetic as ieee_arithmetic
from axial_transformers.engine.threads import parallel_ranges

TILE, SIDE, PLACES, CACHE_LINE = 32, 4, 4, 64
ROWS_AT_ONCE, KNOWN_AT_ONCE = 224, 784
"""Rows of a slab, and of known values, that go through the layers together: they stay in a core's cache."""
MIN_AT_ONCE = 4
"""Examples that are worth a thread: each thread reads all weights, so fewer examples take as long."""

Integers = NDArray[np.int64]


def _structure(name: str, **fields: Any) -> Any:
    """Return the C structure of this name in `layers.h`, `coder.h`, `rows.h`, `network.c` or `sampling.h`."""
    return type(name, (Structure,), {"_fields_": [*fields.items()]})


C_LINEAR = _structure("Linear", inputs=c_uint64, outputs=c_uint64, weight=c_void_p, bias=c_void_p)
C_NORM = _structure("Norm", gain=c_void_p, bias=c_void_p)
C_BLOCK = _structure(
    "Block", dim=c_uint64, heads=c_uint64, hidden=c_uint64, attention_norm=C_NORM, feedforward_norm=C_NORM,
    qkv=C_LINEAR, out=C_LINEAR, expand=C_LINEAR, contract=C_LINEAR, rotations=c_void_p,
)  # fmt: skip
C_LINE = _structure("Line", length=c_uint64, stride=c_uint64, causal=c_uint64)
C_SLABS = _structure("Slabs", blocks=c_void_p, lines=c_void_p, layers=c_uint64)
C_EMBEDDING = _structure(
    "Embedding", dim=c_uint64, count=c_uint64, centred=c_uint64, table=c_void_p, of_features=C_LINEAR
)
C_LSTM = _structure("Lstm", norm=C_NORM, of_input=C_LINEAR, of_hidden=C_LINEAR)
C_MIXTURE = _structure(
    "Mixture", count=c_int64, mixtures=c_uint64, unit=c_float, max_log_precision=c_float, table=c_void_p,
    centre=c_int64, means=c_void_p, precisions=c_void_p, shares=c_void_p,
)  # fmt: skip
C_ROWS = _structure(
    "Rows", embedding=C_EMBEDDING, blocks=c_void_p, layers=c_uint64, lstm=C_LSTM, head_norm=C_NORM, head=C_LINEAR,
    mixture=C_MIXTURE,
)  # fmt: skip
C_STREAM = _structure("Stream", words=c_void_p, count=c_uint64, at=c_uint64, state=c_uint64, status=c_int)
C_CENTRING = _structure(
    "Centring", values=c_void_p, size=c_uint64, positions=c_void_p, neighbours=c_void_p, coefficients=c_void_p,
    count=c_uint64,
)  # fmt: skip
C_SAMPLING = _structure(
    "Sampling", noise=c_void_p, uniforms=c_void_p, known=c_void_p, temperature=c_float, top_p=c_float, top_k=c_uint64
)


class Packed:
    """Weights as C reads them. It holds the arrays that the structures point into."""

    def __init__(self) -> None:
        self._arrays: list[Any] = []

    def array(self, x: Any, dtype: Any = np.float32) -> Any:
        """Return the address of a copy, or of x itself, which is kept."""
        held = np.ascontiguousarray(x, dtype)
        self._arrays.append(held)
        return _for_c(held)

    def many(self, kind: Any, structures: Sequence[Any]) -> c_void_p:
        """Return the address of an array of structures."""
        held = (kind * len(structures))(*structures)
        self._arrays.append(held)
        return cast(held, c_void_p)

    def linear(self, layer: Linear) -> Any:
        """Return a layer in tiles of TILE outputs; see `layers.h`."""
        inputs, outputs = layer.weight.shape
        _check("the bias of a linear layer", layer.bias.shape, (outputs,))
        tiles = ceil(outputs / TILE)
        padded = np.zeros((inputs, tiles * TILE), np.float32)
        padded[:, :outputs] = layer.weight
        weight = aligned_zeros(tiles, inputs, TILE)
        weight[:] = padded.reshape(inputs, tiles, TILE).swapaxes(0, 1)
        bias = aligned_zeros(tiles * TILE)
        bias[:outputs] = layer.bias
        return C_LINEAR(inputs, outputs, self.array(weight), self.array(bias))

    def norm(self, norm: Norm, dim: int) -> Any:
        _check("a layer norm", (norm.gain.shape, norm.bias.shape), ((dim,), (dim,)))
        return C_NORM(self.array(norm.gain), self.array(norm.bias))

    def block(self, block: Block, heads: int, length: int = 0) -> Any:
        """Return a transformer block whose rotations, if it has any, are for `length` positions at least."""
        dim = len(block.qkv.weight)
        hidden = len(block.expand.bias)
        sizes = [layer.weight.shape for layer in (block.qkv, block.out, block.expand, block.contract)]
        _check("linear layers of a block", sizes, [(dim, 3 * dim), (dim, dim), (dim, hidden), (hidden, dim)])
        _check("the width of heads", (dim % heads, dim // heads % 2 and len(block.rotations)), (0, 0))
        rotations = None
        if len(block.rotations):
            _check("rotations", block.rotations.shape[1:], (dim // heads,))
            _check("the length of rotations", len(block.rotations) >= length)
            rotations = self.array(block.rotations)
        norms = self.norm(block.attention_norm, dim), self.norm(block.feedforward_norm, dim)
        layers = map(self.linear, (block.qkv, block.out, block.expand, block.contract))
        return C_BLOCK(dim, heads, hidden, *norms, *layers, rotations)

    def embedding(self, table: Array | Features) -> Any:
        """Return what embeds values: a table, or a linear layer of the features that C computes of codes."""
        if not isinstance(table, Features):
            return C_EMBEDDING(table.shape[1], len(table), 0, self.array(table), C_LINEAR())
        count = len(table.values)
        centred = bool(table.differences.size)
        scales = sum(4**n < count and 4**n <= 1 << 14 for n in range(8)) if centred else 0
        _check("inputs of features", len(table.linear.weight), (3 if count > 256 else 1) + 2 * scales)
        return C_EMBEDDING(len(table.linear.bias), count, centred, None, self.linear(table.linear))


class Dense(Packed):
    """A linear layer, see `reference.Dense`."""

    def __init__(self, layer: Linear):
        super().__init__()
        self._layer = self.linear(layer)

    def __call__(self, x: Array) -> Array:
        _check("inputs", x.shape[1:], (self._layer.inputs,))
        x, out = np.ascontiguousarray(x, np.float32), np.empty((len(x), self._layer.outputs), np.float32)
        _call("dense", self._layer, x, len(x), out)
        return out


class State(NamedTuple):
    """The state of `Slabs`: keys and values of the slabs so far, see `step` in `network.c`."""

    part: int
    """Rows that go through the blocks together."""
    keys: Array
    values: Array
    rows: int
    length: int


class Slabs(Packed):
    """Transformer blocks, slab by slab, see `reference.Slabs`.

    Args:
        blocks: as many as `lines`: block i attends along lines[i].
        lines: MASKED for attention to earlier slabs, or the line inside a slab.
    """

    def __init__(self, blocks: Sequence[Block], heads: int, lines: Sequence[Line]):
        super().__init__()
        self._lines = lines
        self._dim = len(blocks[0].qkv.weight)
        self._masked = lines.count(MASKED)
        self._lengths = [len(block.rotations) or 1 << 62 for block in blocks]
        held = [self.block(block, heads, line.length) for block, line in zip(blocks, lines, strict=True)]
        _check("the width of blocks", {block.dim for block in held}, {self._dim})
        _check("the hidden width of blocks", len({block.hidden for block in held}), 1)
        self._blocks = self.many(C_BLOCK, held)
        self._step = self._along(Line(0, 0))

    def _along(self, of_masked: Line) -> Any:
        """Return the structure of these blocks, whose masked layers attend along a line, or through the cache."""
        lines = [C_LINE(*(of_masked if line == MASKED else line), line == MASKED) for line in self._lines]
        return C_SLABS(self._blocks, self.many(C_LINE, lines), len(lines))

    def start(self, rows: int, length: int, positions: int) -> State:
        """Return the state before the first of `length` slabs, of `rows` rows in all, `positions` rows an example."""
        _check("rows of whole examples", rows % positions, 0)
        self._check_lines(length, positions)
        part = examples_at_once(rows // positions, max(1, ROWS_AT_ONCE // positions)) * positions
        of_part = ceil(part / SIDE) * ceil(length / PLACES) * LANES * self._dim
        size = self._masked * ceil(rows / part) * of_part + LANES
        return State(part, aligned_zeros(size), aligned_zeros(size), rows, length)

    def _check_lines(self, length: int, positions: int) -> None:
        for most, line in zip(self._lengths, self._lines):
            if line == MASKED:
                _check("slabs that rotations are for", length <= most)
            else:
                _check("whole lines in an example", positions % (line.length * line.stride), 0)

    def step(self, u: Array, i: int, state: State) -> Array:
        """Return slab i of the output for slab i of the input, u [rows, D]; add it to the state."""
        _check("a slab", u.shape, (state.rows, self._dim))
        _check("the number of the slab", 0 <= i < state.length)
        x = np.array(u, np.float32, order="C")
        after = state.part, i, state.keys, state.values, state.rows, state.length
        _in_parts(state.part, state.rows, lambda first, last: _call("step", self._step, x, first, last, *after))
        return x

    def add_upper(self, context: Array, values: Integers, table: Array | Features, length: int, positions: int) -> None:
        """Add to the context of each slab the output for the slab before, see `reference.Slabs.add_upper`.

        All values are known. So masked layers attend along the slabs inside x, one layer after the other.
        """
        example = length * positions
        packed = Packed()
        embedding = packed.embedding(table)
        _check("context", context.shape, (len(values), self._dim))
        _check_written("context", context, "float32")
        _check("rows of whole examples", len(values) % example, 0)
        _check("the width of the embedding", embedding.dim, self._dim)

        self._check_lines(length, positions)
        _check_codes(values, embedding)
        before = self._along(Line(length, positions)), context, np.ascontiguousarray(values, np.int64), embedding
        examples = len(values) // example
        size = examples_at_once(examples, max(1, KNOWN_AT_ONCE // example)) * example

        _in_parts(size, len(values), lambda first, last: _call("add_upper", *before, first, last, example, positions))


class Rows(Packed):
    """Inner decoder and head of a row of positions, see `reference.Rows`."""

    def __init__(self, inner: Sequence[Block] | Lstm, heads: int, output: Output):
        super().__init__()
        self._embedding = self.embedding(output.features or output.table)
        dim = self._embedding.dim
        head = self.linear(output.head)
        of_lstm = C_LSTM()
        blocks: list[Any] = []
        if isinstance(inner, Lstm):
            layers = self.linear(inner.of_input), self.linear(inner.of_hidden)
            _check("an LSTM", [(layer.inputs, layer.outputs) for layer in layers], [(dim, 4 * dim)] * 2)
            of_lstm = C_LSTM(self.norm(inner.norm, dim), *layers)
        else:
            blocks = [self.block(block, heads) for block in inner]
            _check("the width of blocks", {(block.dim, block.hidden) for block in blocks}, {(dim, blocks[0].hidden)})
        self._most = 1 << 62 if isinstance(inner, Lstm) else min(len(block.rotations) or 1 << 62 for block in inner)
        ordinal = output.ordinal or Ordinal(len(output.table), 0, np.float32(0), np.float32(0), centred=False)
        _check("outputs of the head", head.outputs, 3 * ordinal.mixtures if ordinal.mixtures else ordinal.num_values)
        _check("inputs of the head", head.inputs, dim)
        _check("mixtures", ordinal.mixtures <= 256)
        _check("values", 2 <= ordinal.num_values <= 1 << 16)
        self.ordinal, table = ordinal, self.array(logistic_table(), np.int64)
        mixture = C_MIXTURE(ordinal.num_values, ordinal.mixtures, ordinal.unit, ordinal.max_log_precision, table)
        norm = self.norm(output.norm, dim)
        self._rows = C_ROWS(self._embedding, self.many(C_BLOCK, blocks), len(blocks), of_lstm, norm, head, mixture)

    def read(self, context: Array, centring: Centring, values: Integers, stream: Stream) -> None:
        """Read the values, or codes, [B, L] of a row with context [B, L, D] from a stream, in one thread."""
        context, (batch, length) = self._context(context, values)
        own = _stream(stream)
        packed = Packed()
        _check_written("values", values)
        _call("read_rows", self._rows, context, batch, length, _centring(centring, values, packed), values, own)
        _advance(stream, own)

    def sample(self, context: Array, centring: Centring, values: Integers, choice: RowSampling) -> None:
        """Write sampled values, or codes, [B, L] of a row with context [B, L, D]; the reference cannot."""
        context, (batch, length) = self._context(context, values)
        packed = Packed()
        count = self.ordinal.num_values
        noise = packed.array(choice.noise) if choice.noise.size else None
        uniforms = packed.array(choice.uniforms, np.float64) if choice.uniforms.size else None
        _check("known values", choice.known.shape, values.shape)
        _check("known values below V", not choice.known.size or choice.known.max() < count)
        shape = (batch, length) if uniforms else (batch, length, count)
        _check("noise", choice.uniforms.shape if uniforms else choice.noise.shape, shape)
        _check("uniform numbers for ordinal values", bool(uniforms) or not self.ordinal.mixtures)
        _check("top_k", choice.top_k >= 1)
        _check_written("values", values)
        known = packed.array(choice.known, np.int64)
        sampling = C_SAMPLING(noise, uniforms, known, choice.temperature, choice.top_p, min(choice.top_k, count))

        after = length, _centring(centring, values, packed), values, sampling
        _in_parts(
            examples_at_once(batch),
            batch,
            lambda first, last: _call("sample_rows", self._rows, context, first, last, *after),
        )

    def take_known(self, context: Array, known: Known) -> None:
        """Write what `known` asks of the known values of rows with context [B, L, D]."""
        values = np.ascontiguousarray(known.values, np.int64)
        context, (batch, length) = self._context(context, values)
        _check_codes(values, self._embedding)
        nats = known.nats
        intervals = known.intervals
        if nats.size:
            _check("nats", nats.shape, values.shape)
        if intervals.size:
            _check("intervals", intervals.shape, (*values.shape, 2))
        _check_written("nats", nats, "float32")
        _check_written("intervals", intervals)

        after = length, values, nats if nats.size else None, intervals if intervals.size else None
        size = examples_at_once(batch, max(1, KNOWN_AT_ONCE // length) if self._rows.layers else GROUP)
        _in_parts(size, batch, lambda first, last: _call("known_rows", self._rows, context, first, last, *after))

    def _context(self, context: Array, values: Integers) -> tuple[Array, tuple[int, int]]:
        _check("values", (values.ndim, values.dtype.name, values.flags.c_contiguous), (2, "int64", True))
        _check("context", context.shape, (*values.shape, self._embedding.dim))
        _check("positions that rotations are for", values.shape[1] <= self._most)
        return np.ascontiguousarray(context, np.float32), (values.shape[0], values.shape[1])


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
    """Read values [n] of one distribution, see `reference.read_from`."""
    starts = np.ascontiguousarray(starts, np.int32)
    own = _stream(stream)
    _check_written("values", values)
    _check("starts", (int(starts[0]), int(starts[-1]), bool((np.diff(starts) > 0).all())), (0, 1 << 28, True))
    _call("read_from", starts, len(starts) - 1, own, values, len(values))
    _advance(stream, own)


def write_stream(intervals: Integers, state: int) -> NDArray[np.uint32]:
    """Return the words of a stream, see `reference.write_stream`."""
    intervals = np.ascontiguousarray(intervals, np.int64)
    at = c_uint64()
    words = np.empty(len(intervals) + 2, np.uint32)
    starts, frequencies = intervals.reshape(-1, 2).T
    inside = (starts >= 0) & (frequencies > 0) & (starts + frequencies <= 1 << 28)
    _check("intervals", bool(inside.all()))
    _call("write_stream", intervals, len(intervals), state, words, byref(at))
    return words[at.value :]


def aligned_zeros(*shape: int) -> Array:
    """Return zeros that begin with a cache line: vectors that cross one take longer."""
    size = prod(shape) * 4
    memory = np.zeros(size + CACHE_LINE, np.uint8)
    first = -memory.ctypes.data % CACHE_LINE
    return memory[first : first + size].view(np.float32).reshape(shape)


def _call(name: str, *arguments: Any) -> None:
    """Call a C function with arrays and structures, as their addresses, and unsigned numbers."""
    getattr(exact_library(), name)(*map(_for_c, arguments))


def _for_c(argument: Any) -> Any:
    if isinstance(argument, int):
        return c_uint64(argument)
    if isinstance(argument, np.ndarray):
        return c_void_p(argument.ctypes.data)
    return byref(argument) if isinstance(argument, Structure) else argument


def _check(what: str, found: object, expected: object = True) -> None:
    """Refuse what C would not check."""
    if found != expected:
        raise ValueError(f"{what}: {found} where {expected} is expected")


def _check_written(what: str, array: NDArray[Any], dtype: str = "int64") -> None:
    flags = array.flags
    _check(f"{what}, in C order, to be written", (array.dtype.name, flags.c_contiguous, flags.writeable),
           (dtype, True, True))  # fmt: skip


def _check_codes(values: Integers, embedding: Any) -> None:
    count = embedding.count ** (2 if embedding.centred else 1)
    if values.size and not 0 <= values.min() <= values.max() < count:
        raise ValueError(f"known values must be in 0..{count - 1}")


def _stream(stream: Stream) -> Any:
    words = stream.words
    _check("words of a stream", (words.dtype.name, words.flags.c_contiguous), ("uint32", True))
    state, at, _ = stream.state.tolist()
    return C_STREAM(_for_c(words), len(words), at, state, 0)


def _advance(stream: Stream, own: Any) -> None:
    """Write what C has made of a stream; the state of a damaged one may have 64 bits."""
    stream.state[:] = c_int64(own.state).value, own.at, own.status or stream.state[2]


def _centring(centring: Centring, values: Integers, packed: Packed) -> Any:
    """Return the prediction of the values [B, L] of a row, as C takes it."""
    if not centring.positions.size:
        return C_CENTRING()
    (batch, length), size, count = values.shape, centring.values.shape[1], centring.neighbours.shape[1]
    _check("predictions", [part.shape for part in centring],
           [(batch, size), (length,), (length, count), (length, count + 1)])  # fmt: skip
    _check_written("values so far", centring.values)
    inside = centring.neighbours.max(initial=-1) < size and 0 <= centring.positions.min() <= centring.positions.max()
    _check("positions of predictions", bool(inside and centring.positions.max() < size))
    parts = (packed.array(part, np.int64) for part in (centring.positions, centring.neighbours, centring.coefficients))
    return C_CENTRING(_for_c(centring.values), size, *parts, count)
