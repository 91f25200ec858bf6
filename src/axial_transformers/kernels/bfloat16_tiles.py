"""Products of bfloat16 matrices: by the matrix registers of Intel's processors (AMX), or by vectors of pairs.

Words are arrays of float32 in whose numbers lie the bits of two bfloat16 numbers, the first in the lower half. A matrix
in rows has two successive columns in a word, one in pairs has two successive rows. So x in rows, [rows, columns / 2],
and w in pairs, [rows / 2, columns], can be multiplied word by word: each product of words adds two steps.
"""

import ctypes
import platform
import sys
from functools import cache
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from axial_transformers.kernels.compilation import part
from axial_transformers.kernels.llvm import (
    FEATURES,
    LANES,
    Array,
    cgutils,
    instructions,
    ir,
    load,
    shuffle,
    store,
)
from axial_transformers.kernels.register_tiles import HIGH, PANEL, product_tile, round_up, transpose_part

WORDS = 16
"""Words in a row of a matrix register, and in a vector of AVX-512. A matrix register has as many rows."""
BLOCK = 2 * WORDS
"""Rows, columns and steps of a product: four of the eight matrix registers are sums, so that none waits for itself."""
NEEDED_FOR_MATRICES = {"+avx512f", "+amx-tile", "+amx-bf16"}
NEEDED_FOR_PAIRS = {"+avx512f", "+avx512bf16"}
REQUEST_PERMISSION, ARCH_REQ_XCOMP_PERM, TILE_DATA = 158, 0x1023, 18
"""Linux's system call arch_prctl and its arguments: a process must ask before it uses matrix registers."""

Configuration = NDArray[np.uint8]
CONFIGURATION = np.zeros(64, np.uint8)
"""All eight registers whole, as the instruction takes it: a palette, bytes of a row from 16 on, rows from 48 on."""
CONFIGURATION[0] = 1
CONFIGURATION[16:32:2] = 4 * WORDS
CONFIGURATION[48:56] = WORDS


class Exchange(Protocol):
    """Configures the matrix registers of this thread. Vector registers need nothing."""

    def __call__(self, new: Configuration, old: Configuration, /) -> None:
        """Store the configuration in `old`, and take that of `new`."""
        ...


class MultiplyColumns(Protocol):
    """Scores: x w of keys (or values) in rows and queries (or gradients) in pairs."""

    def __call__(
        self, x: Array, at: int, words: int, width: int, w: Array, rows: int, columns: int, out: Array, /
    ) -> None:  # fmt: skip
        """out[r, c] = sum_j x[r, j] w[j, c], float32 [rows, PANEL].

        Args:
            x: words in rows, [rows, words] from `at` on.
            width: bfloat16 numbers of a row that count.
            w: words in pairs, [words, PANEL].
            columns: those of w that count.
        """
        ...


class Combine(Protocol):
    """Sums over keys."""

    def __call__(
        self, weights: Array, keys: int, x: Array, at: int, wide: int, width: int, out: Array, to: int, rows: int,
        spare: Array, /,
    ) -> None:  # fmt: skip
        """out[o] = sum_p weights[p, o] x[p], float32 [rows, wide] from `to` on.

        Args:
            weights: words in pairs, [keys / 2, PANEL].
            x: words in pairs, [keys / 2, wide] from `at` on; `width` columns count.
            spare: memory for as many words as weights has.
        """
        ...


class Add(Protocol):
    """Sums over queries."""

    def __call__(
        self, weights: Array, keys: int, rows: int, x: Array, at: int, wide: int, width: int, out: Array, to: int, /
    ) -> None:  # fmt: skip
        """out[p] += sum_o weights[p, o] x[o], float32 [keys, wide] from `to` on.

        Args:
            weights: words in rows, [keys, PANEL / 2]; `rows` queries count.
            x: words in pairs, [rows / 2, wide] from `at` on; `width` columns count.
        """
        ...


class Products(NamedTuple):
    """What `bfloat16_attention` multiplies by: parts of kernels. Scores and weights are of PANEL queries at a time."""

    multiple: int
    """Positions of a line are padded with zeros to a multiple of this."""
    exchange: Exchange
    multiply_columns: MultiplyColumns
    combine: Combine
    add: Add


@cache
def has_matrix_registers() -> bool:
    """Return True if numba compiles for a processor that has them, and the system lets this process use them."""
    if sys.platform != "linux" or platform.machine() != "x86_64" or LANES != WORDS:
        return False
    if not NEEDED_FOR_MATRICES <= FEATURES:
        return False
    return not ctypes.CDLL(None).syscall(REQUEST_PERMISSION, ARCH_REQ_XCOMP_PERM, TILE_DATA)


def multiplies_pairs() -> bool:
    """Return True if numba compiles for a processor whose vectors hold pairs of factors (AVX512-BF16)."""
    return LANES == WORDS and NEEDED_FOR_PAIRS <= FEATURES


@instructions
def exchange_configuration(builder: Any, new: Any, old: Any) -> None:
    """Store the registers' configuration in `old`, since oneDNN has its own, then configure them."""
    _call(builder, "sttilecfg", old)
    _call(builder, "ldtilecfg", new)


def _product(add: bool) -> Any:
    """Return the intrinsic of a product: registers 0 to 3 are sums, 4 and 5 hold rows of x, 6 and 7 columns of w."""

    @instructions
    def product(
        builder: Any, x: Any, x_at: Any, x_row: Any, count: Any, w: Any, w_at: Any, w_row: Any, out: Any, out_at: Any,
        out_row: Any,
    ) -> None:  # fmt: skip
        def block(data: Any, start: Any, row: Any, rows: Any, column: Any) -> list[Any]:
            offset = builder.add(builder.add(start, builder.mul(row, rows)), column)
            return [builder.gep(data, [offset]), builder.mul(row, row.type(4))]

        def fixed(number: int) -> Any:
            return count.type(number)

        halves = [(i, j, 2 * i + j) for i in range(2) for j in range(2)]
        for i, j, total in halves:
            if add:
                _call(builder, "tileloadd64", total, *block(out, out_at, out_row, fixed(WORDS * i), fixed(WORDS * j)))
            else:
                _call(builder, "tilezero", total)
        with cgutils.for_range(builder, count) as loop:
            steps = builder.mul(loop.index, fixed(WORDS))
            for i in range(2):
                _call(builder, "tileloadd64", 4 + i, *block(x, x_at, x_row, fixed(WORDS * i), steps))
                _call(builder, "tileloadd64", 6 + i, *block(w, w_at, w_row, steps, fixed(WORDS * i)))
            for i, j, total in halves:
                _call(builder, "tdpbf16ps", total, 4 + i, 6 + j)
        for i, j, total in halves:
            _call(builder, "tilestored64", total, *block(out, out_at, out_row, fixed(WORDS * i), fixed(WORDS * j)))

    return product


multiply_block = _product(add=False)
"""out = x w of words x in rows and w in pairs: BLOCK rows, BLOCK columns, `count` times BLOCK steps.

x_at, w_at, x_row and w_row, offsets and distances of rows, count words; out is float32.
"""
multiply_add_block = _product(add=True)
"""`multiply_block`, added to out."""


def _call(builder: Any, name: str, *operands: Any) -> None:
    """Write an instruction for matrix registers, which it names by numbers."""
    byte, values = ir.IntType(8), []
    for operand in operands:
        if isinstance(operand, int):
            values.append(byte(operand))
        elif isinstance(operand.type, ir.PointerType):
            values.append(builder.bitcast(operand, byte.as_pointer()))
        else:
            values.append(operand)
    kind = ir.FunctionType(ir.VoidType(), [value.type for value in values])
    builder.call(cgutils.get_or_insert_function(builder.module, kind, f"llvm.x86.{name}"), values)


@instructions
def pair_rows(builder: Any, x: Any, rows: Any, columns: Any, out: Any) -> None:
    """Turn words in rows [rows, columns / 2] into pairs [rows / 2, columns]; `columns` is a multiple of BLOCK."""
    x, out = (builder.bitcast(words, ir.IntType(16).as_pointer()) for words in (x, out))
    two, lanes = rows.type(2), 2 * LANES
    with cgutils.for_range_slice(builder, rows.type(0), rows, two) as (row, _):
        start = builder.mul(row, columns)
        with cgutils.for_range_slice(builder, rows.type(0), columns, rows.type(lanes)) as (column, _):
            at = builder.add(start, column)
            a, b = load(builder, x, at, lanes), load(builder, x, builder.add(at, columns), lanes)
            to = builder.add(start, builder.mul(column, two))
            for first in (0, LANES):
                mixed = [k for i in range(first, first + LANES) for k in (i, lanes + i)]
                store(builder, shuffle(builder, a, b, mixed), out, builder.add(to, to.type(2 * first)))


@instructions
def copy_bits(builder: Any, x: Any, x_at: Any, count: Any, out: Any, out_at: Any) -> None:
    """Copy `count` bfloat16 numbers, as int16, from x_at on into words, from their bfloat16 number out_at on."""
    out, done = builder.bitcast(out, x.type), count.type(0)
    for lanes in (2 * LANES, LANES // 2, 1):
        end = builder.and_(count, count.type(-lanes))
        with cgutils.for_range_slice(builder, done, end, count.type(lanes)) as (j, _):
            store(builder, load(builder, x, builder.add(x_at, j), lanes), out, builder.add(out_at, j))
        done = end


@cache
def matrix_products(multiply: Any = multiply_block, multiply_add: Any = multiply_add_block) -> Products:
    """Return products by blocks, those of matrix registers or functions like them."""

    @part
    def multiply_columns(
        x: Array, at: int, words: int, width: int, w: Array, rows: int, columns: int, out: Array
    ) -> None:  # fmt: skip
        for row in range(0, rows, BLOCK):
            multiply(x, at + row * words, words, words // WORDS, w, 0, BLOCK, out, row * BLOCK, BLOCK)

    @part
    def combine(
        weights: Array, keys: int, x: Array, at: int, wide: int, width: int, out: Array, to: int, rows: int,
        spare: Array,
    ) -> None:  # fmt: skip
        steps = round_up(keys, BLOCK) // 2
        transpose_part(weights, 0, BLOCK, steps, BLOCK, spare, 0, steps)
        for j in range(0, wide, BLOCK):
            multiply(spare, 0, steps, steps // WORDS, x, at + j, wide, out, to + j, wide)

    @part
    def add(
        weights: Array, keys: int, rows: int, x: Array, at: int, wide: int, width: int, out: Array, to: int
    ) -> None:  # fmt: skip
        for key in range(0, keys, BLOCK):
            for j in range(0, wide, BLOCK):
                multiply_add(weights, key * WORDS, WORDS, 1, x, at + j, wide, out, to + key * wide + j, wide)

    return Products(BLOCK, exchange_configuration, multiply_columns, combine, add)


def dot(builder: Any, a: Any, b: Any, c: Any) -> Any:
    """Return c plus the products of both numbers in each word of a and b."""
    words = ir.VectorType(ir.IntType(32), WORDS)
    kind = ir.FunctionType(c.type, [c.type, words, words])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.avx512bf16.dpbf16ps.512")
    return builder.call(function, [c, *(builder.bitcast(x, words) for x in (a, b))])


def product_of_rows(add: bool) -> Any:
    """Return `register_tiles.multiply_rows` of words, added to out if `add`; it touches up to HIGH - 1 rows more."""
    multiply, multiply_narrow = (product_tile(HIGH, columns, add, dot) for columns in (PANEL, LANES))

    @part
    def multiply_words(
        x: Array, x_at: int, x_row: int, x_step: int, count: int, w: Array, w_at: int, w_row: int, out: Array,
        out_at: int, out_row: int, rows: int, columns: int,
    ) -> None:  # fmt: skip
        for r in range(0, rows, HIGH):
            at, to = x_at + r * x_row, out_at + r * out_row
            for c in range(0, columns - LANES, PANEL):
                multiply(x, at, x_row, x_step, count, w, w_at + c, w_row, out, to + c, out_row)
            if columns % PANEL:
                c = columns - LANES
                multiply_narrow(x, at, x_row, x_step, count, w, w_at + c, w_row, out, to + c, out_row)

    return multiply_words


multiply_pairs, multiply_add_pairs = (product_of_rows(add) for add in (False, True))


@part
def multiply_columns(
    x: Array, at: int, words: int, width: int, w: Array, rows: int, columns: int, out: Array
) -> None:  # fmt: skip
    """See `MultiplyColumns`."""
    multiply_pairs(x, at, words, 1, (width + 1) // 2, w, 0, PANEL, out, 0, PANEL, rows, columns)


@part
def combine(
    weights: Array, keys: int, x: Array, at: int, wide: int, width: int, out: Array, to: int, rows: int,
        spare: Array,
) -> None:  # fmt: skip
    """See `Combine`."""
    columns = round_up(width, LANES)
    multiply_pairs(weights, 0, 1, PANEL, (keys + 1) // 2, x, at, wide, out, to, wide, rows, columns)


@part
def add_combined(
    weights: Array, keys: int, rows: int, x: Array, at: int, wide: int, width: int, out: Array, to: int
) -> None:  # fmt: skip
    """See `Add`."""
    columns = round_up(width, LANES)
    multiply_add_pairs(weights, 0, PANEL // 2, 1, (rows + 1) // 2, x, at, wide, out, to, wide, keys, columns)


@part
def exchange_nothing(new: Configuration, old: Configuration) -> None:
    """See `Exchange`: vector registers need nothing."""


PAIR_PRODUCTS = Products(max(LANES, HIGH), exchange_nothing, multiply_columns, combine, add_combined)
"""By vectors of pairs: x in rows and w in pairs; or both in pairs, and x is read transposed."""
