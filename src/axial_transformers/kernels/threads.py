"""Compiled kernels over torch's own threads."""

import ctypes
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import torch

Parts = Callable[[int, int], None]
Item = TypeVar("Item")
Result = TypeVar("Result")


def over_threads(work: Parts, count: int) -> None:
    """Calls work(first, last) on consecutive parts of range(count), as many as torch has threads.

    They run in torch's own team of threads (OpenMP) where that can be found, elsewhere in a team of their own, which
    competes with torch's: that one goes on spinning for milliseconds after each of torch's operations.
    """
    threads = min(torch.get_num_threads(), count)
    if threads <= 1:
        return work(0, count)
    bounds = [count * part // threads for part in range(threads + 1)]
    team = _team()
    if team is None:
        list(_own_team(threads).map(work, bounds[:-1], bounds[1:]))
        return None
    failures: list[BaseException] = []

    def part(_: object) -> None:
        try:
            for i in range(team.omp_get_thread_num(), threads, team.omp_get_num_threads()):
                work(bounds[i], bounds[i + 1])
        except BaseException as failure:  # it could not leave a callback otherwise
            failures.append(failure)

    team.GOMP_parallel(_CALLBACK(part), None, threads, 0)
    if failures:
        raise failures[0]
    return None


def mapped(function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """The function's result of each item, computed as `over_threads` does."""
    results = dict[int, Result]()

    def some(first: int, last: int) -> None:
        results.update((i, function(items[i])) for i in range(first, last))

    over_threads(some, len(items))
    return [results[i] for i in range(len(items))]


_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


@cache
def _team() -> Any:
    """The OpenMP library that torch brings and has loaded; None on systems where it has another."""
    folder = Path(torch.__file__).parent
    found = sorted([*folder.glob("lib/libgomp*.so*"), *folder.with_name("torch.libs").glob("libgomp*.so*")])
    return ctypes.CDLL(str(found[0])) if found else None


@cache
def _own_team(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads)
