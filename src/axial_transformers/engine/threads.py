"""Work split over torch's threads."""

import ctypes
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import torch

Work = Callable[[int, int], None]
Item = TypeVar("Item")
Result = TypeVar("Result")


def parallel_ranges(work: Work, count: int) -> None:
    """Call work(first, last) on consecutive parts of range(count), one for each of torch's threads.

    The parts run in torch's own OpenMP threads, if that library can be found, else in a pool of Python's. Such a pool
    competes with torch's threads, which spin for milliseconds after each of torch's operations. Inside `work`, further
    calls have one thread.

    Raises:
        BaseException: the first that `work` raised.
    """
    threads = 1 if getattr(_of_thread, "works", False) else min(torch.get_num_threads(), count)
    if threads <= 1:
        return work(0, count)
    bounds = [count * part // threads for part in range(threads + 1)]

    def work_on(part: int) -> None:
        _of_thread.works = True
        try:
            work(bounds[part], bounds[part + 1])
        finally:
            _of_thread.works = False

    openmp = _openmp()
    if not openmp:
        list(_pool(threads).map(work_on, range(threads)))
        return None
    failures: list[BaseException] = []

    def run(_: object) -> None:
        try:
            for i in range(openmp.omp_get_thread_num(), threads, openmp.omp_get_num_threads()):
                work_on(i)
        except BaseException as failure:  # exceptions cannot leave a callback
            failures.append(failure)

    openmp.GOMP_parallel(_CALLBACK(run), None, threads, 0)
    if failures:
        raise failures[0]
    return None


def parallel_map(function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """Return the result of the function for each item, computed in threads by `parallel_ranges`."""
    results: dict[int, Result] = {}

    def work(first: int, last: int) -> None:
        results.update((i, function(items[i])) for i in range(first, last))

    parallel_ranges(work, len(items))
    return [results[i] for i in range(len(items))]


_of_thread = threading.local()
_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


@cache
def _openmp() -> Any:
    folder = Path(torch.__file__).parent
    libraries = [*folder.glob("lib/libgomp*.so*"), *folder.with_name("torch.libs").glob("libgomp*.so*")]
    return ctypes.CDLL(str(min(libraries))) if libraries else None


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads)
