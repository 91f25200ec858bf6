"""Files and folders that appear whole or not at all."""

import errno
import os
import secrets
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_KEPT = 40


def _synchronise(path: Path) -> None:
    on_windows = sys.platform == "win32"
    is_folder = path.is_dir()
    if on_windows and is_folder:
        return
    descriptor = os.open(path, os.O_RDWR if on_windows else os.O_RDONLY)  # there, of files that may be written only
    try:
        os.fsync(descriptor)
    except OSError as error:
        if not is_folder or error.errno not in (errno.EINVAL, errno.ENOTSUP):  # of some network file systems
            raise
    finally:
        os.close(descriptor)


def require_inside(path: Path, folder: Path) -> Path:
    """Return the path; ValueError if it leads out of the folder."""
    if not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder)):
        raise ValueError(f"{path} is a link out of {folder}: if you trust it, put what it leads to in its place")
    return path


def source_path(source: str | Path) -> Path:
    """Return the path of a source; ValueError for an empty name, and for a pipe or a device, which may have no end."""
    if not str(source):
        raise ValueError("the name of the source is empty: name a file or a folder (. is the current one)")
    path = Path(source)
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise ValueError(f"{path} is no file and no folder (a pipe or a device may never end): save it as a file first")
    return path


@contextmanager
def errors_name(path: Path, aside: Path | None = None) -> Iterator[None]:
    """Name the path in an OSError that names no file, and in place of `aside` in any error."""
    try:
        yield
    except (OSError, ValueError) as error:
        if aside:
            error.args = tuple(_renamed(text, aside, path) for text in error.args)
        if isinstance(error, OSError) and error.errno is not None:
            error.filename = str(path) if error.filename is None else _renamed(error.filename, aside or path, path)
        raise


def _renamed(text: object, aside: Path, path: Path) -> object:
    return str(text).replace(str(aside), str(path)) if isinstance(text, str | Path) else text


def require_writable(path: str | Path, folder: bool = False) -> None:
    """Raise OSError where `written_whole` or `folder_written_whole` would fail."""
    path = Path(path)
    (_require_no_folder if folder else _require_regular)(path)
    above = next(parent for parent in (*path.absolute().parents, Path("/")) if os.path.lexists(parent))
    if not above.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, f"{above} is no folder", str(path))
    if not os.access(above, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, f"no permission to write into {above}", str(path))


@contextmanager
def written_whole(path: str | Path, replace: bool = True) -> Iterator[Path]:
    """Yield an empty temporary file, which replaces `path` on success.

    File and entry are on disk when the block ends. A link at `path` is replaced itself. Without `replace`, a file that
    is there when the block begins or ends stays, and FileExistsError is raised.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    _require_regular(path, replace)
    # The suffix is kept, since libraries choose a file's format by it; no name has more than 255 bytes.
    suffixes = "".join(path.suffixes[-2:]), path.suffix, ""  # .nii.gz
    suffix = next(kept for kept in suffixes if len(kept) <= 16)
    aside = path.with_name(f".{path.stem[:_KEPT]}.{secrets.token_hex(8)}.part{suffix}")
    with errors_name(path, aside):
        os.close(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))  # follows no link
    try:
        with errors_name(path, aside):
            yield aside
            _synchronise(aside)
            _require_regular(path, replace)  # another process may have written it meanwhile
            aside.replace(path)
            _synchronise(path.parent)
    finally:
        aside.unlink(missing_ok=True)


@contextmanager
def folder_written_whole(path: str | Path, replace: bool = False) -> Iterator[Path]:
    """Do the same for a folder that is missing or empty, or replaced whole.

    A process killed during a replacement leaves the former folder beside it, named .part.
    """
    path = Path(path)
    _require_no_folder(path, replace)
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name[:_KEPT]}.{secrets.token_hex(8)}.part")
    with errors_name(path, beside):
        beside.mkdir()
    aside = beside / path.name
    try:
        with errors_name(path, aside):
            aside.mkdir()
            yield aside
            for file in aside.rglob("*"):
                if file.is_file():  # some libraries create files that only their owner may read
                    file.chmod(aside.stat().st_mode & 0o666)
                _synchronise(file)
            _synchronise(aside)
            _require_no_folder(path, replace)  # another process may have written it meanwhile
            former = beside / "former"
            if replace and path.exists():
                path.replace(former)
            elif path.exists():
                path.rmdir()  # which is empty
            try:
                aside.replace(path)
            except OSError:
                if former.exists():
                    former.replace(path)
                raise
            _synchronise(path.parent)
    finally:
        shutil.rmtree(beside)


def _require_regular(path: Path, replace: bool = True) -> None:
    is_there = os.path.lexists(path)
    if is_there and not (path.is_file() or path.is_symlink()):
        raise FileExistsError(f"{path} exists already, and is no regular file: give another path")
    if is_there and not replace:
        raise _exists(path)


def _require_no_folder(path: Path, replace: bool = False) -> None:
    if path.is_dir() and not path.is_symlink() and (replace or not any(path.iterdir())):
        return
    if os.path.lexists(path):
        raise _exists(path)


def _exists(path: Path) -> FileExistsError:
    return FileExistsError(f"{path} exists already: give another path, or remove it first")


def require_utf8(folder: Path) -> None:
    """Raise ValueError where weights could not be read for a folder's name."""
    try:
        str(folder).encode()
    except UnicodeEncodeError:
        raise ValueError(f"{folder} is no name in UTF-8, without which weights cannot be read: give another") from None
