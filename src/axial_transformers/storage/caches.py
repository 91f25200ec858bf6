"""The cache: indices of shards and copies of downloads, all of which can be made again."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock
from platformdirs import user_cache_path


def cache_folder() -> Path:
    """`axial-transformers` in the system's folder for caches ($XDG_CACHE_HOME or ~/.cache on Linux)."""
    return user_cache_path("axial-transformers", appauthor=False)


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
