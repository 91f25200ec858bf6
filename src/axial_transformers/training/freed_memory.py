"""What glibc does with memory that a step has freed."""

import ctypes
import sys

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_MMAP_MAX = -1, -3, -4
"""Options of malloc, numbered as in glibc's malloc.h."""


def keep_freed_memory() -> None:
    """Make glibc keep freed memory for later tensors, for speed.

    By default, a large tensor gets new pages at every step, and the system fills them with zeros. That took 6 to 19 %
    of a step when this was written. With no mmap (M_MMAP_MAX = 0) tensors come from the heap, and with M_TRIM_THRESHOLD
    = -1 the heap never shrinks.
    """
    _set({M_MMAP_MAX: 0, M_TRIM_THRESHOLD: -1})


def return_freed_memory() -> None:
    """Make glibc return freed memory to the system at once, for runs that save memory (`TrainConfig.saves_memory`).

    If it were kept, tensors that come and go between others would leave gaps that no other tensor fits: a step took 2
    to 4.5 times the memory of its tensors (`experiments/EXPERIMENTS.md`, "Memory that a step adds on a CPU").
    Tensors of 1 MiB and more get pages of their own by mmap, which freeing returns; the rest of the heap shrinks from
    128 KiB of free memory on.
    """
    _set({M_MMAP_THRESHOLD: 1 << 20, M_MMAP_MAX: 1 << 16, M_TRIM_THRESHOLD: 1 << 17})


def _set(options: dict[int, int]) -> None:
    if sys.platform == "linux":
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
        if mallopt is not None:
            for option, value in options.items():
                mallopt(option, value)
