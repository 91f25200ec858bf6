"""Prefetching by worker processes, in an order that does not depend on their number."""

import gc
import signal
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Generic, TypeVar

import torch
from torch.utils.data import DataLoader, Dataset

Key = TypeVar("Key")
Result = TypeVar("Result")


def ahead(work: Callable[[Key], Result], keys: Iterable[Key], workers: int) -> Generator[Result, None, None]:
    """Yield `work(key)` of each key in order, prefetched by worker processes (0: in this process)."""
    if not workers:
        yield from map(work, keys)
        return
    loader = DataLoader(
        _Work(work),
        sampler=keys,
        batch_size=None,
        num_workers=workers,
        collate_fn=_as_it_is,
        worker_init_fn=partial(_ignore, [each for each in _SIGNALS if signal.getsignal(each) != signal.SIG_DFL]),
        generator=torch.Generator(),  # the loader takes a number, which must not be one of the run's
    )
    with deaths_of_workers():
        for result in _started(loader):
            if isinstance(result, Exception):
                raise result
            yield result


def _started(loader: "DataLoader[Any]") -> Iterator[Any]:
    """Freeze garbage first: a forked process that collects PyAV's waits for ever."""
    gc.collect()
    gc.freeze()
    try:
        return iter(loader)
    finally:
        gc.unfreeze()


@contextmanager
def deaths_of_workers() -> Iterator[None]:
    """Make the error about a killed worker one line; torch raises it anywhere."""
    try:
        yield
    except RuntimeError as error:
        if "DataLoader worker" not in str(error):
            raise
        reason = str(error).splitlines()[0].removeprefix("DataLoader worker ").rstrip(" .")
        raise ChildProcessError(
            f"a process that prepares examples died: {reason}; if memory ran out, take fewer workers"
        ) from error


_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def _ignore(signals: list[signal.Signals], worker: int) -> None:
    """A terminal sends signals to all; only the parent handles them."""
    for each in signals:
        signal.signal(each, signal.SIG_IGN)


class _Work(Dataset[Any], Generic[Key, Result]):
    """Work that returns errors: the loader would make pages of text of them."""

    def __init__(self, work: Callable[[Key], Result]) -> None:
        self.work = work

    def __getitem__(self, key: Key) -> Result | Exception:
        try:
            return self.work(key)
        except (ValueError, OSError) as error:
            return error


def _as_it_is(result: Result) -> Result:
    return result
