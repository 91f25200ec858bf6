"""Run the tests, and fail if they take more CPU time than their budget.

python tools/budget.py [ARGUMENTS OF PYTEST]

CPU time is that of pytest and of all processes that it starts. It is compared in seconds of the machine where the
budget was set: a fixed piece of work, timed three times, tells how fast this one is. Up to 1.2 times the budget, the
tests run a second time, since machines are shared.
"""

import resource
import subprocess
import sys
import time

import numpy as np

BUDGET = 360.0
"""Seconds of CPU time for all tests, on the machine of `REFERENCE`."""
REFERENCE = 0.3
"""Seconds that the fixed work took where the budget was set: one core of a Xeon (Sapphire Rapids)."""
SECOND_TRY = 1.2


def fixed_work() -> float:
    """Return the CPU time of some products of matrices and of a loop in Python."""
    began, a = time.process_time(), np.ones((400, 400), np.float32)
    for _ in range(100):
        a = a @ a / 400
    total = 0
    for i in range(4_000_000):
        total += i & 7
    return time.process_time() - began


def run(arguments: list[str], speed: float) -> tuple[int, float]:
    """Return the status of the tests, and their CPU time in seconds of the machine of `REFERENCE`."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    status = subprocess.run([sys.executable, "-m", "pytest", *arguments], check=False).returncode
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    taken = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"CPU time {taken:.0f} s, {taken / speed:.0f} s of the machine of the budget, which is {BUDGET:.0f} s")
    return status, taken / speed


def main() -> int:
    """Return the status of pytest, or 1 above the budget."""
    speed = min(fixed_work() for _ in range(3)) / REFERENCE
    status, taken = run(sys.argv[1:], speed)
    if status == 0 and BUDGET < taken <= SECOND_TRY * BUDGET:
        status, taken = run(sys.argv[1:], speed)
    if status == 0 and taken > BUDGET:
        print("The tests take more CPU time than their budget: make them cheaper (pytest --durations=50).")
        return 1
    return status


if __name__ == "__main__":
    raise SystemExit(main())
