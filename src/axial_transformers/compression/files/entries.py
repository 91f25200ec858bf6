"""Files that an archive describes: their entries, the names under which they are restored, and their contents."""

import os
import re
import sys
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from math import prod
from pathlib import PurePosixPath
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from axial_transformers.compression.container import DamagedError
from axial_transformers.compression.files.source import join_tiles, tile_grid
from axial_transformers.models import AxialTransformerConfig

_LONGEST = 255
"""Number of bytes of the longest name that the usual file systems take."""

_NOT_ON_WINDOWS = re.compile(
    r'[\x00-\x1f\\:<>"|?*]|[. ](/|$)|(^|/)(con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³])\s*(\.|/|$)', re.IGNORECASE
)


@dataclass(frozen=True)
class Entry(ABC):
    """The description of one file."""

    AXES: ClassVar[int]
    """Axes of the models that code such files."""
    SUFFIX: ClassVar[str]
    """Appended to the name of a file that is not restored in the format of its name."""

    name: str
    size: tuple[int, ...] | None
    """Sizes of the axes of what it shows; None if the archive holds the file itself."""

    @classmethod
    @abstractmethod
    def read(cls, description: Any) -> Self:
        """The entry of which `json` gave the description.

        Raises:
            DamagedError: there is none.
        """

    @abstractmethod
    def keeps(self, name: str) -> bool:
        """Whether a file of this name can hold it. Not asked of whole files."""

    @abstractmethod
    def json(self) -> list[Any]:
        """The entry as JSON: [name] of a whole file."""

    @abstractmethod
    def from_values(self, values: NDArray[np.uint8], name: str) -> bytes:
        """The file `name` that shows values [*size, C]."""

    def is_modelled(self, channels: int) -> bool:
        """Whether a model of so many channels codes it. Otherwise the archive holds a file."""
        return True

    def from_file(self, content: bytes, name: str) -> bytes:
        """The file `name`, from the file that the archive holds in its place."""
        return content

    @property
    def restored_as_it_is(self) -> bool:
        """True if the file is written under its own name."""
        return self.size is None or self.keeps(self.name)

    @property
    def restored_as(self) -> str:
        """The name under which the file is restored."""
        return self.name if self.restored_as_it_is else self.name + self.SUFFIX

    def images(self, config: AxialTransformerConfig) -> int:
        """Number of the archive's images that are its tiles; 0 if the archive holds a file."""
        modelled = self.size is not None and self.is_modelled(config.channels)
        return prod(tile_grid(self.size, config.shape)) if modelled and self.size else 0


def entries_of(kind: type[Entry], description: Any, config: AxialTransformerConfig) -> list[Entry]:
    """The entries of a description, after it is checked.

    Raises:
        DamagedError: it is damaged, or names files outside of the folder.
    """
    if not isinstance(description, list) or len(config.shape) != kind.AXES:
        raise DamagedError("the archive's description of its files is damaged")
    entries: list[Entry] = [kind.read(file) for file in description]
    for entry in entries:
        check_name(entry.name)
    return entries


class Planned(NamedTuple):
    """A file that is to be restored."""

    entry: Entry
    name: str
    """Its name, which is not always the one that it had."""


def planned(entries: Sequence[Entry], only_as: str | None = None) -> list[Planned]:
    """The names under which files are restored, all different.

    Args:
        only_as: the name under which the only one is restored.

    Raises:
        DamagedError: see `Names`; or a name with its suffix is that of another file or folder, or too long.
        ValueError: a file of the name `only_as` cannot hold it.
    """
    names = Names([entry.name for entry in entries])
    for entry in entries:
        if not (entry.restored_as_it_is or names.has_room_for(entry.restored_as)):
            raise DamagedError(f"the archive names {entry.restored_as!r:.100} twice, or it is too long")
    if only_as is None:
        return [Planned(entry, entry.restored_as) for entry in entries]
    (entry,) = entries
    suffix = PurePosixPath(only_as).suffix
    if entry.size is None and suffix.lower() != PurePosixPath(entry.name).suffix.lower():
        raise ValueError(
            f"the archive holds the file {entry.name!r:.100} as it is: give a target with the same suffix, not {suffix}"
        )
    if entry.size is not None and not entry.keeps(only_as):
        way_out = f"give a target like x{entry.SUFFIX}"
        raise ValueError(f"{suffix} files do not keep {entry.name!r:.100} without loss: {way_out}")
    return [Planned(entry, only_as)]


def restored(
    plan: Sequence[Planned], config: AxialTransformerConfig, images: Iterable[NDArray[np.uint8] | None],
    files: Iterable[bytes | None],
) -> Iterator[bytes | None]:  # fmt: skip
    """The content of each planned file; None where a part is missing (None).

    Args:
        images, files: the archive's, of these files only.

    Raises:
        DamagedError: the entries do not fit the images and files.
    """
    images_left, files_left = iter(images), iter(files)
    for entry, name in plan:
        count = entry.images(config)
        left: Iterator[Any] = images_left if count else files_left
        parts = list(islice(left, min(count or 1, sys.maxsize)))
        if len(parts) < (count or 1):
            raise DamagedError(f"the archive describes more than it holds: {entry.name!r:.100}")
        if any(part is None for part in parts):
            yield None
        elif entry.size is None:
            yield parts[0]
        elif count:
            yield entry.from_values(join_tiles(np.stack(parts), entry.size)[0], name)
        else:
            yield entry.from_file(parts[0], name)
    if any(True for _ in chain(images_left, files_left)):
        raise DamagedError("the archive holds more than it describes")


def check_name(name: str) -> None:
    """Checks that a name from an archive leads to a file below the folder that it is written to.

    Raises:
        DamagedError: it does not, or this system has no such names.
    """
    path = PurePosixPath(name)
    if path.is_absolute() or not path.parts or ".." in path.parts or "\0" in name or str(path) != name:
        raise DamagedError(f"the archive names a file outside of its folder: {name!r:.100}")
    if sys.platform == "win32" and _NOT_ON_WINDOWS.search(name):
        raise DamagedError(f"Windows has no files called {name!r:.100}: decompress the archive on another system")


class Names:
    """The names of the files of an archive.

    Raises:
        DamagedError: one of them occurs twice, or is that of a folder of other files, too.
    """

    def __init__(self, names: Sequence[str]) -> None:
        # The separator becomes the lowest character, so that a folder's files follow it in sorted order.
        self._taken, self._sorted = set(names), sorted(name.replace("/", "\0") for name in names)
        if len(self._taken) < len(names):
            twice = Counter(names).most_common(1)[0][0]
            raise DamagedError(f"the archive names {twice!r:.100} twice")
        for name in names:
            if self._is_folder(name):
                raise DamagedError(f"the archive names {name!r:.100} as a file and as a folder")

    def has_room_for(self, name: str) -> bool:
        """Tests for a name of one more file, short enough for usual file systems."""
        is_short = len(os.fsencode(name.rpartition("/")[-1])) <= _LONGEST
        return is_short and name not in self._taken and not self._is_folder(name)

    def _is_folder(self, name: str) -> bool:
        start = f"{name}/".replace("/", "\0")
        i = bisect_left(self._sorted, start)
        return i < len(self._sorted) and self._sorted[i].startswith(start)
