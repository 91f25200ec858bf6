"""Locks of folders that one process at a time writes to."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

from filelock import FileLock, Timeout

from axial_transformers.storage.files import written_whole

LOCK, HOLDER = ".lock", ".holder"
GRACE = 6.0
"""Seconds: the workers of a killed process keep its lock for up to five."""


class FolderInUse(OSError):
    """Another process has locked the folder."""


@contextmanager
def folder_held(folder: Path) -> Iterator[None]:
    """Lock an existing folder until the block or the process ends."""
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


def _said_by(folder: Path) -> str:
    with suppress(OSError), (folder / HOLDER).open("rb") as file:
        said = file.read(200).decode("utf-8", "replace")
        if said.startswith("process ") and said.isprintable():
            return said
    return "another process"
