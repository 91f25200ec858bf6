"""Folders that one process at a time writes to: of runs, whose holder others are told, and of the cache."""

import json
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from filelock import FileLock, Timeout

from axial_transformers.storage.files import written_whole
from axial_transformers.storage.typed_json import from_json, read_object, to_json

LOCK, HOLDER = ".lock", ".holder.json"
"""Files in the folder: what the system locks, and who has it locked."""
GRACE = 10.0
"""Seconds for which the lock of a process that has ended may be held still, by workers that it leaves behind."""


@dataclass(frozen=True, kw_only=True)
class Holder:
    """The process that holds a folder."""

    pid: int
    host: str
    since: str

    def __post_init__(self) -> None:
        if not (self.host + self.since).isprintable() or len(self.host + self.since) > 200:
            raise ValueError("host and since are not what a process writes")

    @classmethod
    def this(cls) -> "Holder":
        """This process, from now on."""
        return cls(pid=os.getpid(), host=socket.gethostname(), since=f"{datetime.now().astimezone():%Y-%m-%d %H:%M:%S}")

    @property
    def alive(self) -> bool:
        """Whether the process may still run: always, as far as can be seen from another host."""
        if self.host != socket.gethostname() or os.name != "posix":
            return True
        try:
            os.kill(self.pid, 0)
        except PermissionError:
            return True
        except (ProcessLookupError, OverflowError):
            return False
        return True


class FolderInUse(OSError):
    """Another process holds the folder; the message says which, where and since when."""


@contextmanager
def folder_held(folder: Path) -> Iterator[None]:
    """Holds an existing folder, for this process alone, until the block ends or the process does.

    The system releases the lock of a process that has ended in whatever way, so that none has to be removed by hand.

    Raises:
        FolderInUse: another process holds it, or this one already.
        OSError: the lock could not be written.
    """
    before = _holder(folder)
    lock = FileLock(folder / LOCK)
    try:
        lock.acquire(timeout=0 if before and before.alive else GRACE)
    except Timeout:
        now = _holder(folder)
        who = f"process {now.pid} on {now.host} since {now.since}" if now else "another process"
        raise FolderInUse(f"{folder} is in use by {who}: wait until it ends, or end it") from None
    try:
        with written_whole(folder / HOLDER) as aside:
            aside.write_text(json.dumps(to_json(Holder.this())) + "\n", encoding="utf-8")
        yield
    finally:
        # The other file stays: were it removed, one process could lock it and another its successor.
        with suppress(OSError):
            (folder / HOLDER).unlink()
        lock.release()


def holder(folder: Path) -> Holder | None:
    """The process that holds the folder now; None where there is none, whatever a killed one has left behind."""
    said = _holder(folder)
    if said is None or not said.alive:
        return None
    lock = FileLock(folder / LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return said
    lock.release()  # the number of the killed process is another's now
    return None


def _holder(folder: Path) -> Holder | None:
    """The process that says to hold the folder, or held it when it was killed."""
    with suppress(OSError, ValueError):
        return from_json(Holder, read_object(folder / HOLDER, "a holder"), HOLDER)
    return None


@contextmanager
def only_one_process(path: Path) -> Iterator[None]:
    """Admits one process at a time to what lies at a path; those that waited find what the first has made.

    What killed processes left half-written in the folder `path` is removed.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_name(f"{path.name}.lock")):
        for stray in path.glob(".*.part*"):
            if stray.is_dir() and not stray.is_symlink():
                shutil.rmtree(stray)
            else:
                stray.unlink()
        yield
