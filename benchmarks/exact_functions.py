"""Compares the functions of the engine with their reference in NumPy, bit for bit.

    python benchmarks/exact_functions.py                   all 2^32 float32 numbers: half an hour or so of one core
    python benchmarks/exact_functions.py --every 65537     every 65537th

Prints each function with the count of numbers, of differences (NaN equals NaN), and the first number that differs.
"""

from collections.abc import Iterator
from ctypes import c_uint64, c_void_p

import numpy as np

from axial_transformers.engine import library, reference
from command_line import run_command

AT_A_TIME = 1 << 20

FUNCTIONS = {
    "exp": reference.exp,
    "log": reference.log,
    "sigmoid": reference.logistic,
    "tanh": reference.tanh,
    "quick GELU": reference.quick_gelu,
}
"""In the order of `apply_function` in `network.c`."""


def numbers(every: int) -> Iterator[np.ndarray]:
    """Every n-th float32 number in the order of its bits."""
    for first in range(0, 1 << 32, every * AT_A_TIME):
        bits = np.arange(first, min(1 << 32, first + every * AT_A_TIME), every, dtype=np.int64)
        yield bits.astype(np.uint32).view(np.float32)


def differences(name: str, x: np.ndarray) -> np.ndarray:
    """Those of x for which engine and reference differ."""
    compiled, which = np.empty_like(x), [*FUNCTIONS].index(name)
    given, written = c_void_p(x.ctypes.data), c_void_p(compiled.ctypes.data)
    library().apply_function(which, given, c_uint64(len(x)), written)
    with reference.ieee_arithmetic(), np.errstate(all="ignore"):
        expected = FUNCTIONS[name](x)
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
