"""Memory that a CPU step frees: kept for the next step, which is faster, or returned, which takes less."""

import ctypes
import sys

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_MMAP_MAX = -1, -3, -4
"""Options of malloc.h."""


def keep_freed_memory() -> None:
    """Sets the C library to keep freed memory for later allocations, where it is glibc.

    Otherwise a CPU's large tensors are new pages at every step, and zeroing them takes up to a tenth of its time.
    """
    _set({M_MMAP_MAX: 0, M_TRIM_THRESHOLD: -1})


def return_freed_memory() -> None:
    """Sets the C library to return freed tensors to the system at once, where it is glibc.

    Otherwise tensors that come and go between others that stay, as those of blocks that are computed again, leave gaps
    that no other tensor fits: a step then took up to four times the memory of its tensors.
    """
    _set({M_MMAP_THRESHOLD: 1 << 20, M_MMAP_MAX: 1 << 16, M_TRIM_THRESHOLD: 1 << 17})


def _set(options: dict[int, int]) -> None:
    if sys.platform == "linux":
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
        if mallopt is not None:
            for option, value in options.items():
                mallopt(option, value)
