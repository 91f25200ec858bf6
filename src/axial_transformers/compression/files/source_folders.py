"""Files of a folder, or one file, that go into an archive, and the files that are restored from it."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from axial_transformers.compression import container
from axial_transformers.compression.errors import DamagedError

_MOST_OTHER = 1 << 26
_MOST_OTHERS = 1 << 30
_NAMED = 20
"""Number of names that a message lists."""


class Source(NamedTuple):
    """The files that go into an archive."""

    root: Path
    """The folder in which they lie, and below which they are named."""
    files: list[Path]
    left_out: list[str]
    """Names of everything else below that folder, unless one file alone was asked for."""

    def name(self, file: Path) -> str:
        """The name by which the archive knows a file."""
        return file.relative_to(self.root).as_posix()

    def enumeration(self, names: Sequence[str]) -> str:
        """Number, size and the first names of some files: 12, 3,456 bytes: a, b, ..."""
        count, _, first = enumeration(names).partition(":")
        return f"{count}, {sum((self.root / name).stat().st_size for name in names):,} bytes:{first}"


def source(path: Path) -> Source:
    """The files below a folder in their order, or one file."""
    if not path.is_dir():
        return Source(path.parent, [path], [])
    paths = sorted(found for found in path.rglob("*") if found.is_symlink() or not found.is_dir())
    chosen = [found for found in paths if found.is_file() and not found.name.startswith(".")]
    return Source(path, chosen, [found.relative_to(path).as_posix() for found in sorted({*paths} - {*chosen})])


def content(path: Path) -> bytes:
    """A file's bytes.

    Raises:
        ValueError: it is too large for an archive.
    """
    if path.stat().st_size > container.MOST_BYTES:
        raise ValueError(f"{path} is larger than {container.MOST_BYTES:,} bytes: leave it out")
    return path.read_bytes()


def enumeration(names: Sequence[str]) -> str:
    """The number of names, and the first of them: 12: a, b, ..."""
    return f"{len(names):,}: {', '.join(names[:_NAMED])}{', ...' if len(names) > _NAMED else ''}"


class OtherFiles:
    """Files that the model's data are not read from, such as notes.txt, which an archive holds within bounds."""

    def __init__(self) -> None:
        self.names = list[str]()
        self._size, self._too_large = 0, list[str]()

    def keep(self, path: Path, name: str, reason: str) -> None:
        """Counts one more of them.

        Raises:
            ValueError: all of them together are too large.
        """
        self.names.append(name)
        size = path.stat().st_size
        if size > _MOST_OTHER:
            self._too_large.append(str(path) if self._too_large else f"{path} {reason}")
            return
        self._size += size
        if self._size > _MOST_OTHERS:
            raise ValueError(f"{path} {reason}; such files, kept whole, are larger than {_MOST_OTHERS >> 20:,} MiB in"
                             " all: leave some out")  # fmt: skip

    def require_small(self) -> None:
        """Raises ValueError, which names them, where some are too large."""
        if self._too_large:
            first, *more = self._too_large
            rest = f", as are {enumeration(more)}; leave them out" if more else ": leave it out"
            raise ValueError(f"{first}, and is larger than {_MOST_OTHER >> 20} MiB, too large to be kept whole{rest}")


class Parts(NamedTuple):
    """The parts of an archive that a file is made of."""

    of_images: bool
    """Made of images; otherwise of one whole file."""
    number: int


def shared_out(
    wanted: Iterable[tuple[str, Parts]],
    images: Iterable[NDArray[np.uint8] | None],
    files: Iterable[bytes | None],
) -> Iterator[list[Any] | None]:
    """The images or files of each name in turn; None if one of them is missing.

    Args:
        wanted: names, and the parts of each.

    Raises:
        DamagedError: they are not as many as the archive holds.
    """
    images_left, files_left = iter(images), iter(files)
    for name, (of_images, count) in wanted:
        left: Iterator[Any] = images_left if of_images else files_left
        parts = list(islice(left, min(count, sys.maxsize)))
        if len(parts) < count:
            raise DamagedError(f"the archive describes more than it holds: {name!r:.100}")
        yield None if any(part is None for part in parts) else parts
    if any(True for _ in chain(images_left, files_left)):
        raise DamagedError("the archive holds more than it describes")


def write_new(path: Path, content: bytes) -> None:
    """Writes one of the restored files.

    Raises:
        DamagedError: there is one of that name.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file:
            file.write(content)
    except FileExistsError as error:  # file systems that take two names for one
        raise DamagedError(f"the archive names {path.name!r:.100} twice") from error
