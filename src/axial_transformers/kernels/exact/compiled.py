"""The compiled form of `reference`: the same classes and the same bits, fast enough for sampling and archives.

You need not read this file to train a model, to sample from it or to make archives: `inference.ExactNetwork` calls it.
To learn what is computed, read `reference`. Read this file to make the exact kernels faster, or to compute another
layer.

    from axial_transformers.kernels import Linear, exact_kernels

    arithmetic = exact_kernels(compiled=True)      # this module
    layer = arithmetic.Dense(Linear(weight, bias)) # float32 [in, out] and [out]
    with arithmetic.ieee_arithmetic():
        y = layer(x)                               # [rows, in] -> [rows, out], the same bits on every CPU

A slab is what an outer decoder computes in one step: a row of an image, or a frame of a video. `decoding.decoding_loop`
draws slabs and rows. `Slabs` are the blocks of an outer decoder, or of the channel encoder: its slab is the whole grid.
`Rows` are the inner decoder with the head. This file packs weights as the kernels read them, divides the work among
threads, and makes memory for each.

Threads. Examples do not depend on each other. So a thread takes some of them through all layers, while their rows are
in its core's cache. Each thread enters `ieee_arithmetic` itself, since the rounding mode belongs to a thread.

    call                              threads
    Slabs.step, Slabs.add_upper       each takes some parts of whole examples
    Rows.sample, Rows.take_known      each takes some groups of examples
    Rows.read                         one: a value is read from the state that the value before left
    Dense                             one

Archives use all threads although `read` has one: each thread decodes another chunk (`compression.codec`).

The cache. `Slabs` computes one slab after the other, and a masked layer attends to the slabs before. A row of x is one
position of a slab, and has N heads. One head of one row, through all slabs, is a line. LANES = 16 lines are a tile:

    N = 4 heads     tile 0                              tile 1
    lane            0    1    2    3    4    ..  15     0    ..
    row, head       0,0  0,1  0,2  0,3  1,0  ..  3,3    4,0  ..
                  +---------------------------------+ +--------
    slab 0   k=0  | one number of each line's key   | |
             ..   |                                 | |
             k=K-1|                                 | |
    slab 1   k=0  |                                 | |
    ..            |                                 | |
    slab i        | step i writes here, and its queries attend to slabs 0 .. i
    ..            |                                 | |
                  +---------------------------------+ +--------

The cache holds keys as [masked layers, tiles, length, K, LANES], and values alike. One instruction adds a term to 16
lines. Each line adds its own terms from first to last, as `reference` does; so the width of a processor's registers
does not change the bits. A part of the examples begins with a tile of its own. If its lines do not fill its last tile,
the last line is computed in all lanes that are left. (A tile of a product is another thing: rows and columns of sums
that stay in registers, see `instructions`.)
"""

import threading
from collections.abc import Callable, Sequence
from math import ceil, gcd, lcm, prod
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

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
from axial_transformers.kernels.exact.mixtures import MixtureMemory
from axial_transformers.kernels.exact.row_functions import MAX_NUMBERS, MAX_POSITIONS, QUERIES
from axial_transformers.kernels.exact.steps import sample_row
from axial_transformers.kernels.llvm import Integers
from axial_transformers.kernels.threads import parallel_ranges
from axial_transformers.kernels.vectors import aligned_zeros

__all__ = ["Dense", "Rows", "Slabs", "ieee_arithmetic", "write_stream"]

ROWS_AT_ONCE = 224
"""Rows of a slab that go through its blocks together, at least one example: they stay in a core's cache."""
KNOWN_AT_ONCE = 784
"""Rows of known values that go through a layer before the next layer, at least one example."""
MIN_AT_ONCE = 4
"""Examples that are worth a thread: each thread reads all weights, so fewer examples take as long."""
ALL = 1 << 62
"""More rows than there are."""

Held = TypeVar("Held")


class Dense:
    """A linear layer, see `reference.Dense`."""

    def __init__(self, layer: Linear):
        self._packed, self._outputs = _packed([layer]), len(layer.bias)

    def __call__(self, x: Array) -> Array:
        some, out = _rows(*x.shape), _rows(len(x), self._outputs)
        some[: len(x), : x.shape[1]] = x
        steps.dense(some, len(x), self._packed, out)
        return out[: len(x), : self._outputs]


class Parts(NamedTuple):
    """The state of `Slabs`: how the rows of a slab are divided, and their cache."""

    rows: int
    """Rows of a part: whole examples, which go through all blocks together."""
    cache: Cache
    """Keys and values of all parts; the tiles of one part follow those of the part before."""


def examples_at_once(examples: int, most: int = GROUP) -> int:
    """Return how many examples one thread takes at a time: an equal share, at least MIN_AT_ONCE, never above `most`.

    Args:
        examples: of the whole call.
        most: examples whose rows fit into a core's cache.
    """
    return max(1, min(most, max(MIN_AT_ONCE, ceil(examples / torch.get_num_threads()))))


class Kept(threading.local, Generic[Held]):
    """The memory of the last call in each thread, for calls of equal sizes: to make it would take too long."""

    sizes: tuple[int, ...] | None = None
    memory: Held

    def of(self, make: Callable[..., Held], *sizes: int) -> Held:
        """Return make(*sizes), or what it returned for the same sizes before."""
        if sizes != self.sizes:
            self.sizes, self.memory = sizes, make(*sizes)
        return self.memory


class Slabs:
    """Transformer blocks, slab by slab, see `reference.Slabs`.

    Args:
        blocks: as many as `lines`: block i attends along lines[i].
        lines: MASKED for attention to earlier slabs, or the line inside a slab.
    """

    def __init__(self, blocks: Sequence[Block], heads: int, lines: Sequence[Line]):
        self._blocks, self._heads, self._lines = packed_blocks(blocks), heads, lines
        self._width = len(blocks[0].qkv.weight) // heads
        self._masked = lines.count(MASKED)
        self._memory = Kept[tuple[Array, Scratch]]()

    def start(self, rows: int, length: int, positions: int) -> Parts:
        """Return the state before the first of `length` slabs, of `rows` rows in all, `positions` rows an example."""
        part = examples_at_once(rows // positions, max(1, ROWS_AT_ONCE // positions)) * positions
        tiles = ceil(rows / part) * ceil(part * self._heads / LANES)
        return Parts(part, _cache(self._masked, tiles, self._width, length))

    def step(self, u: Array, i: int, parts: Parts) -> Array:
        """Return slab i of the output for slab i of the input, both [rows, D]; add it to the cache."""
        out = np.array(u, order="C")
        self._work(out, i, parts, _by_layer(self._lines, MASKED, self._heads), NOT_KNOWN)
        return out

    def add_upper(self, context: Array, values: Integers, table: Array | Features, length: int, positions: int) -> None:
        """Add to the context of each slab the output for the slab before, see `reference.Slabs.add_upper`.

        All values are known. So masked layers attend along the slabs inside x, one layer after the other, and the cache
        stays empty.
        """
        example = length * positions
        part = examples_at_once(len(context) // example, max(1, KNOWN_AT_ONCE // example)) * example
        lines = _by_layer(self._lines, Line(length, positions), self._heads)
        parts = Parts(part, _cache(0, 0, self._width, length))
        known = steps.KnownSlabs(values, _embedding(table), example, positions)
        self._work(context, 0, parts, lines, known)

    def _work(self, x: Array, i: int, parts: Parts, lines: Integers, known: steps.KnownSlabs) -> None:
        (rows, dim), (part, cache) = x.shape, parts
        rows = min(part, rows)
        together, longest = int(lines[:, 3].max()), int(lines[:, 0].max())
        sizes = rows, dim, min(rows, together), cache.length, longest

        def work(first: int, last: int) -> None:
            own, scratch = self._memory.of(self._made, *sizes)
            with ieee_arithmetic():
                steps.slabs(x, self._blocks, self._heads, lines, cache, part, i, known, first, last, own, scratch)

        parallel_ranges(work, ceil(len(x) / part))

    def _made(self, rows: int, dim: int, together: int, length: int, longest: int) -> tuple[Array, Scratch]:
        return _rows(rows, dim), _scratch(together, self._blocks, self._heads, length, longest)


class RowKernel(Protocol):
    """A kernel of `steps` that goes along a row of positions."""

    def __call__(self, context: Array, inner: steps.Inner, output: steps.PackedOutput, /, *use: Any) -> None:
        """Compute logits of context [B, L, D] and use them.

        The last three of `use` are the first example, the one behind the last, and a `steps.RowMemory`.
        """
        ...


class Rows:
    """Inner decoder and head of a row of positions, see `reference.Rows`."""

    def __init__(self, inner: Sequence[Block] | Lstm, heads: int, output: Output):
        # A kernel takes one type of `Inner`: blocks come with an LSTM without weights, and an LSTM with such a block.
        unused = Linear(np.zeros((0, 0), np.float32), np.zeros(0, np.float32))
        none = Norm(unused.bias, unused.bias)
        lstm = inner if isinstance(inner, Lstm) else Lstm(none, unused, unused)
        no_block = Block(none, unused, unused.weight, unused, none, unused, unused)
        blocks = [no_block] if isinstance(inner, Lstm) else inner
        packed = PackedLstm(_norms([lstm.norm]), _packed([lstm.of_input]), _packed([lstm.of_hidden]))
        self._inner = steps.Inner(packed_blocks(blocks), 0 if isinstance(inner, Lstm) else heads, packed)
        ordinal = output.ordinal or Ordinal(len(output.table), 0, np.float32(0), np.float32(0), centred=False)
        embedding = _embedding(output.features or output.table)
        self._output = steps.PackedOutput(_norms([output.norm]), _packed([output.head]), embedding, ordinal)
        self._memory = Kept[steps.RowMemory]()

    def read(self, context: Array, centring: Centring, values: Integers, stream: Stream) -> None:
        """Read the values, or codes, [B, L] of a row with context [B, L, D] from a stream, in one thread."""
        self._work(steps.read_row, context, GROUP, values, stream, centring, in_threads=False)

    def sample(self, context: Array, centring: Centring, values: Integers, choice: RowSampling) -> None:
        """Write sampled values, or codes, [B, L] of a row with context [B, L, D]; the reference cannot."""
        self._work(sample_row, context, examples_at_once(len(context)), choice, centring, values)

    def take_known(self, context: Array, known: Known) -> None:
        """Write what `known` asks of the known values of rows with context [B, L, D]."""
        ordinal = self._output.ordinal
        count = ordinal.num_values ** (2 if ordinal.centred else 1)
        if known.values.size and not 0 <= known.values.min() <= known.values.max() < count:
            raise ValueError(f"values must be in 0..{count - 1}")
        at_once = self._inner.heads > 0
        size = examples_at_once(len(context), max(1, KNOWN_AT_ONCE // context.shape[1])) if at_once else GROUP
        self._work(steps.known_rows, context, size, known, at_once=at_once)

    def _work(
        self, kernel: RowKernel, context: Array, size: int, *use: Any, in_threads: bool = True, at_once: bool = False
    ) -> None:
        """Call a kernel of `steps` for some examples after the other.

        Args:
            kernel: see `RowKernel`.
            context: [B, L, D].
            size: examples of one call.
            use: what the kernel does with logits: the arguments after `output`.
            in_threads: True if several threads may work at once.
            at_once: True if the kernel computes all positions of a row at once, which takes more memory.
        """
        batch, length, dim = context.shape
        # Kernels are compiled for writable arrays only.
        context = np.require(context, np.float32, ["C", "W"])

        def work(first: int, last: int) -> None:
            memory = self._memory.of(self._made, min(batch, size), length, dim, at_once)
            with ieee_arithmetic():
                for start in range(first * size, min(last * size, batch), size):
                    kernel(context, self._inner, self._output, *use, start, min(start + size, batch), memory)

        groups = ceil(batch / size)
        parallel_ranges(work, groups) if in_threads else work(0, groups)

    def _made(self, examples: int, length: int, dim: int, at_once: bool) -> steps.RowMemory:
        ordinal = self._output.ordinal
        blocks, heads = self._inner.blocks, self._inner.heads
        rows, of_lstm = examples * length if at_once else examples, 0 if heads else examples
        tiles, layers = 0 if at_once else ceil(rows * heads / LANES), len(blocks.qkv.panels)
        lines = _by_layer([MASKED] * layers, Line(length, 1) if at_once else MASKED, heads)
        return steps.RowMemory(
            lines=lines,
            x=_rows(rows, dim),
            normed=_rows(min(rows, BLOCK), dim),
            logits=_rows(min(rows, BLOCK), self._output.head.bias.shape[1] + (LANES if ordinal.mixtures else 0)),
            numbers=np.empty(_padded(ordinal.num_values, LANES), np.int32),
            mixture=MixtureMemory(
                numbers=np.empty(_padded(ordinal.mixtures, LANES), np.int32),
                shares=np.empty(ordinal.mixtures, np.int64),
                precisions=aligned_zeros(_padded(ordinal.mixtures, LANES)),
                terms=aligned_zeros(_padded(ordinal.mixtures, LANES)),
            ),
            cache=_cache(layers, tiles, dim // (heads or dim), length),
            scratch=_scratch(min(rows, int(lines[:, 3].max())), blocks, heads, length, length if at_once else 0),
            of_input=_rows(of_lstm, 4 * dim + LANES),
            of_hidden=_rows(of_lstm, 4 * dim + LANES),
            cell=_rows(of_lstm, dim),
            hidden=_rows(of_lstm, dim),
        )


def read_from(starts: NDArray[np.int32], stream: Stream, values: Integers) -> None:
    """Read values [n] of one distribution, see `reference.read_from`."""
    coding.read_from(starts, stream, values)


def write_stream(intervals: NDArray[np.int64], state: int) -> NDArray[np.uint32]:
    """Return the words of a stream, see `reference.write_stream`."""
    words = np.empty(len(intervals) + 2, np.uint32)
    return words[coding.write_stream(np.require(intervals, np.int64, ["C", "W"]), state, words) :]


def _rows(rows: int, width: int) -> Array:
    """Return zeros for `rows` rows of `width` numbers, with room for whole tiles."""
    return aligned_zeros(_padded(rows, ROWS), _padded(width, PANEL))


def _cache(layers: int, tiles: int, width: int, length: int) -> Cache:
    """Return an empty cache, see the top of this file, and behind it room for what `attend` reads beyond the end."""
    size = layers * tiles * length * width + MAX_POSITIONS * width + MAX_NUMBERS
    return Cache(aligned_zeros(size * LANES), aligned_zeros(size * LANES), tiles, length, width)


def _scratch(rows: int, blocks: PackedBlocks, heads: int, length: int, longest: int) -> Scratch:
    """Return memory for rows that attend to `length` slabs, or to each other along lines of at most `longest`.

    Kernels read and write a head as whole vectors, from any column on: up to LANES columns beyond the last head.
    """
    dim, hidden = blocks.qkv.panels.shape[2], blocks.contract.panels.shape[2]
    block, width = min(rows, BLOCK), dim // (heads or 1)
    return Scratch(
        normed=_rows(block, dim),
        qkv=_rows(rows, 3 * dim + LANES),
        attended=_rows(rows, dim + LANES),
        hidden=_rows(block, hidden),
        query=aligned_zeros(QUERIES, _padded(width, LANES), LANES),
        result=aligned_zeros(QUERIES, _padded(width, LANES), LANES),
        weights=aligned_zeros(QUERIES, LANES + _padded(max(length, longest + QUERIES), MAX_POSITIONS), LANES),
        offsets=np.zeros(LANES, np.int64),
        outs=np.zeros(LANES, np.int64),
        line=_cache(1, 1, width, longest),
    )


def _by_layer(lines: Sequence[Line], of_masked: Line, heads: int) -> Integers:
    """Return the lines along which each layer attends, as `layers.transform` takes them: int64 [n, 4] of n layers.

    | column | holds |
    |---|---|
    | 0 | length of a line; 0: attend to the slabs in the cache |
    | 1 | stride: rows from one position of a line to the next |
    | 2 | 1 if a position attends to no later ones, else 0 |
    | 3 | rows that go through the layer together: whole lines, see `_at_a_time` |

    Args:
        of_masked: the lines of masked layers. MASKED: slabs come one by one, through a cache. A `Line`: all slabs are
            known, and the line runs across them.
    """
    found = np.empty((len(lines), 4), np.int64)
    for i, line in enumerate(lines):
        length, stride = of_masked if line == MASKED else line
        found[i] = length, stride, line == MASKED, _at_a_time(length * stride, stride * heads)
    return found


def _at_a_time(rows: int, lines: int) -> int:
    """Return how many rows go through a layer together, so that tiles are full and rows stay in a core's cache.

    A unit is the fewest rows with whole lines: `rows` rows and `lines` lines, heads counted. Kernels multiply FEW rows
    and attend along LANES lines at a time. With n units, the lines fill tiles if LANES divides n lines; the least such
    n is LANES / gcd(LANES, lines). The rows fill tiles from n = FEW / gcd(FEW, rows) on. The least common multiple of
    both fills both. It is taken as often as ROWS_AT_ONCE allows, but at least once.

    A slab of 14 rows attends along itself with 4 heads, and FEW = 4: n = lcm(16 / 4, 4 / 2) = 4 units of 14 rows make
    56 rows. They fit 4 times: 224 rows.

    Args:
        rows: of a unit; 0: the layer attends through the cache, which takes all rows of a part.
    """
    if not rows:
        return ALL
    fill = lcm(LANES // gcd(LANES, lines), FEW // gcd(FEW, rows))
    return rows * fill * max(1, ROWS_AT_ONCE // (rows * fill))


def packed_blocks(blocks: Sequence[Block]) -> PackedBlocks:
    """Return the weights of blocks as kernels read them. Kernels check no sizes, so this function does.

    Raises:
        ValueError: sizes that do not fit each other.
    """
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


def _embedding(table: Array | Features) -> steps.Embedding:
    """Return what embeds values, as kernels read it."""
    none = np.zeros((0, 0), np.float32)
    if not isinstance(table, Features):
        return steps.Embedding(np.require(table, np.float32, ["C", "W"]), none, none, none, none.reshape(-1))
    (weight, bias), size = table.linear, _padded(len(table.linear.bias), LANES)
    weights = np.zeros((len(weight) + 1, size), np.float32)
    weights[:-1, : len(bias)], weights[-1, : len(bias)] = weight, bias
    values, differences = (np.require(part, np.float32, ["C", "W"]) for part in (table.values, table.differences))
    assert len(weight) == values.shape[1] + differences.shape[1]
    return steps.Embedding(none, values, differences, weights[:-1], weights[-1])


def _packed(layers: Sequence[Linear]) -> PackedLinear:
    """Return the layers with their outputs in panels of PANEL columns: a product reads one panel from first to last."""
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
    """Return the rotations of all layers, or of none; shorter lines are padded, since kernels read whole vectors."""
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


NOT_KNOWN = steps.KnownSlabs(np.zeros(0, np.int64), _embedding(np.zeros((0, 0), np.float32)), 0, 0)
