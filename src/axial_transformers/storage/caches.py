"""The cache: indices of shards and copies of downloads, all of which can be made again."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock


def cache_folder() -> Path:
    """`axial-transformers` in $XDG_CACHE_HOME, or in ~/.cache; it may not exist yet."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "axial-transformers"


@contextmanager
def only_one_process(path: Path) -> Iterator[None]:
    """Admits one process of this machine at a time to the block; those that waited find what the first has made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_name(f"{path.name}.lock")):
        yield
