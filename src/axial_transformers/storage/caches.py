"""The cache: indices of shards, copies of downloads and compiled code, all of which can be made again."""

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock
from platformdirs import user_cache_path


def cache_folder() -> Path:
    """`axial-transformers` in the system's folder for caches ($XDG_CACHE_HOME or ~/.cache on Linux)."""
    return user_cache_path("axial-transformers", appauthor=False)


def private_folder(path: Path) -> Path:
    """Return a folder that only this user can write to; make it where there is none.

    Raises:
        OSError: it cannot be made or written to, another user owns it, or every user may write to it.
    """
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = path.stat()
    if hasattr(os, "getuid") and found.st_uid != os.getuid():
        raise PermissionError(f"another user owns {path}")
    if hasattr(os, "getuid") and found.st_mode & stat.S_IWOTH:
        raise PermissionError(f"every user may write to {path}")
    if not os.access(path, os.W_OK):
        raise PermissionError(f"{path} cannot be written to")
    return path


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
