"""Measurements on this machine: the rate of its matrix products, and the memory that this process has used."""

import sys
import time
from functools import lru_cache
from pathlib import Path

import torch

from axial_transformers.ops.linear import linear

MATRIX = {"cpu": 1024, "cuda": 8192}
"""Side of the square matrices: large enough to reach the full rate."""
PRODUCTS = {"cpu": 1, "cuda": 10}
"""Products between two readings of the clock, so that a device with a queue never waits for the host."""


def matmul_rate(device: torch.device, dtype: torch.dtype, seconds: float = 0.3) -> float:
    """Operations/s that matrix products of `dtype` [n, n] reach on the device, on a CPU with the threads in use.

    An operation is a multiplication or an addition: 2 n^3 a product. The largest rate within `seconds`, since other
    jobs can only slow a device down; measured once a process.
    """
    return _matmul_rate(device, dtype, seconds, torch.get_num_threads())


@lru_cache
@torch.no_grad()
def _matmul_rate(device: torch.device, dtype: torch.dtype, seconds: float, threads: int) -> float:
    n, products = MATRIX.get(device.type, 1024), PRODUCTS.get(device.type, 1)
    # Not zeros, with which a GPU draws less power and runs faster; not random, to leave the generators' state alone.
    a = torch.linspace(-1, 1, n * n, device=device).view(n, n).to(dtype)
    linear(a, a)
    best, end = float("inf"), time.monotonic() + seconds
    while best == float("inf") or time.monotonic() < end:
        _wait(device)
        start = time.perf_counter()
        for _ in range(products):
            linear(a, a)
        _wait(device)
        best = min(best, time.perf_counter() - start)
    return products * 2 * n**3 / best


def peak_memory(device: torch.device) -> int:
    """Largest number of bytes in use so far: of tensors on CUDA, otherwise of this process's resident memory."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    status = Path("/proc/self/status")
    if status.exists():  # on Linux, getrusage would count a parent's memory too
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    if sys.platform == "win32":
        return 0
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
