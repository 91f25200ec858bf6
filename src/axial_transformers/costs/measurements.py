"""Measurements on this machine: the rate of its matrix products, its memory, and that which this process has used."""

import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

import torch

from axial_transformers.ops.linear import linear

MATRIX = {"cpu": 1024, "cuda": 8192}
"""Side of the square matrices: large enough to reach the full rate."""
PRODUCTS = {"cpu": 1, "cuda": 10}
"""Products between two readings of the clock, so that a device with a queue never waits for the host."""

MEMORY, STATUS = Path("/proc/meminfo"), Path("/proc/self/status")
CONTROL_GROUPS = (
    (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current"), "inactive_file"),
    (
        Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
        Path("/sys/fs/cgroup/memory/memory.usage_in_bytes"),
        "total_inactive_file",
    ),
)
"""Limit and use of memory in control groups of both versions, and the name of the cached files that can be dropped."""


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
    """Largest number of bytes in use: of tensors on CUDA, since `forget_peak_memory`; otherwise resident, so far."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    with suppress(OSError):  # on Linux, getrusage would count a parent's memory too
        for line in STATUS.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    try:
        import resource
    except ImportError:  # Windows has no such module
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def forget_peak_memory(device: torch.device) -> None:
    """Begins the count of `peak_memory` of CUDA anew; what freed tensors have left goes back to the device."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)


def free_memory(device: torch.device, whole: bool = False) -> int | None:
    """Bytes that this process can still take on the device, or with `whole` all that the device has; None: unknown.

    Of a CPU: what the system has available, and its control group (a container's limit) leaves.
    """
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        return total if whole else free
    if not MEMORY.exists():  # of macOS and Windows
        return None
    sizes = dict(line.split()[:2] for line in MEMORY.read_text().splitlines())
    system = int(sizes["MemTotal:" if whole else "MemAvailable:"]) * 1024
    return min([system, *_left_by_control_groups(whole)])


def _left_by_control_groups(whole: bool) -> Iterator[int]:
    for limit, usage, cache in CONTROL_GROUPS:
        try:
            most, used = (int(file.read_text()) for file in (limit, usage))
            lines = dict(line.split()[:2] for line in (limit.parent / "memory.stat").read_text().splitlines())
            yield most if whole else max(0, most - used + int(lines.get(cache, 0)))
        except (OSError, ValueError):  # no such group, or "max": no limit
            continue


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
