"""The door of the kernels, compiled code for CPUs: other rooms import nothing from inside.

See docs/explanation/kernels.md for what is behind it, and when to read it.

Functions that return modules compile nothing, but import numba, which takes a second. So callers call them late.
"""

import sys
from typing import Any, NamedTuple

from axial_transformers.engine.threads import parallel_map, parallel_ranges
from axial_transformers.kernels.line_layout import Sizes, Strides

__all__ = ["Sizes", "Strides", "compilation_time", "line_kernels", "parallel_map", "parallel_ranges", "pointwise_kernels", "relative_kernels"]


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


