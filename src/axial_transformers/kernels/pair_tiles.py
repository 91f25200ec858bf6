"""Products of bfloat16 numbers by the vector registers of processors with AVX512-BF16: two terms a lane and step.

Words, in rows and in pairs, are those of `matrix_tiles`. x is in rows and w in pairs, or both are in pairs and x is
read transposed: either way, a word of x is multiplied by a vector of words of w.
"""

from functools import cache
from typing import Any

from axial_transformers.kernels.compilation import part
from axial_transformers.kernels.llvm import FEATURES, LANES, Array, cgutils, ir
from axial_transformers.kernels.register_tiles import HIGH, PANEL, product_tile

NEEDED = {"+avx512f", "+avx512bf16"}
LANES_OF_DOT = 16
"""Words in a vector of the instruction."""


@cache
def are_there() -> bool:
    """Whether numba compiles for a processor with this product."""
    return LANES == LANES_OF_DOT and NEEDED <= FEATURES


def dot(builder: Any, a: Any, b: Any, c: Any) -> Any:
    """c + the products of both numbers in each word of a and b."""
    words = ir.VectorType(ir.IntType(32), LANES_OF_DOT)
    kind = ir.FunctionType(c.type, [c.type, words, words])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.avx512bf16.dpbf16ps.512")
    return builder.call(function, [c, *(builder.bitcast(x, words) for x in (a, b))])


multiply, multiply_add = (product_tile(HIGH, PANEL, add, dot) for add in (False, True))
multiply_narrow, multiply_add_narrow = (product_tile(HIGH, LANES, add, dot) for add in (False, True))


@part
def multiply_pairs(
    x: Array, x_at: int, x_row: int, x_step: int, count: int, w: Array, w_at: int, w_row: int, out: Array, out_at: int,
    out_row: int, rows: int, columns: int,
) -> None:  # fmt: skip
    """`register_tiles.multiply_rows` of words; up to HIGH - 1 rows more are read and written."""
    for r in range(0, rows, HIGH):
        at, to = x_at + r * x_row, out_at + r * out_row
        for c in range(0, columns - LANES, PANEL):
            multiply(x, at, x_row, x_step, count, w, w_at + c, w_row, out, to + c, out_row)
        if columns % PANEL:
            c = columns - LANES
            multiply_narrow(x, at, x_row, x_step, count, w, w_at + c, w_row, out, to + c, out_row)


@part
def multiply_add_pairs(
    x: Array, x_at: int, x_row: int, x_step: int, count: int, w: Array, w_at: int, w_row: int, out: Array, out_at: int,
    out_row: int, rows: int, columns: int,
) -> None:  # fmt: skip
    """`multiply_pairs`, added to out."""
    for r in range(0, rows, HIGH):
        at, to = x_at + r * x_row, out_at + r * out_row
        for c in range(0, columns - LANES, PANEL):
            multiply_add(x, at, x_row, x_step, count, w, w_at + c, w_row, out, to + c, out_row)
        if columns % PANEL:
            c = columns - LANES
            multiply_add_narrow(x, at, x_row, x_step, count, w, w_at + c, w_row, out, to + c, out_row)
