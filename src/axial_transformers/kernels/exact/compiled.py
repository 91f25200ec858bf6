"""The compiled form of `reference`."""

import threading
from collections.abc import Callable, Sequence
from math import ceil, gcd, lcm, prod
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from axial_transformers.kernels.exact import coding, steps
from axial_transformers.kernels.exact.definition import (
    GROUP,
    LANES,
    MASKED,
    Array,
    Block,
    Choice,
    Known,
    Line,
    Linear,
    Lstm,
    Norm,
    Output,
    Prediction,
    Stream,
)
from axial_transformers.kernels.exact.float_environment import ieee_arithmetic
from axial_transformers.kernels.exact.instructions import FEW, PANEL, ROWS
from axial_transformers.kernels.exact.layers import (
    BLOCK,
    Cache,
    Norms,
    PackedBlocks,
    PackedLinear,
    PackedLstm,
    Scratch,
)
from axial_transformers.kernels.exact.row_functions import MOST_NUMBERS, MOST_PLACES, QUERIES
from axial_transformers.kernels.exact.steps import draw_row
from axial_transformers.kernels.llvm import Integers
from axial_transformers.kernels.threads import parallel_ranges
from axial_transformers.kernels.vectors import aligned_zeros

__all__ = ["Dense", "Rows", "Slabs", "ieee_arithmetic", "write_stream"]

ROWS_AT_ONCE = 224
KNOWN_AT_ONCE = 784
LEAST_AT_ONCE = 4
"""Each thread reads all weights."""
ALL = 1 << 62
NOT_KNOWN = steps.KnownSlabs(np.zeros(0, np.int64), np.zeros((0, 0), np.float32), 0, 0)


Memory = TypeVar("Memory")


class Dense:
    """See `reference.Dense`."""

    def __init__(self, layer: Linear):
        self._packed, self._outputs = _packed([layer]), len(layer.bias)

    def __call__(self, x: Array) -> Array:
        some, out = _rows(*x.shape), _rows(len(x), self._outputs)
        some[: len(x), : x.shape[1]] = x
        steps.dense(some, len(x), self._packed, out)
        return out[: len(x), : self._outputs]


class Parts(NamedTuple):
    """The state of slabs."""

    rows: int
    cache: Cache


def examples_at_once(examples: int, most: int = GROUP) -> int:
    """Return the examples that keep all threads busy."""
    return max(1, min(most, max(LEAST_AT_ONCE, ceil(examples / torch.get_num_threads()))))


class Kept(threading.local, Generic[Memory]):
    """Memory of a thread's last call."""

    sizes: tuple[int, ...] | None = None
    memory: Memory

    def of(self, make: Callable[..., Memory], *sizes: int) -> Memory:
        if sizes != self.sizes:
            self.sizes, self.memory = sizes, make(*sizes)
        return self.memory


class Slabs:
    """See `reference.Slabs`."""

    def __init__(self, blocks: Sequence[Block], heads: int, lines: Sequence[Line]):
        self._blocks, self._heads, self._lines = packed_blocks(blocks), heads, lines
        self._width = len(blocks[0].qkv.weight) // heads
        self._masked = lines.count(MASKED)
        self._memory = Kept[tuple[Array, Scratch]]()

    def start(self, rows: int, length: int, sites: int) -> Parts:
        part = examples_at_once(rows // sites, max(1, ROWS_AT_ONCE // sites)) * sites
        tiles = ceil(rows / part) * ceil(part * self._heads / LANES)
        return Parts(part, _cache(self._masked, tiles, self._width, length))

    def step(self, u: Array, i: int, parts: Parts) -> Array:
        out = np.array(u, order="C")
        self._work(out, i, parts, _by_layer(self._lines, MASKED, self._heads), NOT_KNOWN)
        return out

    def add_upper(self, context: Array, values: Integers, table: Array, length: int, sites: int) -> None:
        example = length * sites
        part = examples_at_once(len(context) // example, max(1, KNOWN_AT_ONCE // example)) * example
        lines = _by_layer(self._lines, Line(length, sites), self._heads)
        parts, known = Parts(part, _cache(0, 0, self._width, length)), steps.KnownSlabs(values, table, example, sites)
        self._work(context, 0, parts, lines, known)

    def _work(self, x: Array, i: int, parts: Parts, lines: Integers, known: steps.KnownSlabs) -> None:
        (rows, dim), (part, cache) = x.shape, parts
        rows = min(part, rows)
        sizes = rows, dim, min(rows, int(lines[:, 3].max())), cache.length, int(lines[:, 0].max())

        def work(first: int, last: int) -> None:
            own, scratch = self._memory.of(self._made, *sizes)
            with ieee_arithmetic():
                steps.slabs(x, self._blocks, self._heads, lines, cache, part, i, known, first, last, own, scratch)

        parallel_ranges(work, ceil(len(x) / part))

    def _made(self, rows: int, dim: int, some: int, length: int, longest: int) -> tuple[Array, Scratch]:
        return _rows(rows, dim), _scratch(some, self._blocks, self._heads, length, longest)


class Rows:
    """See `reference.Rows`."""

    def __init__(self, inner: Sequence[Block] | Lstm, heads: int, output: Output):
        unused = Linear(np.zeros((0, 0), np.float32), np.zeros(0, np.float32))
        none = Norm(unused.bias, unused.bias)
        lstm = inner if isinstance(inner, Lstm) else Lstm(none, unused, unused)
        no_block = Block(none, unused, unused.weight, unused, none, unused, unused)
        blocks = [no_block] if isinstance(inner, Lstm) else inner
        packed = PackedLstm(_norms([lstm.norm]), _packed([lstm.of_input]), _packed([lstm.of_hidden]))
        self._inner = steps.Inner(packed_blocks(blocks), 0 if isinstance(inner, Lstm) else heads, packed)
        table = np.ascontiguousarray(output.table)
        self._output = steps.PackedOutput(_norms([output.norm]), _packed([output.head]), table)
        self._memory = Kept[steps.Memory]()

    def read(self, context: Array, prediction: Prediction, values: Integers, stream: Stream) -> None:
        self._work(steps.read_row, context, GROUP, values, stream, prediction, in_threads=False)

    def draw(self, context: Array, prediction: Prediction, values: Integers, choice: Choice) -> None:
        """Write random values; the reference cannot."""
        self._work(draw_row, context, examples_at_once(len(context)), choice, prediction, values)

    def take_known(self, context: Array, known: Known) -> None:
        count = len(self._output.table)
        if known.values.size and not 0 <= known.values.min() <= known.values.max() < count:
            raise ValueError(f"values must be in 0..{count - 1}")
        at_once = self._inner.heads > 0
        size = examples_at_once(len(context), max(1, KNOWN_AT_ONCE // context.shape[1])) if at_once else GROUP
        self._work(steps.known_rows, context, size, known, at_once=at_once)

    def _work(
        self, kernel: Any, context: Array, size: int, *use: Any, in_threads: bool = True, at_once: bool = False
    ) -> None:
        """Call a kernel in parts; `use` is for logits."""
        batch, length, _ = context.shape
        # Kernels are compiled for writable arrays only.
        context = np.require(context, np.float32, ["C", "W"])

        def work(first: int, last: int) -> None:
            memory = self._memory.of(self._made, min(batch, size), length, at_once)
            with ieee_arithmetic():
                for start in range(first * size, min(last * size, batch), size):
                    kernel(context, self._inner, self._output, *use, start, min(start + size, batch), memory)

        groups = ceil(batch / size)
        parallel_ranges(work, groups) if in_threads else work(0, groups)

    def _made(self, examples: int, length: int, at_once: bool) -> steps.Memory:
        values, dim = self._output.table.shape
        blocks, heads = self._inner.blocks, self._inner.heads
        rows, of_lstm = examples * length if at_once else examples, 0 if heads else examples
        tiles, layers = 0 if at_once else ceil(rows * heads / LANES), len(blocks.qkv.panels)
        lines = _by_layer([MASKED] * layers, Line(length, 1) if at_once else MASKED, heads)
        return steps.Memory(
            lines=lines,
            x=_rows(rows, dim),
            normed=_rows(min(rows, BLOCK), dim),
            logits=_rows(min(rows, BLOCK), self._output.head.bias.shape[1]),
            numbers=np.empty(_padded(values, LANES), np.int32),
            cache=_cache(layers, tiles, dim // (heads or dim), length),
            scratch=_scratch(min(rows, int(lines[:, 3].max())), blocks, heads, length, length if at_once else 0),
            of_input=_rows(of_lstm, 4 * dim + LANES),
            of_hidden=_rows(of_lstm, 4 * dim + LANES),
            cell=_rows(of_lstm, dim),
            hidden=_rows(of_lstm, dim),
        )


def write_stream(intervals: NDArray[np.int64], state: int) -> NDArray[np.uint32]:
    """See `reference.write_stream`."""
    words = np.empty(len(intervals) + 2, np.uint32)
    return words[coding.write_stream(np.require(intervals, np.int64, ["C", "W"]), state, words) :]


def _rows(rows: int, width: int) -> Array:
    return aligned_zeros(_padded(rows, ROWS), _padded(width, PANEL))


def _cache(layers: int, tiles: int, width: int, length: int) -> Cache:
    size = layers * tiles * length * width + MOST_PLACES * width + MOST_NUMBERS
    return Cache(aligned_zeros(size * LANES), aligned_zeros(size * LANES), tiles, length, width)


def _scratch(rows: int, blocks: PackedBlocks, heads: int, length: int, longest: int) -> Scratch:
    dim, hidden = blocks.qkv.panels.shape[2], blocks.contract.panels.shape[2]
    block, width = min(rows, BLOCK), dim // (heads or 1)
    return Scratch(
        normed=_rows(block, dim),
        qkv=_rows(rows, 3 * dim + LANES),
        attended=_rows(rows, dim + LANES),
        hidden=_rows(block, hidden),
        query=aligned_zeros(QUERIES, _padded(width, LANES), LANES),
        result=aligned_zeros(QUERIES, _padded(width, LANES), LANES),
        weights=aligned_zeros(QUERIES, LANES + _padded(max(length, longest + QUERIES), MOST_PLACES), LANES),
        places=np.zeros(LANES, np.int64),
        outs=np.zeros(LANES, np.int64),
        line=_cache(1, 1, width, longest),
    )


def _by_layer(lines: Sequence[Line], of_masked: Line, heads: int) -> Integers:
    found = np.empty((len(lines), 4), np.int64)
    for i, line in enumerate(lines):
        length, stride = of_masked if line == MASKED else line
        found[i] = length, stride, line == MASKED, _at_a_time(length * stride, stride * heads)
    return found


def _at_a_time(rows: int, lines: int) -> int:
    if not rows:
        return ALL
    fill = lcm(LANES // gcd(LANES, lines), FEW // gcd(FEW, rows))
    return rows * fill * max(1, ROWS_AT_ONCE // (rows * fill))


def packed_blocks(blocks: Sequence[Block]) -> PackedBlocks:
    """Return the weights for kernels, which check no sizes."""
    dim, hidden = len(blocks[0].qkv.weight), len(blocks[0].expand.bias)
    expected = [(dim, 3 * dim), (dim, dim), (dim, hidden), (hidden, dim)]
    for block in blocks:
        sizes = [layer.weight.shape for layer in (block.qkv, block.out, block.expand, block.contract)]
        if sizes != expected or len(block.attention_norm.gain) != dim or len(block.feedforward_norm.gain) != dim:
            raise ValueError(f"transformer blocks have linear layers of sizes {expected}, not {sizes}")
    columns = dict(zip(Block._fields, zip(*blocks)))
    return PackedBlocks(
        attention_norm=_norms(columns["attention_norm"]),
        qkv=_packed(columns["qkv"]),
        rotations=_tables(columns["rotations"]),
        out=_packed(columns["out"]),
        feedforward_norm=_norms(columns["feedforward_norm"]),
        expand=_packed(columns["expand"]),
        contract=_packed(columns["contract"]),
    )


def _packed(layers: Sequence[Linear]) -> PackedLinear:
    inputs, outputs = layers[0].weight.shape
    panels = ceil(outputs / PANEL)
    weights = np.zeros((len(layers), inputs, panels * PANEL), np.float32)
    biases = np.zeros((len(layers), panels * PANEL), np.float32)
    for i, layer in enumerate(layers):
        weights[i, :, :outputs], biases[i, :outputs] = layer
    in_panels = weights.reshape(len(layers), inputs, panels, PANEL).swapaxes(1, 2)
    packed = aligned_zeros(*in_panels.shape)
    packed[:] = in_panels
    return PackedLinear(packed, biases)


def _tables(rotations: Sequence[Array]) -> Array:
    """Pad tables: kernels read whole vectors."""
    assert all(map(len, rotations)) or not any(map(len, rotations)), "some layers have rotations and others none"
    sizes = len(rotations), max(map(len, rotations)), rotations[0].shape[1]
    tables = aligned_zeros(prod(sizes) + LANES)[: prod(sizes)].reshape(sizes)
    for table, rows in zip(tables, rotations):
        table[: len(rows)] = rows
    return tables


def _norms(norms: Sequence[Norm]) -> Norms:
    padded = np.zeros((2, len(norms), _padded(len(norms[0].gain), LANES)), np.float32)
    for i, norm in enumerate(norms):
        padded[:, i, : len(norm.gain)] = norm
    return Norms(padded[0], padded[1])


def _padded(size: int, multiple: int) -> int:
    return ceil(size / multiple) * multiple
