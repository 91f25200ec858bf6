"""Folders: the files below one, and the arrays that these hold."""

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path, PurePath
from typing import Any

from axial_transformers.data.errors import WrongSizeError, say
from axial_transformers.progress import Progress
from axial_transformers.wording import counted

RUN = {"train.json", "metrics.jsonl"}
MAX_NAMED = 5


def files_below(folder: Path) -> tuple[list[Path], str]:
    """Return the files below a folder, sorted by path, and a line that counts what is left out, if anything is.

    That is what is hidden, links to folders, empty folders, runs of `axial train`, and what cannot be read.
    """
    files: list[Path] = []
    left_out: Counter[str] = Counter()
    for root, folders, names in os.walk(folder, onerror=lambda _: left_out.update(["unreadable folder"])):
        here = Path(root)
        left_out["empty folder"] += not folders and not names
        if here != folder and set(names) >= RUN:
            left_out["training run"] += 1
            folders.clear()
            continue
        for name in [*folders]:
            is_hidden = name.startswith(".")
            if is_hidden or (here / name).is_symlink():
                left_out["hidden name" if is_hidden else "linked folder"] += 1
                folders.remove(name)
        for name in names:
            file = here / name
            if name.startswith("."):
                left_out["hidden name"] += 1
            elif file.is_file():
                files.append(file)
            elif file.is_symlink():
                left_out["broken link"] += 1
    counts = ", ".join(counted(number, kind) for kind, number in sorted(left_out.items()) if number)
    return sorted(files, key=lambda file: file.relative_to(folder).as_posix()), counts and f"left out: {counts}"


def natural_key(file: PurePath) -> list[str | int]:
    """Return a key that sorts batch_10 after batch_9."""
    return [int(word) if i % 2 else word for i, word in enumerate(re.split(r"(\d+)", file.name))]


def gather(
    root: Path,
    files: Sequence[Path],
    read: Callable[[Path], Iterable[tuple[str, Any]]],
    skip_bad: int | None,
    progress: Progress,
) -> tuple[list[Any], list[str], list[int]]:
    """Return the arrays that `read` makes of files, their names, and the numbers of their files.

    Args:
        root: names are paths below it, with the suffix that `read` gives.
        read: yields arrays, each after a suffix of its name.
        skip_bad: most files to leave out, with a warning; None: see `DataConfig`.

    Raises:
        ValueError: one line about the files that cannot be read, if they are more or all.
    """
    arrays: list[Any] = []
    names: list[str] = []
    owners: list[int] = []
    faults: list[ValueError] = []
    for number, file in enumerate(progress(files)):
        place = file.relative_to(root).as_posix() if file != root else root.resolve().name
        try:
            named_arrays = [*read(file)]
        except WrongSizeError:
            raise
        except ValueError as error:
            faults.append(error)
            continue
        for suffix, array in named_arrays:
            arrays.append(array)
            names.append(place + suffix)
            owners.append(number)
    if not faults:
        if not arrays:
            raise ValueError(f"{root} holds no examples")
        return arrays, names, owners
    if len(files) == 1:
        raise faults[0]
    line = "; ".join(map(str, faults[:MAX_NAMED]))
    if len(faults) > MAX_NAMED:
        line += f"; and {len(faults) - MAX_NAMED:,} more"
    usual = min(max(5, len(files) // 5), (len(files) - 1) // 2)
    if len(faults) > (usual if skip_bad is None else skip_bad) or not arrays:
        advice = f" (data.skip_bad={len(faults)} leaves them out, of {len(files)} files)" if arrays else ""
        raise ValueError(line + advice)
    say(f"left out, {len(faults)} of {len(files)} files: {line}")
    return arrays, names, owners
