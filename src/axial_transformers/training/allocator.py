"""Memory that a CPU step frees is kept for the next step."""

import ctypes
import sys

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
"""Options of malloc.h."""


def keep_freed_memory() -> None:
    """Sets the C library to keep freed memory for later allocations, where it is glibc.

    Otherwise a CPU's large tensors are new pages at every step, and zeroing them takes up to a tenth of its time.
    """
    if sys.platform == "linux":
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
        if mallopt is not None:
            mallopt(M_MMAP_MAX, 0)
            mallopt(M_TRIM_THRESHOLD, -1)
