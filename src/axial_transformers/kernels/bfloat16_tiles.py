"""Products of bfloat16 matrices, by matrix registers (AMX) or by vectors of pairs.

A word holds two numbers, the first in the lower half: of successive columns ("in rows") or rows ("in pairs").
"""

import ctypes
import platform
import sys
from functools import cache
from typing import Any, NamedTuple

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
"""Of a matrix register's row, and of an AVX-512 vector."""
BLOCK = 2 * WORDS
"""Four sums need not wait."""
NEEDED_FOR_MATRICES = {"+avx512f", "+amx-tile", "+amx-bf16"}
NEEDED_FOR_PAIRS = {"+avx512f", "+avx512bf16"}
REQUEST_PERMISSION, ARCH_REQ_XCOMP_PERM, TILE_DATA = 158, 0x1023, 18
"""Linux grants matrix registers on request."""

Configuration = NDArray[np.uint8]
CONFIGURATION = np.zeros(64, np.uint8)
"""A palette, row bytes from 16 on, rows from 48 on."""
CONFIGURATION[0] = 1
CONFIGURATION[16:32:2] = 4 * WORDS
CONFIGURATION[48:56] = WORDS


class Products(NamedTuple):
    """The products of `bfloat16_attention`, with scores [keys, PANEL]."""

    multiple: int
    """Of the padded length."""
    exchange: Any
    """(new, old): configures registers, and saves to `old`."""
    multiply_columns: Any
    """(x, at, words, width, columns of words, rows, columns, out): out = x w."""
    combine: Any
    """(weights in pairs, keys, x in pairs, at, wide, width, out, to, rows, spare): out = weights^T x."""
    add: Any
    """(weights, keys, rows, x in pairs, at, wide, width, out, to): out += weights x."""


@cache
def has_matrix_registers() -> bool:
    """Return True if CPU and system offer them."""
    if sys.platform != "linux" or platform.machine() != "x86_64" or LANES != WORDS:
        return False
    if not NEEDED_FOR_MATRICES <= FEATURES:
        return False
    return not ctypes.CDLL(None).syscall(REQUEST_PERMISSION, ARCH_REQ_XCOMP_PERM, TILE_DATA)


def multiplies_pairs() -> bool:
    """Return True for AVX512-BF16."""
    return LANES == WORDS and NEEDED_FOR_PAIRS <= FEATURES


@instructions
def exchange_configuration(builder: Any, new: Any, old: Any) -> None:
    """Configure registers, and save their state: oneDNN has its own."""
    _call(builder, "sttilecfg", old)
    _call(builder, "ldtilecfg", new)


def _product(add: bool) -> Any:
    @instructions
    def product(
        builder: Any, x: Any, x_at: Any, x_row: Any, count: Any, w: Any, w_at: Any, w_row: Any, out: Any, out_at: Any,
        out_row: Any,
    ) -> None:  # fmt: skip
        def place(data: Any, start: Any, row: Any, rows: Any, column: Any) -> list[Any]:
            offset = builder.add(builder.add(start, builder.mul(row, rows)), column)
            return [builder.gep(data, [offset]), builder.mul(row, row.type(4))]

        def fixed(number: int) -> Any:
            return count.type(number)

        halves = [(i, j, 2 * i + j) for i in range(2) for j in range(2)]
        for i, j, total in halves:
            if add:
                _call(builder, "tileloadd64", total, *place(out, out_at, out_row, fixed(WORDS * i), fixed(WORDS * j)))
            else:
                _call(builder, "tilezero", total)
        with cgutils.for_range(builder, count) as loop:
            steps = builder.mul(loop.index, fixed(WORDS))
            for i in range(2):
                _call(builder, "tileloadd64", 4 + i, *place(x, x_at, x_row, fixed(WORDS * i), steps))
                _call(builder, "tileloadd64", 6 + i, *place(w, w_at, w_row, steps, fixed(WORDS * i)))
            for i, j, total in halves:
                _call(builder, "tdpbf16ps", total, 4 + i, 6 + j)
        for i, j, total in halves:
            _call(builder, "tilestored64", total, *place(out, out_at, out_row, fixed(WORDS * i), fixed(WORDS * j)))

    return product


multiply_block = _product(add=False)
"""Rows times pairs: BLOCK rows, BLOCK columns, `count` blocks of steps."""
multiply_add_block = _product(add=True)


def _call(builder: Any, name: str, *operands: Any) -> None:
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
    """Turn rows into pairs."""
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
    """Copy numbers into words."""
    out, done = builder.bitcast(out, x.type), count.type(0)
    for lanes in (2 * LANES, LANES // 2, 1):
        end = builder.and_(count, count.type(-lanes))
        with cgutils.for_range_slice(builder, done, end, count.type(lanes)) as (j, _):
            store(builder, load(builder, x, builder.add(x_at, j), lanes), out, builder.add(out_at, j))
        done = end


@cache
def matrix_products(multiply: Any = multiply_block, multiply_add: Any = multiply_add_block) -> Products:
    """Return products by blocks."""

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
    """Return c plus the products of both halves."""
    words = ir.VectorType(ir.IntType(32), WORDS)
    kind = ir.FunctionType(c.type, [c.type, words, words])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.avx512bf16.dpbf16ps.512")
    return builder.call(function, [c, *(builder.bitcast(x, words) for x in (a, b))])


def product_of_rows(add: bool) -> Any:
    """Return `multiply_rows` of words."""
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
    """Multiply words."""
    multiply_pairs(x, at, words, 1, (width + 1) // 2, w, 0, PANEL, out, 0, PANEL, rows, columns)


@part
def combine(
    weights: Array, keys: int, x: Array, at: int, wide: int, width: int, out: Array, to: int, rows: int,
        spare: Array,
) -> None:  # fmt: skip
    """Combine words."""
    columns = round_up(width, LANES)
    multiply_pairs(weights, 0, 1, PANEL, (keys + 1) // 2, x, at, wide, out, to, wide, rows, columns)


@part
def add_combined(
    weights: Array, keys: int, rows: int, x: Array, at: int, wide: int, width: int, out: Array, to: int
) -> None:  # fmt: skip
    """Add to out."""
    columns = round_up(width, LANES)
    multiply_add_pairs(weights, 0, PANEL // 2, 1, (rows + 1) // 2, x, at, wide, out, to, wide, keys, columns)


@part
def exchange_nothing(new: Configuration, old: Configuration) -> None:
    """Keep vector registers as they are."""


PAIR_PRODUCTS = Products(max(LANES, HIGH), exchange_nothing, multiply_columns, combine, add_combined)
