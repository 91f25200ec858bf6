"""Names under which the pictures of an archive are written: their own, or with .png appended."""

import os
import re
import sys
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
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


class Names:
    """The names of the files of an archive.

    Raises:
        DamagedError: one of them occurs twice, or is that of a folder of other files, too.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._taken, self._folders = set(names), _Folders(names)
        if len(self._taken) < len(names):
            twice = Counter(names).most_common(1)[0][0]
            raise DamagedError(f"the archive names {twice!r:.100} twice")
        for name in names:
            if name in self._folders:
                raise DamagedError(f"the archive names {name!r:.100} as a file and as a folder")

    def has_room_for(self, name: str) -> bool:
        """Tests for a name of one more file, short enough for usual file systems."""
        is_short = len(os.fsencode(name.rpartition("/")[-1])) <= _LONGEST
        return is_short and name not in self._taken and name not in self._folders


def restored_names(names: Sequence[str], keeps: Sequence[bool], suffix: str = ".png") -> list[str]:
    """Names, all different, under which pictures or videos are written.

    Args:
        names: the names that the archive gives them.
        keeps: whether each is written under its own name. If not, the suffix is appended.

    Raises:
        DamagedError: see `Names`; or a name with its suffix is that of another file or folder, or too long.
    """
    known = Names(names)
    restored = [name if keep else name + suffix for name, keep in zip(names, keeps, strict=True)]
    for name, keep in zip(restored, keeps):
        if not keep and not known.has_room_for(name):
            raise DamagedError(f"the archive names {name!r:.100} twice, or it is too long")
    return restored


class _Folders:
    """The folders in which the files of the given names lie."""

    def __init__(self, names: Sequence[str]) -> None:
        # The separator becomes the lowest character, so that a folder's files follow it in sorted order.
        self._sorted = sorted(name.replace("/", "\0") for name in names)

    def __contains__(self, name: object) -> bool:
        start = f"{name}/".replace("/", "\0")
        i = bisect_left(self._sorted, start)
        return i < len(self._sorted) and self._sorted[i].startswith(start)
