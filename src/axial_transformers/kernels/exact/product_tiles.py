"""Products of small matrices whose sums stay in registers: one chain of fused multiply-adds for each sum."""

from collections.abc import Collection
from typing import Any

from axial_transformers.kernels.exact.definition import LANES
from axial_transformers.kernels.exact.instructions import fused, load
from axial_transformers.kernels.llvm import FEATURES, cgutils, instructions, opaque, splat, store


def tile_of(features: Collection[str]) -> tuple[int, int]:
    """Rows and vectors of a tile whose sums fill the registers of a processor with these features.

    24 of the 32 vector registers of AVX-512, 12 of the 16 of AVX2: what is left holds weights and one broadcast number.
    Sums do not depend on it.
    """
    return (12, 2) if "+avx512f" in features else (6, 1)


ROWS, VECTORS = tile_of(FEATURES)
PANEL = VECTORS * LANES
"""Columns of a product."""


def product(rows: int, vectors: int, panels: int = 1) -> Any:
    """The intrinsic `multiply` of tiles of `rows` rows and `panels` panels of `vectors` vectors of columns."""

    @instructions
    def multiply(
        builder: Any, x: Any, x_at: Any, x_row: Any, w: Any, w_at: Any, bias: Any, bias_at: Any, count: Any, out: Any,
        out_at: Any, out_row: Any, add: Any,
    ) -> None:  # fmt: skip
        def offset(start: Any, distance: Any, times: int, more: int = 0) -> Any:
            return builder.add(builder.add(start, builder.mul(distance, distance.type(times))), start.type(more))

        panel = vectors * LANES
        columns = range(0, panels * panel, LANES)
        biases = [load(builder, bias, builder.add(bias_at, bias_at.type(c))) for c in columns]
        sums = [cgutils.alloca_once_value(builder, start) for _ in range(rows) for start in biases]
        beside = [builder.mul(x_row, x_row.type(row)) for row in range(rows)]
        with cgutils.for_range(builder, count) as loop:
            at = offset(w_at, loop.index, panel)
            weights = [load(builder, w, offset(at, count, c - c % panel, c % panel)) for c in columns]
            first = opaque(builder, builder.gep(x, [builder.add(x_at, loop.index)]))
            for row, distance in enumerate(beside):
                number = splat(builder, load(builder, first, distance, 1), LANES)
                for total, weight in zip(sums[row * len(columns) :], weights):
                    builder.store(fused(builder, number, weight, builder.load(total)), total)
        places = [offset(out_at, out_row, row, column) for row in range(rows) for column in columns]
        with builder.if_then(add):
            for total, at in zip(sums, places):
                builder.store(builder.fadd(load(builder, out, at), builder.load(total)), total)
        for total, at in zip(sums, places):
            store(builder, builder.load(total), out, at)

    return multiply


multiply_one = product(1, VECTORS, 2)
"""`multiply` of one row and two panels: enough sums side by side, as each step of a sum waits for the one before."""
FEW = ROWS // 3
multiply_few = product(FEW, VECTORS)
"""`multiply` of FEW rows."""
multiply = product(ROWS, VECTORS)
"""out[r, c] = bias[c] + x[r, 0] w[0, c] + x[r, 1] w[1, c] + .., `count` terms from left to right, for ROWS rows and
PANEL columns; if `add`, this sum is added to out. x[r, k] is x[x_at + r x_row + k], w[k, c] is w[w_at + k PANEL + c];
of several panels, the weights of one follow those of the other.
"""
