"""Compares the compiled functions of `kernels.exact` with their reference in NumPy, bit for bit.

    python benchmarks/exact_functions.py                   all 2^32 float32 numbers: an hour or so of one core
    python benchmarks/exact_functions.py --every 65537     every 65537th

Prints each function with the count of numbers, of differences (NaN equals NaN), and the first number that differs.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numba import njit

from axial_transformers.kernels.exact import reference
from axial_transformers.kernels.exact.definition import LANES
from axial_transformers.kernels.exact.float_environment import ieee_arithmetic
from axial_transformers.kernels.exact.instructions import (
    VECTOR,
    exponential,
    hyperbolic_tangent,
    load,
    logarithm,
    logistic,
)
from axial_transformers.kernels.exact.row_functions import quick_gelu, vectors
from axial_transformers.kernels.llvm import constant, instructions, store
from command_line import run_command

AT_A_TIME = 1 << 20


def kernel_of(function: Callable[[Any, Any], Any]) -> Any:
    """kernel(x, count): replaces x by the function, given as LLVM instructions of builder and vector."""

    @instructions
    def apply(builder, x, count):
        with vectors(builder, count) as j:
            store(builder, function(builder, load(builder, x, j)), x, j)

    @njit(error_model="numpy")
    def kernel(x, count):
        apply(x, count)

    return kernel


@njit(error_model="numpy")
def quick_gelus(x, count):
    quick_gelu(x, np.int64(0), count)


FUNCTIONS = {
    "exp": (kernel_of(exponential), reference.exp),
    "log": (kernel_of(logarithm), reference.log),
    "sigmoid": (kernel_of(lambda b, x: logistic(b, x, constant(VECTOR, 1.0))), reference.logistic),
    "tanh": (kernel_of(hyperbolic_tangent), reference.tanh),
    "quick GELU": (quick_gelus, reference.quick_gelu),
}


def numbers(every: int) -> Iterator[np.ndarray]:
    """Every n-th float32 number in the order of its bits, in arrays of whole vectors."""
    for first in range(0, 1 << 32, every * AT_A_TIME):
        bits = np.arange(first, min(1 << 32, first + every * AT_A_TIME), every, dtype=np.int64)
        yield np.resize(bits, -(-len(bits) // LANES) * LANES).astype(np.uint32).view(np.float32)


def differences(name: str, x: np.ndarray) -> np.ndarray:
    """Those of x for which kernel and reference differ."""
    kernel, slow = FUNCTIONS[name]
    compiled = x.copy()
    with ieee_arithmetic(), np.errstate(all="ignore"):
        kernel(compiled, len(x))
        expected = slow(x)
    same = (compiled.view(np.uint32) == expected.view(np.uint32)) | (np.isnan(compiled) & np.isnan(expected))
    return x[~same]


def main(*, every: int = 1) -> None:
    """Compare every n-th number."""
    for name in FUNCTIONS:
        count, different = 0, []
        for x in numbers(every):
            count += len(x)
            different += [number.hex() for number in map(float, differences(name, x))]
        print(f"{name}: {count:,} numbers, {len(different)} differences", *different[:1], flush=True)


if __name__ == "__main__":
    run_command(main, description=__doc__)
