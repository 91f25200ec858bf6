"""Prefetching by threads, in an order that does not depend on their number."""

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

Key = TypeVar("Key")
Result = TypeVar("Result")

AHEAD = 2
"""Results that each thread may have ready."""


def ahead(work: Callable[[Key], Result], keys: Iterable[Key], workers: int) -> Generator[Result, None, None]:
    """Yield `work(key)` of each key in order, prefetched by so many threads (0: by the caller's)."""
    if not workers:
        yield from map(work, keys)
        return
    left = iter(keys)
    threads = ThreadPoolExecutor(workers)
    try:
        begun = deque(threads.submit(work, key) for key in islice(left, AHEAD * workers))
        while begun:
            result = begun.popleft().result()
            begun.extend(threads.submit(work, key) for key in islice(left, 1))
            yield result
    finally:
        threads.shutdown(cancel_futures=True)
