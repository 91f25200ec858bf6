"""Locks of folders that one process at a time writes to."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

LOCK = ".lock"


class FolderInUse(OSError):
    """Another process has locked the folder."""


@contextmanager
def folder_held(folder: Path) -> Iterator[None]:
    """Lock an existing folder until the block or the process ends."""
    lock = FileLock(folder / LOCK)  # which stays: removed, one process could lock it and another its successor
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise FolderInUse(f"{folder} is in use by another process: wait until it ends, or end it") from None
    try:
        yield
    finally:
        lock.release()
