"""Memory for the kernels' arrays."""

from math import prod

import numpy as np

from axial_transformers.kernels.llvm import Array

CACHE_LINE = 64
"""Bytes."""


def aligned_zeros(*shape: int) -> Array:
    """Zeros that begin with a cache line: other vectors would take two lines each."""
    size = prod(shape) * 4
    memory = np.zeros(size + CACHE_LINE, np.uint8)
    first = -memory.ctypes.data % CACHE_LINE
    return memory[first : first + size].view(np.float32).reshape(shape)
