"""Where things lie that can be made again: indices of shards, copies of what was downloaded."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def cache_folder() -> Path:
    """`axial-transformers` in $XDG_CACHE_HOME, or in ~/.cache; it may not exist yet."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "axial-transformers"


@contextmanager
def only_one_process(path: Path) -> Iterator[None]:
    """Lets one process of this machine at a time into the block: the others, once in, find what the first has made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(f"{path.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
