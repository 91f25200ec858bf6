"""The rate of large matrix products on a device."""

import time
from functools import lru_cache

import torch
import torch.nn.functional as F

from axial_transformers.machine import arithmetic

MATRIX = {"cpu": 1024, "cuda": 8192}
"""Side of matrices, large enough for the full rate."""
PRODUCTS = {"cpu": 1, "cuda": 10}
"""Products between readings of the clock, so that the device never waits for the host."""


def matmul_rate(device: torch.device, dtype: torch.dtype, seconds: float = 0.3) -> float:
    """Return the FLOP/s of products of `dtype` on the device (TF32 for float32 on CUDA).

    It is the largest rate within `seconds`, since other jobs only slow a device down.
    """
    return _matmul_rate(device, dtype, seconds, torch.get_num_threads())


@lru_cache
@torch.no_grad()
def _matmul_rate(device: torch.device, dtype: torch.dtype, seconds: float, threads: int) -> float:
    n, products = MATRIX.get(device.type, 1024), PRODUCTS.get(device.type, 1)
    # Not zeros, with which a GPU takes less power and runs faster; not random, to leave the generators' state alone.
    a = torch.linspace(-1, 1, n * n, device=device).view(n, n).to(dtype)
    with arithmetic(device, tf32=True):
        F.linear(a, a)
        best, end = float("inf"), time.monotonic() + seconds
        while best == float("inf") or time.monotonic() < end:
            _wait(device)
            start = time.perf_counter()
            for _ in range(products):
                F.linear(a, a)
            _wait(device)
            best = min(best, time.perf_counter() - start)
    return products * 2 * n**3 / best


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
