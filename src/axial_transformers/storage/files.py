"""Outputs appear whole or not at all: written aside, synchronised to disk, renamed into place. No link leads astray."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def _synchronise(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def inside(path: Path, folder: Path) -> Path:
    """The path, which is in the folder also when links are followed.

    Raises:
        ValueError: it is a link out of the folder.
    """
    if not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder)):
        raise ValueError(f"{path} is a link out of {folder}: if you trust it, put what it leads to in its place")
    return path


@contextmanager
def naming(path: str | Path) -> Iterator[None]:
    """Has an OSError that names no file, as that of a full disk, name this one."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = str(path)
        raise


@contextmanager
def written_whole(path: str | Path) -> Iterator[Path]:
    """Yields a temporary path beside `path`; on success it takes the place of `path`, on any error it vanishes.

    The file's bytes and its folder's entry are on disk when the block ends.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    # The suffix stays, since libraries choose a file's format by it.
    aside = path.with_name(f".{path.stem}.{os.getpid()}.part{path.suffix}")
    try:
        with naming(path):
            yield aside
            _synchronise(aside)
            aside.replace(path)
            _synchronise(path.parent)
    finally:
        aside.unlink(missing_ok=True)


@contextmanager
def folder_written_whole(path: str | Path) -> Iterator[Path]:
    """Like `written_whole`, for a folder that does not exist yet (or is empty).

    Raises:
        FileExistsError: `path` exists and holds something.
    """
    path = Path(path)
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise FileExistsError(f"{path} exists already: give another path, or remove it first")
    path.parent.mkdir(parents=True, exist_ok=True)
    with naming(path), tempfile.TemporaryDirectory(prefix=f".{path.name}.", suffix=".part", dir=path.parent) as place:
        aside = Path(place) / path.name  # unlike `place`, of the mode that new folders have
        aside.mkdir()
        yield aside
        for file in aside.rglob("*"):
            if file.is_file():  # some libraries make files that only their owner may read
                file.chmod(aside.stat().st_mode & 0o666)
            _synchronise(file)
        _synchronise(aside)
        aside.replace(path)
        _synchronise(path.parent)
