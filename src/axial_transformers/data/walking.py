"""Files of a folder and of the folders below it."""

import os
import warnings
from pathlib import Path

from axial_transformers.progress import rank

RUN = {"train.json", "metrics.jsonl"}
"""Files of every run of `axial train`."""


def files_below(folder: Path) -> list[Path]:
    """All files below a folder, in the order of their paths, also those behind links, unless these are read anyway.

    Runs of `axial train` below it are left out.

    Warns:
        UserWarning: a run; a link that is not followed, or a folder that cannot be read.
    """
    found, roots = list[Path](), [folder.resolve()]
    for place, folders, names in os.walk(folder, onerror=_say_unread, followlinks=True):
        here = Path(place)
        if here != folder and set(names) >= RUN:
            folders.clear()
            _say(f"{here} is a run of axial train, whose pictures are no data")
            continue
        folders.sort()
        for name in [name for name in folders if (here / name).is_symlink()]:
            target = (here / name).resolve()
            if roots[0].is_relative_to(target) or any(_is_read_below(root, target) for root in roots):
                folders.remove(name)
                _say(f"{here / name} is a link to {target}, which is read already: it is not followed")
            else:
                roots.append(target)
        for file in (here / name for name in names):
            if file.is_file():
                found.append(file)
            elif file.is_symlink():
                _say(f"{file} is a link to nothing that can be read")
    return sorted(found, key=lambda file: file.relative_to(folder).as_posix())


def is_hidden(path: Path) -> bool:
    """Tests for a name in a path that begins with a dot."""
    return any(part.startswith(".") for part in path.parts)


def _is_read_below(root: Path, target: Path) -> bool:
    return target.is_relative_to(root) and not is_hidden(target.relative_to(root))


def _say_unread(error: OSError) -> None:
    _say(f"{error.filename} cannot be read ({error.strerror})")


def _say(fault: str) -> None:
    if rank() == 0:  # of the processes that torchrun started, one speaks
        warnings.warn(f"skipped: {fault}", stacklevel=3)
