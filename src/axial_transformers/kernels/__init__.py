"""The door of the kernels, compiled code for CPUs: other rooms import nothing from inside.

See docs/explanation/kernels.md for what is behind it, and when to read it.

Functions that return modules compile nothing, but import numba, which takes a second. So callers call them late.
"""

import sys
from typing import Any, NamedTuple

from axial_transformers.engine.threads import parallel_map, parallel_ranges
from axial_transformers.kernels.exact.definition import (
    COEFFICIENT_BITS,
    GROUP,
    MASKED,
    MIN_LOG_PRECISION,
    MIN_STATE,
    NO_CENTRING,
    NO_UNIFORMS,
    NOT_FINITE,
    PRECISION,
    TOO_SHORT,
    WORD,
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
from axial_transformers.kernels.line_layout import Sizes, Strides

__all__ = [
    "COEFFICIENT_BITS",
    "GROUP",
    "MASKED",
    "MIN_LOG_PRECISION",
    "MIN_STATE",
    "NOT_FINITE",
    "NO_CENTRING",
    "NO_UNIFORMS",
    "PRECISION",
    "TOO_SHORT",
    "WORD",
    "Array",
    "Block",
    "Centring",
    "Features",
    "Known",
    "Line",
    "Linear",
    "Lstm",
    "Norm",
    "Ordinal",
    "Output",
    "RowSampling",
    "Sizes",
    "Stream",
    "Strides",
    "compilation_time",
    "compiled_for",
    "exact_kernels",
    "line_kernels",
    "parallel_map",
    "parallel_ranges",
    "pointwise_kernels",
    "relative_kernels",
]


class Target(NamedTuple):
    """What numba compiles for."""

    processor: str
    """LLVM's name of it."""
    vector_bits: int
    """Of a vector register."""
    tile: tuple[int, int]
    """Rows and columns of the sums that stay in registers during a product."""
    multiplies_and_adds: bool
    """True if fused multiply-add is an instruction. Without it (x86 before 2013), exact kernels are slow."""


def compiled_for() -> Target:
    """Return what numba compiles for; NUMBA_CPU_NAME and NUMBA_CPU_FEATURES change it."""
    from axial_transformers.kernels.exact.float_environment import ON_X86
    from axial_transformers.kernels.llvm import FEATURES, LANES, PROCESSOR
    from axial_transformers.kernels.register_tiles import PANEL, ROWS

    return Target(PROCESSOR, 32 * LANES, (ROWS, PANEL), "+fma" in FEATURES or not ON_X86)


def compilation_time() -> float:
    """Return for how many seconds this process has compiled kernels."""
    module = sys.modules.get(f"{__name__}.compilation")
    return module.timer.duration if module and module.timer.done else 0.0


def line_kernels(bfloat16: bool, large: bool) -> Any:
    """Return what has the `forward` and `backward` that attend along lines: `line_attention`, or one like it.

    Args:
        bfloat16: True for bfloat16 tensors, as int16 bits; False for float32.
        large: True if lines are long and heads wide enough to fill matrix registers.
    """
    from axial_transformers.kernels import bfloat16_attention, bfloat16_tiles, line_attention

    if bfloat16 and bfloat16_tiles.has_matrix_registers():
        if large:
            return bfloat16_attention.attention_by(bfloat16_tiles.matrix_products())
    elif bfloat16 and bfloat16_tiles.multiplies_pairs():
        return bfloat16_attention.attention_by(bfloat16_tiles.PAIR_PRODUCTS)
    return line_attention


def relative_kernels() -> Any:
    """Return `relative_attention`: position-sensitive attention, equation 4 of Axial-DeepLab."""
    from axial_transformers.kernels import relative_attention

    return relative_attention


def pointwise_kernels() -> Any:
    """Return `pointwise`: quick GELU and dropout in one pass over memory."""
    from axial_transformers.kernels import pointwise

    return pointwise


def exact_kernels(compiled: bool) -> Any:
    """Return the float32 arithmetic with equal bits everywhere: `exact.compiled`, or `exact.reference` in NumPy."""
    if compiled:
        from axial_transformers.kernels.exact import compiled as arithmetic
    else:
        from axial_transformers.kernels.exact import reference as arithmetic  # type: ignore[no-redef]
    return arithmetic
