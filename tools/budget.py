"""Run the tests, and fail if they take more CPU time than their budget.

python tools/budget.py [ARGUMENTS OF PYTEST]

CPU time is that of pytest and of all processes that it starts. It is compared in seconds of the machine where the
budget was set: importing torch, timed before and after the tests, tells how fast this one is. Up to 1.2 times the
budget, the tests run a second time, since machines are shared.
"""

import resource
import statistics
import subprocess
import sys

BUDGET = 360.0
"""Seconds of CPU time for all tests, on the machine of `REFERENCE`."""
REFERENCE = 1.15
"""Seconds that an import of torch took where the budget was set: one core of a Xeon (Sapphire Rapids)."""
SECOND_TRY = 1.2


def time_children(arguments: list[str]) -> tuple[int, float]:
    """Return the status of a command of Python, and the CPU time of all its processes in seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    status = subprocess.run([sys.executable, *arguments], check=False).returncode
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return status, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def fixed_work() -> list[float]:
    """Return the CPU times of some imports of torch: Python, memory and files, as in the tests."""
    return [time_children(["-c", "import torch"])[1] for _ in range(5)]


def run(arguments: list[str]) -> tuple[int, float]:
    """Return the status of the tests, and their CPU time in seconds of the machine of `REFERENCE`."""
    fixed = fixed_work()
    status, taken = time_children(["-m", "pytest", *arguments])
    of_reference = taken * REFERENCE / statistics.median(fixed + fixed_work())
    print(f"CPU time {taken:.0f} s, {of_reference:.0f} s of the machine of the budget, which is {BUDGET:.0f} s")
    return status, of_reference


def main() -> int:
    """Return the status of pytest, or 1 above the budget."""
    status, taken = run(sys.argv[1:])
    if status == 0 and BUDGET < taken <= SECOND_TRY * BUDGET:
        status, taken = run(sys.argv[1:])
    if status == 0 and taken > BUDGET:
        print("The tests take more CPU time than their budget: make them cheaper (pytest --durations=50).")
        return 1
    return status


if __name__ == "__main__":
    raise SystemExit(main())
