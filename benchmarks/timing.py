"""Times of things beside each other in one process, on machines that others use too, and peak memory."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median

Run = Callable[[], object]


def interleaved(runs: Mapping[str, Run], rounds: int, warm_up: int = 2) -> dict[str, float]:
    """Seconds of CPU time each: every round runs all of them, the median over rounds counts.

    CPU time and not the clock's, so that other jobs on the same cores disturb less; with one thread both are the same.
    """
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for i in range(warm_up + rounds):
        for name, run in runs.items():
            start = time.process_time()
            run()
            if i >= warm_up:
                seconds[name].append(time.process_time() - start)
    return {name: median(times) for name, times in seconds.items()}


def peak_memory(run: Run) -> int:
    """Bytes that `run` adds to the resident memory of this process at its peak (Linux). Best in a fresh process."""
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before = _resident("VmRSS")
    run()
    return _resident("VmHWM") - before


def _resident(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field + ":"))
