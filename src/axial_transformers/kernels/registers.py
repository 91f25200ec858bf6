"""The vector registers of the processor that numba compiles for, on which the sizes of vectors and tiles depend.

They are taken from the features in the key under which numba keeps compiled code, so that code for other registers is
never loaded; NUMBA_CPU_NAME and NUMBA_CPU_FEATURES change both.
"""

from typing import Any

from numba.core import registry

NUMBERS = {"+avx512f": 16, "+avx": 8}
"""float32 numbers in a register of the widest kind, by the feature that brings it; 4 without (SSE, NEON)."""


def lanes(features: str) -> int:
    """float32 numbers in a vector register, by LLVM's features, "+avx,+avx2,-avx512f"."""
    has = features.split(",")
    return next((numbers for feature, numbers in NUMBERS.items() if feature in has), 4)


def features() -> str:
    """LLVM's features of the processor that numba compiles for; those that its name implies may be left out."""
    target: Any = registry.cpu_target
    _, _, found = target.target_context.codegen().magic_tuple()
    return str(found)
