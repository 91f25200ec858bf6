"""Folders: the files below one, and the examples collected from them, a few of which may be unfit."""

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path, PurePath
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from axial_transformers.data.parsing import say
from axial_transformers.progress import Progress
from axial_transformers.wording import counted

RUN = {"train.json", "metrics.jsonl"}
MAX_NAMED = 5


def files_below(folder: Path) -> tuple[list[Path], str]:
    """Return the files below a folder, sorted by path, and a line that counts what is left out, if anything is.

    That is what is hidden, links to folders, empty folders, runs of `axial train`, and what cannot be read.
    """
    found, left_out = list[Path](), Counter[str]()
    for root, folders, names in os.walk(folder, onerror=lambda _: left_out.update(["unreadable folder"])):
        here = Path(root)
        left_out["empty folder"] += not folders and not names
        if here != folder and set(names) >= RUN:
            left_out["training run"] += 1
            folders.clear()
            continue
        hidden = [name for name in (*folders, *names) if name.startswith(".")]
        links = [name for name in folders if name not in hidden and (here / name).is_symlink()]
        left_out["hidden name"] += len(hidden)
        left_out["linked folder"] += len(links)
        folders[:] = [name for name in folders if name not in (*hidden, *links)]
        files = [here / name for name in names if name not in hidden]
        found += [file for file in files if file.is_file()]
        left_out["broken link"] += sum(file.is_symlink() and not file.exists() for file in files)
    counts = ", ".join(counted(number, kind) for kind, number in left_out.items() if number)
    return sorted(found, key=lambda file: file.relative_to(folder).as_posix()), counts and f"left out: {counts}"


def natural_key(file: PurePath) -> list[str | int]:
    """Return a key that sorts batch_10 after batch_9."""
    return [int(word) if i % 2 else word for i, word in enumerate(re.split(r"(\d+)", file.name))]


class FitError(ValueError):
    """An example has another size than the others, which options of fitting change."""


class Selection(NamedTuple):
    """Files of one split of a folder."""

    root: Path
    chosen: Sequence[Path]
    class_names: tuple[str, ...] | None = None
    classes: Sequence[int] | None = None


class Gathered(NamedTuple):
    """What `gather` has read."""

    parts: list[NDArray[np.integer]]
    """[n, *A, C]."""
    names: list[str]
    """Of each example in the parts."""
    labels: NDArray[np.int64] | None
    class_names: tuple[str, ...] | None
    skipped: tuple[str, ...]
    """A line about each file that was left out."""


def gather(
    selection: Selection,
    read: Callable[[Path], Iterable[tuple[NDArray[np.integer], list[str]]]],
    skip_bad: int | None,
    progress: Progress,
    alike: slice = slice(1, None),
) -> Gathered:
    """Return the examples that `read` makes of files: parts [n, *A, C], each with n suffixes of names.

    At most `skip_bad` files that `read` refuses are left out. The `alike` part of all shapes [n, *A, C] must be equal.
    """
    parts, names, numbers = list[NDArray[np.integer]](), list[str](), list[int]()
    first: tuple[Path, tuple[int, ...]] | None = None
    unfit, faults = list[ValueError](), list[ValueError]()
    for number, file in enumerate(progress(selection.chosen)):
        try:
            found = [*read(file)]
            for part, _ in found:
                first = first or (file, part.shape)
                if part.shape[alike] != first[1][alike]:
                    raise _different(file, part.shape, *first)
        except ValueError as error:
            (unfit if isinstance(error, FitError) else faults).append(error)
            first = None if first and first[0] == file else first
            continue
        for part, suffixes in found:
            parts.append(part)
            names += [file.relative_to(selection.root).as_posix() + suffix for suffix in suffixes]
            numbers += [number] * len(suffixes)
    if len(selection.chosen) == 1 and (unfit or faults):
        raise (unfit or faults)[0]
    skipped = tuple(map(str, faults))
    _leave_out([*map(str, unfit)], skipped, len(names), skip_bad, len(selection.chosen))
    labels = None if selection.classes is None else np.array(selection.classes, np.int64)[numbers]
    return Gathered(parts, names, labels, selection.class_names, skipped)


def _leave_out(unfit: Sequence[str], faults: Sequence[str], left: int, skip_bad: int | None, in_all: int) -> None:
    usual = min(max(5, in_all // 5), (in_all - 1) // 2)
    too_many = len(faults) > (usual if skip_bad is None else skip_bad)
    if unfit:
        raise ValueError(listed([*unfit, *(faults if too_many else ())]))
    if too_many or not left:
        advice = f" (data.skip_bad={len(faults)} would leave out {len(faults)} of {in_all} files)" if left else ""
        raise ValueError(listed(faults) + advice)
    if faults:
        say(f"skipped, {len(faults)} of {in_all} files: {listed(faults)}")


def listed(faults: Sequence[str]) -> str:
    """Return one line about faults, of which the first ones are named."""
    more = [f"and {len(faults) - MAX_NAMED:,} more"] if len(faults) > MAX_NAMED else []
    return "; ".join([*faults[:MAX_NAMED], *more])


def _different(file: Path, shape: tuple[int, ...], first: Path, first_shape: tuple[int, ...]) -> FitError:
    (*_, height, width, _), (*_, first_height, first_width, _) = shape, first_shape
    if (height, width) == (first_height, first_width):
        return FitError(
            f"{file} holds {list(shape[1:])} values where {first} holds {list(first_shape[1:])}: set frames"
        )
    sizes = f"{file} is {width}x{height} pixels where {first} is {first_width}x{first_height}"
    return FitError(f"{sizes}: remove it, or give data.size and data.fit (crop, stretch or tiles)")
