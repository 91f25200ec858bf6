"""Time of small products with two threads beside busy processes, by how long an idle thread spins before it sleeps.

    python benchmarks/threads.py
    python benchmarks/threads.py --busy 0 1 --turns 1000 10000 --seconds 5

Each row is a process of its own: OpenMP reads its variables when torch is loaded. The last line is JSON: microseconds
of a linear layer and a sigmoid, the mean and the median over groups of ten.
"""

import json
import os
import subprocess
import sys
from itertools import product
from statistics import mean, median

import torch

from command_line import run_command
from timing import rows_of

MEASURE = """
import json, sys, time, torch
threads, seconds = int(sys.argv[1]), float(sys.argv[2])
torch.set_num_threads(threads)
x, weight = torch.linspace(-1, 1, 512 * 128).view(512, 128), torch.linspace(-1, 1, 128 * 128).view(128, 128)
groups, end = [], time.monotonic() + seconds
while not groups or time.monotonic() < end:
    start = time.perf_counter()
    for _ in range(10):
        torch.nn.functional.linear(x, weight).sigmoid()
    groups.append((time.perf_counter() - start) / 10)
print(json.dumps(groups[1:] or groups))
"""
BUSY = "while True: pass"


def main(
    busy: tuple[int, ...] = (0, 1), turns: tuple[int, ...] = (0, 300, 1000, 3000, 10000), seconds: float = 3.0
) -> None:
    """Times one thread, two as OpenMP is set by default, and two with each number of turns."""
    rows = []
    settings = [(1, {}), (2, {}), *((2, {"GOMP_SPINCOUNT": str(count)}) for count in turns)]
    for others, (threads, variables) in rows_of([*product(busy, settings)]):
        found = measure(others, threads, variables, seconds)
        rows.append({"busy": others, "threads": threads, **variables, **found})
        print(json.dumps(rows[-1]), flush=True)
    print(json.dumps({"torch": torch.__version__, "cores": os.cpu_count(), "load": os.getloadavg()[0], "rows": rows}))


def measure(others: int, threads: int, variables: dict[str, str], seconds: float) -> dict[str, float]:
    """Microseconds of both operations, beside so many busy processes."""
    beside = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(others)]
    try:
        command = [sys.executable, "-c", MEASURE, str(threads), str(seconds)]
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_"))}
        ran = subprocess.run(command, env=kept | variables, capture_output=True, text=True, check=True)
    finally:
        for process in beside:
            process.kill()
            process.wait()
    groups = [1e6 * group for group in json.loads(ran.stdout)]
    return {"mean": round(mean(groups)), "median": round(median(groups))}


if __name__ == "__main__":
    run_command(main)
