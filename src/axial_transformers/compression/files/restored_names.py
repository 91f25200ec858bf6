"""Names under which the pictures of an archive are written: their own, or with .png appended."""

import os
import re
import sys
from bisect import bisect_left
from collections import Counter
from collections.abc import Container, Sequence
from itertools import count
from pathlib import PurePosixPath

from axial_transformers.compression.errors import DamagedError

_LONGEST = 255
"""Number of bytes of the longest name that the usual file systems take."""

_NOT_ON_WINDOWS = re.compile(
    r'[\x00-\x1f\\:<>"|?*]|[. ](/|$)|(^|/)(con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³])\s*(\.|/|$)', re.IGNORECASE
)


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


def restored_names(names: Sequence[str], keeps: Sequence[bool], suffix: str = ".png") -> list[str]:
    """Names, all different, under which pictures or videos are written.

    Args:
        names: the names that the archive gives them.
        keeps: whether each is written under its own name. If not, the suffix is appended, and a number before it where
            that is the name of another one; a name that becomes too long is cut.

    Raises:
        DamagedError: a name that occurs twice, or is that of a folder of other files, too.
    """
    taken, folders = set(names), _Folders(names)
    if len(taken) < len(names):
        twice = Counter(names).most_common(1)[0][0]
        raise DamagedError(f"the archive names {twice!r:.100} twice")
    for name in names:
        if name in folders:
            raise DamagedError(f"the archive names {name!r:.100} as a file and as a folder")
    return [name if keep else _free(name, suffix, taken, folders) for name, keep in zip(names, keeps, strict=True)]


def _free(name: str, kind: str, taken: set[str], folders: Container[str]) -> str:
    """A name with the suffix of its kind appended that is not taken yet; it is taken then."""
    for i in count(1):
        suffix = kind if i == 1 else f".{i}{kind}"
        folder, slash, last = name.rpartition("/")
        while len(os.fsencode(last + suffix)) > _LONGEST:
            last = last[:-1]
        found = f"{folder}{slash}{last}{suffix}"
        if found not in taken and found not in folders:
            taken.add(found)
            return found
    raise AssertionError


class _Folders:
    """The folders in which the files of the given names lie."""

    def __init__(self, names: Sequence[str]) -> None:
        # The separator becomes the lowest character, so that a folder's files follow it in sorted order.
        self._sorted = sorted(name.replace("/", "\0") for name in names)

    def __contains__(self, name: object) -> bool:
        start = f"{name}/".replace("/", "\0")
        i = bisect_left(self._sorted, start)
        return i < len(self._sorted) and self._sorted[i].startswith(start)
