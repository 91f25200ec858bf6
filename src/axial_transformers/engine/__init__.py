"""The engine, C behind one door: exact layers, the entropy coder, and attention for training on a CPU.

`library()` is the compiled C at a level of this processor, or None where nothing was compiled. `arithmetic()` is what
the exact network stands on: `network`, in C, or `reference`, the same bits in NumPy, which is its specification and
slow.

    from axial_transformers.engine import Linear, arithmetic

    exact = arithmetic()
    layer = exact.Dense(Linear(weight, bias))  # float32 [in, out] and [out]
    with exact.ieee_arithmetic():
        y = layer(x)                           # [rows, in] -> [rows, out], the same bits on every processor

This room imports nothing from the others, and they import nothing from inside.
"""

from axial_transformers.engine import network, reference
from axial_transformers.engine.definition import (
    COEFFICIENT_BITS,
    GROUP,
    LEVELS,
    MASKED,
    MAX_CHANNELS,
    MIN_LOG_PRECISION,
    MIN_STATE,
    NOT_FINITE,
    PRECISION,
    TOO_SHORT,
    WORD,
    AnyLinear,
    Array,
    Attention,
    Categorical,
    Centring,
    Convolution,
    Features,
    Feedforward,
    Head,
    Known,
    Layer,
    Line,
    Linear,
    Lstm,
    Norm,
    Ordinal,
    Output,
    RowSampling,
    Stream,
    level_scales,
    rounded_linear,
)
from axial_transformers.engine.interface import Arithmetic
from axial_transformers.engine.library import library
from axial_transformers.engine.threads import parallel_map, parallel_ranges

__all__ = [
    "COEFFICIENT_BITS",
    "GROUP",
    "LEVELS",
    "MASKED",
    "MAX_CHANNELS",
    "MIN_LOG_PRECISION",
    "MIN_STATE",
    "NOT_FINITE",
    "PRECISION",
    "TOO_SHORT",
    "WORD",
    "AnyLinear",
    "Arithmetic",
    "Array",
    "Attention",
    "Categorical",
    "Centring",
    "Convolution",
    "Features",
    "Feedforward",
    "Head",
    "Known",
    "Layer",
    "Line",
    "Linear",
    "Lstm",
    "Norm",
    "Ordinal",
    "Output",
    "RowSampling",
    "Stream",
    "arithmetic",
    "level_scales",
    "library",
    "network",
    "parallel_map",
    "parallel_ranges",
    "reference",
    "rounded_linear",
]


def arithmetic() -> Arithmetic:
    """Return exact layers and the coder in C or, without the library, their reference."""
    if library():
        return network
    return reference
