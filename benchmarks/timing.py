"""Times of things beside each other in one process, on machines that others use too, and peak memory."""

import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import TypeVar

import torch

from axial_transformers.machine import multiplies_bfloat16

Case = TypeVar("Case")
Run = Callable[[], object]

CPU = torch.device("cpu")


def dtypes() -> dict[str, torch.dtype]:
    """float32, and bfloat16 where this processor has instructions for it."""
    return {"float32": torch.float32} | ({"bfloat16": torch.bfloat16} if multiplies_bfloat16(CPU) else {})


def rows_of(cases: Collection[Case]) -> Iterator[Case]:
    """The cases of a table; after each, stderr says how long the others take at this pace."""
    start = time.monotonic()
    for done, case in enumerate(cases, 1):
        yield case
        spent = time.monotonic() - start
        left = spent / done * (len(cases) - done)
        print(f"row {done} of {len(cases)} after {spent:.0f} s, about {left:.0f} s left", file=sys.stderr, flush=True)


def now(device: torch.device = CPU) -> float:
    """Seconds of the clock that times work on a device: of a CPU this process's time, otherwise that of the wall.

    CPU time, so that other jobs on the same cores disturb less; with one thread both are the same. A device with a
    queue is waited for first.
    """
    if device.type == "cpu":
        return time.process_time()
    torch.accelerator.synchronize(device)
    return time.perf_counter()


def interleaved(
    runs: Mapping[str, Run], rounds: int, warm_up: int = 2, clock: Callable[[], float] = now
) -> dict[str, float]:
    """Median seconds of each, by `clock`: every round runs all of them."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for i in range(warm_up + rounds):
        for name, run in runs.items():
            start = clock()
            run()
            if i >= warm_up:
                seconds[name].append(clock() - start)
    return {name: median(times) for name, times in seconds.items()}


def peak_memory(run: Run) -> int:
    """Bytes that `run` adds at its peak to this process's resident memory (Linux). Best in a fresh process."""
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before = _resident("VmRSS")
    run()
    return _resident("VmHWM") - before


def _resident(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field + ":"))
