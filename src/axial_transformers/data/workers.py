"""Work that other processes do ahead of time, in an order that does not depend on how many they are."""

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
    """`work(key)` of each key, in the order of the keys, computed by worker processes a few keys ahead.

    Args:
        work: a pure function that can be sent to another process, as its result can.
        keys: taken one after the other, here, as they are needed; there may be no end of them.
        workers: how many processes; 0: each result is computed here when it is asked for.

    Raises:
        ValueError: `work` did.
        OSError: `work` did, or a worker was killed.
    """
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
        generator=torch.Generator(),  # the loader draws a number, which must not be one of the run's
    )
    with deaths_of_workers():
        for result in loader:
            if isinstance(result, Exception):
                raise result
            yield result


@contextmanager
def deaths_of_workers() -> Iterator[None]:
    """Says in one line that a worker was killed. Torch's signal handler raises that wherever this process is.

    Raises:
        ChildProcessError: an OSError; a worker was killed.
    """
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
    """What the parent handles, it handles for its workers, though a terminal sends it to all of them."""
    for each in signals:
        signal.signal(each, signal.SIG_IGN)


class _Work(Dataset[Any], Generic[Key, Result]):
    """Errors are results too: the loader would wrap them into pages of text."""

    def __init__(self, work: Callable[[Key], Result]) -> None:
        self.work = work

    def __getitem__(self, key: Key) -> Result | Exception:
        try:
            return self.work(key)
        except (ValueError, OSError) as error:
            return error


def _as_it_is(result: Result) -> Result:
    return result
