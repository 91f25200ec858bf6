"""Folders that one process at a time writes to: of runs, whose holder others are told, and of the cache."""

import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

from filelock import FileLock, Timeout

from axial_transformers.storage.files import written_whole

LOCK, HOLDER = ".lock", ".holder"
"""Files in the folder: what the system locks, and who has it locked."""
GRACE = 6.0
"""Seconds to wait for a lock: the workers of a process that was killed hold it for up to five more."""


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
    lock = FileLock(folder / LOCK)
    try:
        lock.acquire(timeout=GRACE)
    except Timeout:
        raise FolderInUse(f"{folder} is in use by {_said_by(folder)}: wait until it ends, or end it") from None
    try:
        with written_whole(folder / HOLDER) as aside:
            now = datetime.now().astimezone()
            said = f"process {os.getpid()} on {socket.gethostname()} since {now:%Y-%m-%d %H:%M:%S}"
            aside.write_text(said, encoding="utf-8")
        yield
    finally:
        # The other file stays: were it removed, one process could lock it and another its successor.
        with suppress(OSError):
            (folder / HOLDER).unlink()
        lock.release()


def holder(folder: Path) -> str | None:
    """The process that holds the folder now; None where there is none, whatever a killed one has left behind."""
    if not (folder / HOLDER).is_file():
        return None
    lock = FileLock(folder / LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return _said_by(folder)
    lock.release()
    return None


def _said_by(folder: Path) -> str:
    """What the process that holds the folder has written about itself, unless that is damaged."""
    with suppress(OSError), (folder / HOLDER).open("rb") as file:
        said = file.read(200).decode("utf-8", "replace")
        if said.startswith("process ") and said.isprintable():
            return said
    return "another process"


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
