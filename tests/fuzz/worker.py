"""A process that parses inputs within bounds of memory and time, and is forked again when it dies."""

import errno
import faulthandler
import gc
import multiprocessing
import os
import resource
import signal
import time
import traceback
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

SECONDS, WALL_SECONDS, MEMORY = 10.0, 60.0, 1 << 30
"""Bounds of one input: seconds of CPU time, seconds, and bytes beyond what the process has."""


class Outcome(NamedTuple):
    kind: str
    """ok, refused (a ValueError or OSError of one line), untyped (another error), memory, hang or crash."""
    where: str = ""
    """Type of the error, and the innermost line of the package that it went through."""
    result: Any = None


class Worker:
    """Calls `parse` in a forked process."""

    def __init__(self, parse: Callable[[str, bytes], Any]) -> None:
        self._parse, self._process = parse, None

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()

    def parse(self, name: str, content: bytes) -> Outcome:
        if self._process is None or not self._process.is_alive():
            context = multiprocessing.get_context("fork")
            self._pipe, theirs = context.Pipe()
            self._process = context.Process(target=_work, args=(self._parse, theirs), daemon=True)
            self._process.start()
            theirs.close()
        try:
            self._pipe.send((name, content))
            if self._pipe.poll(WALL_SECONDS):
                return self._pipe.recv()
            self._process.kill()
        except (EOFError, ConnectionError):
            pass
        self._process.join()
        number = -(self._process.exitcode or 0)
        of_time = number in (signal.SIGXCPU, signal.SIGKILL)
        return Outcome("hang" if of_time else "crash", signal.Signals(number).name if number > 0 else str(-number))


def _work(parse: Callable[[str, bytes], Any], pipe: Connection) -> None:
    warnings.simplefilter("ignore")
    faulthandler.disable()  # pytest has enabled it
    gc.freeze()  # else a collection copies the whole memory of the suite, which takes longer than an input may
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)  # libraries in C complain there
    while True:
        name, content = pipe.recv()
        _limit()
        outcome = _outcome(parse, name, content)
        _limit()  # room to answer
        pipe.send(outcome)


def _limit() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    for kind, most in (
        (resource.RLIMIT_AS, pages * resource.getpagesize() + MEMORY),
        (resource.RLIMIT_CPU, int(time.process_time() + SECONDS) + 1),
    ):
        resource.setrlimit(kind, (most, resource.getrlimit(kind)[1]))


def _outcome(parse: Callable[[str, bytes], Any], name: str, content: bytes) -> Outcome:
    try:
        return Outcome("ok", result=parse(name, content))
    except BaseException as error:
        line = str(error)
        typed = isinstance(error, (ValueError, OSError)) and line.strip() and len(line.splitlines()) == 1
        kind = "memory" if _lacks_memory(error) else "refused" if typed else "untyped"
        frames = [
            frame for frame in traceback.extract_tb(error.__traceback__) if "axial_transformers" in frame.filename
        ]
        place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "?"
        return Outcome(kind, f"{type(error).__name__} at {place}: {line[:200]}")


def _lacks_memory(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM:
            return True
        if "allocate memory" in str(error)[:1000]:
            return True
        error = error.__cause__ or error.__context__
    return False
