"""Products of bfloat16 matrices by the matrix registers of Intel's processors (AMX): 512 multiplications a cycle.

Words are arrays of float32 in whose numbers the bits of two bfloat16 numbers lie, the first in the lower half. A matrix
in rows has successive columns in a word, one in pairs has successive rows: x [rows, columns / 2] and w [rows / 2,
columns] are multiplied. Both are transposed word by word.
"""

import ctypes
import platform
import sys
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axial_transformers.kernels.llvm import (
    FEATURES,
    LANES,
    cgutils,
    instructions,
    ir,
    load,
    shuffle,
    store,
)

WORDS = 16
"""Rows of a register, and words in each."""
BLOCK = 2 * WORDS
"""Rows, columns and steps of a product: four registers of sums, as each waits for its own results."""
NEEDED = {"+avx512f", "+amx-tile", "+amx-bf16"}
REQUEST_PERMISSION, ARCH_REQ_XCOMP_PERM, TILE_DATA = 158, 0x1023, 18
"""Linux's system call arch_prctl and its arguments: a process must ask before it uses these registers."""

Configuration = NDArray[np.uint8]
CONFIGURATION = np.zeros(64, np.uint8)
"""All eight registers whole, as the instruction takes it: a palette, bytes of a row from 16 on, rows from 48 on."""
CONFIGURATION[0] = 1
CONFIGURATION[16:32:2] = 4 * WORDS
CONFIGURATION[48:56] = WORDS


@cache
def are_there() -> bool:
    """Whether numba compiles for a processor that has these registers, and the system lets this process use them."""
    if sys.platform != "linux" or platform.machine() != "x86_64" or LANES != WORDS:
        return False
    if not NEEDED <= FEATURES:
        return False
    return not ctypes.CDLL(None).syscall(REQUEST_PERMISSION, ARCH_REQ_XCOMP_PERM, TILE_DATA)


@instructions
def exchange_configuration(builder: Any, new: Any, old: Any) -> None:
    """Configures the registers of this thread, after storing their configuration in `old`: oneDNN has its own."""
    _call(builder, "sttilecfg", old)
    _call(builder, "ldtilecfg", new)


def _product(add: bool) -> Any:
    """The intrinsic of a product: registers 0 to 3 are sums, 4 and 5 hold rows of x, 6 and 7 columns of w."""

    @instructions
    def product(
        builder: Any, x: Any, x_at: Any, x_row: Any, count: Any, w: Any, w_at: Any, w_row: Any, out: Any, out_at: Any,
        out_row: Any,
    ) -> None:  # fmt: skip
        def place(data: Any, start: Any, row: Any, rows: Any, column: Any) -> list[Any]:
            """The address of a row and column, and the bytes from row to row."""
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
"""out = x w of words x in rows and w in pairs: BLOCK rows, BLOCK columns, `count` times BLOCK steps.

x_at, w_at, x_row and w_row, offsets and distances of rows, are counted in words; out is float32.
"""
multiply_add_block = _product(add=True)
"""`multiply_block`, added to out."""


def _call(builder: Any, name: str, *operands: Any) -> None:
    """An instruction of LLVM's for these registers, which it names by numbers; addresses are of bytes."""
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
    """Words in rows, [rows, columns / 2], to words in pairs, [rows / 2, columns]; `columns` is a multiple of BLOCK."""
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
    """`count` bfloat16 numbers of x, given as int16, from x_at on, into words from their bfloat16 number out_at on."""
    out, done = builder.bitcast(out, x.type), count.type(0)
    for lanes in (2 * LANES, LANES // 2, 1):
        end = builder.and_(count, count.type(-lanes))
        with cgutils.for_range_slice(builder, done, end, count.type(lanes)) as (j, _):
            store(builder, load(builder, x, builder.add(x_at, j), lanes), out, builder.add(out_at, j))
        done = end
