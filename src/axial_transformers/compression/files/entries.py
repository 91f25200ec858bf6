"""The description of an archive's files: entries, restored names, and JSON of both."""

import json
import os
import re
import sys
import zlib
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from math import prod
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from axial_transformers.compression.container import DamagedError
from axial_transformers.compression.files.source import Tiles, join_tiles, tile_grid
from axial_transformers.models import AxialTransformerConfig

_MAX_NAME = 255

_NOT_ON_WINDOWS = re.compile(
    r'[\x00-\x1f\\:<>"|?*]|[. ](/|$)|(^|/)(con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³])\s*(\.|/|$)', re.IGNORECASE
)

_KINDS = ({"pictures"}, {"videos"}, {"array", "dtype", "shape"}, {"scan"})

_ALWAYS = 1 << 24
"""Bytes."""
_MAX_UNPACKED = 1 << 27
_RATIO = 64
"""Highest compression of a larger one: deflate reaches 1032."""
_MAX_VALUES = 1 << 23
_MAX_VALUES_OF_FRAME = 1 << 20
_VALUES_PER_FILE = 8


@dataclass(frozen=True)
class FileEntry(ABC):
    """The description of one file."""

    AXES: ClassVar[int]
    SUFFIX: ClassVar[str]
    KIND: ClassVar[str]
    REASON: ClassVar[str]

    name: str
    size: tuple[int, ...] | None
    """Sizes of its axes; None if the archive stores the file whole."""

    @classmethod
    @abstractmethod
    def of_file(cls, path: Path, name: str, config: AxialTransformerConfig) -> Self | None:
        """Return the entry of a file, without a size if it is stored whole; None for another kind."""

    @classmethod
    @abstractmethod
    def read(cls, description: Any, channels: int) -> Self:
        """Return the entry from its JSON."""

    @classmethod
    @abstractmethod
    def images_of(cls, files: Sequence[tuple[Path, Self]], config: AxialTransformerConfig) -> Tiles:
        """Return the tiles of all files, each with its entry."""

    @abstractmethod
    def keeps(self, name: str) -> bool:
        """Return True if a file of this name can keep it; not for whole files."""

    @abstractmethod
    def json(self) -> list[Any]:
        """The entry as JSON: [name] of a whole file."""

    @abstractmethod
    def from_values(self, values: NDArray[np.uint8], name: str) -> bytes:
        """Return the content of a file with values [*size, C]."""

    @property
    def restored_as_it_is(self) -> bool:
        return self.size is None or self.keeps(self.name)

    @property
    def restored_as(self) -> str:
        return self.name if self.restored_as_it_is else self.name + self.SUFFIX

    def images(self, config: AxialTransformerConfig) -> int:
        return 0 if self.size is None else prod(tile_grid(self.size, config.shape))


def entries_of(kind: type[FileEntry], description: Any, config: AxialTransformerConfig) -> list[FileEntry]:
    """Return the checked entries of a description."""
    if not isinstance(description, list) or len(config.shape) != kind.AXES:
        raise DamagedError("the archive's description of its files is damaged")
    entries: list[FileEntry] = [kind.read(file, config.channels) for file in description]
    for entry in entries:
        check_name(entry.name)
    return entries


class Planned(NamedTuple):
    """A file that is to be restored."""

    entry: FileEntry
    name: str


def planned(entries: Sequence[FileEntry], only_as: str | None = None) -> list[Planned]:
    """Return the names under which files are restored, all different."""
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
        hint = f"give a target like x{entry.SUFFIX}"
        raise ValueError(f"{suffix} files do not keep {entry.name!r:.100} without loss: {hint}")
    return [Planned(entry, only_as)]


def restored(
    plan: Sequence[Planned], config: AxialTransformerConfig, images: Iterable[NDArray[np.integer] | None],
    files: Iterable[bytes | None],
) -> Iterator[bytes | None]:  # fmt: skip
    """Yield the content of each planned file; None where a part is missing."""
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
        else:
            yield entry.from_values(join_tiles(np.stack(parts), entry.size)[0].astype(np.uint8), name)
    if any(True for _ in chain(images_left, files_left)):
        raise DamagedError("the archive holds more than it describes")


def check_name(name: str) -> None:
    """Raise DamagedError unless a name stays below the target folder."""
    path = PurePosixPath(name)
    if path.is_absolute() or not path.parts or ".." in path.parts or "\0" in name or str(path) != name:
        raise DamagedError(f"the archive names a file outside of its folder: {name!r:.100}")
    if sys.platform == "win32" and _NOT_ON_WINDOWS.search(name):
        raise DamagedError(f"Windows has no files called {name!r:.100}: decompress the archive on another system")


class Names:
    """The names of an archive's files; DamagedError if one occurs twice, or is also a folder's."""

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
        is_short = len(os.fsencode(name.rpartition("/")[-1])) <= _MAX_NAME
        return is_short and name not in self._taken and not self._is_folder(name)

    def _is_folder(self, name: str) -> bool:
        start = f"{name}/".replace("/", "\0")
        i = bisect_left(self._sorted, start)
        return i < len(self._sorted) and self._sorted[i].startswith(start)


def pack(description: dict[str, Any], contents: int) -> bytes:
    """Return the description as bytes."""
    return _packed(description, b"", lambda packed: unpack(packed, contents))


def unpack(packed: bytes, contents: int) -> dict[str, Any]:
    """Return the description in these bytes."""
    missing = "the archive holds images, but no description of files: use axial.decompress"
    description, rest = _unpacked(packed, min(_MAX_VALUES, _VALUES_PER_FILE * contents + 100), missing)
    if not isinstance(description, dict) or set(description) not in _KINDS or rest:
        raise DamagedError("the archive's description of files is damaged")
    return description


def pack_frame(description: dict[str, Any], content: bytes) -> bytes:
    """Return what the files of a scan hold beside its values: a line of JSON, and bytes."""
    return _packed(description, b"\n" + content, unpack_frame)


def unpack_frame(packed: bytes) -> tuple[Any, bytes]:
    """Invert `pack_frame`."""
    return _unpacked(packed, _MAX_VALUES_OF_FRAME, "what the archive holds beside the values of a scan is damaged")


def _packed(description: Any, content: bytes, unpack: Callable[[bytes], object]) -> bytes:
    text = json.dumps(description, separators=(",", ":")).encode() + content
    for level in (9, 0):  # one that compresses too well is stored as it is
        packed = zlib.compress(text, level)
        try:
            unpack(packed)
            return packed
        except DamagedError as error:
            reason = error
    raise ValueError(f"too many files for one archive, or names that are too long ({reason}): split the folder")


def _unpacked(packed: bytes, most: int, wrong: str) -> tuple[Any, bytes]:
    try:
        decompressor = zlib.decompressobj()
        text = decompressor.decompress(packed, min(_MAX_UNPACKED, max(_ALWAYS, _RATIO * len(packed))))
        if decompressor.unconsumed_tail:
            raise DamagedError(f"the archive's description of files has more than {len(text):,} bytes")
        line, _, content = text.partition(b"\n")
        if _values(line) > most:
            raise DamagedError(f"the archive's description has more than {most:,} values, too many for its files")
        return json.loads(line), content
    except DamagedError:
        raise
    except (zlib.error, ValueError, RecursionError) as error:
        raise DamagedError(wrong) from error


def _values(text: bytes) -> int:
    unescaped = np.frombuffer(text.replace(rb"\\", b"").replace(rb"\"", b""), np.uint8)
    within = np.bitwise_xor.accumulate((unescaped == ord('"')).view(np.uint8))  # 1 within strings
    outside = unescaped[within == 0].tobytes()
    return outside.count(b",") + outside.count(b"[") + 4 * outside.count(b"{")
