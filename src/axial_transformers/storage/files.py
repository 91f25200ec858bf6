"""Files and folders that appear whole or not at all: written aside, synchronised to disk, renamed into place."""

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


def require_inside(path: Path, folder: Path) -> Path:
    """The same path, which lies in the folder also when symbolic links are followed.

    Raises:
        ValueError: it is a link out of the folder.
    """
    if not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder)):
        raise ValueError(f"{path} is a link out of {folder}: if you trust it, put what it leads to in its place")
    return path


@contextmanager
def errors_name(path: str | Path) -> Iterator[None]:
    """Adds the path to an OSError that names no file, such as that of a full disk."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = str(path)
        raise


@contextmanager
def written_whole(path: str | Path) -> Iterator[Path]:
    """Yields a temporary path beside `path`, for a file that replaces `path` on success and is removed on any error.

    The file's content and its entry in the folder are on disk when the block ends.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    # The suffix is kept, since libraries choose a file's format by it.
    aside = path.with_name(f".{path.stem}.{os.getpid()}.part{path.suffix}")
    try:
        with errors_name(path):
            yield aside
            _synchronise(aside)
            aside.replace(path)
            _synchronise(path.parent)
    finally:
        aside.unlink(missing_ok=True)


@contextmanager
def folder_written_whole(path: str | Path, replace: bool = False) -> Iterator[Path]:
    """As `written_whole`, for a folder that does not exist yet or is empty, or else is replaced with all that it holds.

    A process that is killed between the two renames of a replacement leaves the former folder in one beside it, whose
    name ends in .part.

    Raises:
        FileExistsError: `path` exists and is not empty.
    """
    path = Path(path)
    if path.exists() and not replace and (not path.is_dir() or any(path.iterdir())):
        raise FileExistsError(f"{path} exists already: give another path, or remove it first")
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = tempfile.TemporaryDirectory(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    with errors_name(path), beside as place:
        aside = Path(place) / path.name  # unlike `place`, it has the mode of new folders
        aside.mkdir()
        yield aside
        for file in aside.rglob("*"):
            if file.is_file():  # some libraries create files that only their owner may read
                file.chmod(aside.stat().st_mode & 0o666)
            _synchronise(file)
        _synchronise(aside)
        former = Path(place) / "former"  # removed with `place`
        if replace and path.exists():
            path.replace(former)
        try:
            aside.replace(path)
        except OSError:
            if former.exists():
                former.replace(path)
            raise
        _synchronise(path.parent)
