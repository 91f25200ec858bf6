"""Folders: the files below one, and the examples collected from them, a few of which may be unfit."""

import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path, PurePath
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from axial_transformers.data.examples import Examples, GrowingArray
from axial_transformers.progress import Progress, say

RUN = {"train.json", "metrics.jsonl"}


def files_below(folder: Path) -> list[Path]:
    """Return all files below a folder, sorted by path, without runs of `axial train`; links are followed once."""
    found, roots = list[Path](), [folder.resolve()]
    for root, folders, names in os.walk(folder, onerror=_say_unread, followlinks=True):
        here = Path(root)
        if here != folder and set(names) >= RUN:
            folders.clear()
            say(f"skipped: {here} is a run of axial train, whose pictures are no data")
            continue
        folders.sort()
        for name in [name for name in folders if (here / name).is_symlink()]:
            target = (here / name).resolve()
            if roots[0].is_relative_to(target) or any(_is_read_below(root, target) for root in roots):
                folders.remove(name)
                say(f"skipped: {here / name} is a link to {target}, which is read already: it is not followed")
            else:
                roots.append(target)
        for file in (here / name for name in names):
            if file.is_file():
                found.append(file)
            elif file.is_symlink():
                say(f"skipped: {file} is a link to nothing that can be read")
    return sorted(found, key=lambda file: file.relative_to(folder).as_posix())


def is_hidden(path: Path) -> bool:
    """Return True if a name begins with a dot."""
    return any(part.startswith(".") for part in path.parts)


def _is_read_below(root: Path, target: Path) -> bool:
    return target.is_relative_to(root) and not is_hidden(target.relative_to(root))


def _say_unread(error: OSError) -> None:
    say(f"skipped: {error.filename} cannot be read ({error.strerror})")


def natural_key(file: PurePath) -> list[str | int]:
    """Return a key that sorts batch_10 after batch_9."""
    return [int(word) if i % 2 else word for i, word in enumerate(re.split(r"(\d+)", file.name))]


MAX_NAMED = 20
_FILE = re.compile(r"^.+?\.\w+(?=[\s:])")
"""The file that a fault begins with."""


class FitError(ValueError):
    """An example has another size than the others, which options of fitting change."""


class Selection(NamedTuple):
    """Files of one split of a folder."""

    root: Path
    chosen: Sequence[Path]
    class_names: tuple[str, ...] | None = None
    classes: Sequence[int] | None = None


def gather(
    selection: Selection,
    read: Callable[[Path], Iterable[tuple[NDArray[np.integer], list[str]]]],
    skip_bad: int | None,
    progress: Progress,
) -> Examples:
    """Return the examples that `read` makes of files: parts [n, *A, C], each with n suffixes of names.

    At most `skip_bad` files that `read` refuses are left out.
    """
    stack, names, counts = GrowingArray(), list[str](), list[int]()
    first: tuple[Path, tuple[int, ...]] | None = None
    unfit, faults = list[ValueError](), list[ValueError]()
    for file in progress(selection.chosen):
        before = len(names)
        try:
            for examples, suffixes in read(file):
                first = first or (file, examples.shape[1:])
                if first[1] != examples.shape[1:]:
                    raise _different(file, examples.shape[1:], *first)
                stack.add(examples)
                names += [file.relative_to(selection.root).as_posix() + suffix for suffix in suffixes]
        except ValueError as error:
            (unfit if isinstance(error, FitError) else faults).append(error)
            stack.cut(before)
            del names[before:]
            first = None if first and first[0] == file else first
        counts.append(len(names) - before)
    if len(selection.chosen) == 1 and (unfit or faults):
        raise (unfit or faults)[0]
    skipped = tuple(map(str, faults))
    _leave_out([*map(str, unfit)], skipped, len(names), skip_bad, len(selection.chosen))
    return Examples(
        values=stack.values(),
        names=names,
        labels=None if selection.classes is None else np.repeat(np.array(selection.classes, np.int64), counts),
        class_names=selection.class_names,
        skipped=skipped,
    )


def usually_left_out(count: int) -> int:
    """Return the default limit of files left out."""
    return min(max(5, count // 5), (count - 1) // 2)


def _leave_out(unfit: Sequence[str], faults: Sequence[str], left: int, skip_bad: int | None, in_all: int) -> None:
    too_many = len(faults) > (usually_left_out(in_all) if skip_bad is None else skip_bad)
    if unfit:
        raise ValueError(listed([*unfit, *(faults if too_many else ())]))
    if too_many or not left:
        advice = f" (data.skip_bad={len(faults)} would leave out {len(faults)} of {in_all} files)" if left else ""
        raise ValueError(listed(faults) + advice)
    causes = by_cause(faults)
    for cause in causes[:MAX_NAMED]:
        say(f"skipped: {cause}")
    if len(causes) > MAX_NAMED:
        say(f"skipped: more, {len(faults)} of {in_all} files")


def listed(faults: Sequence[str]) -> str:
    """Return one line about faults: the first 20 causes."""
    if len(faults) == 1:
        return faults[0]
    causes = by_cause(faults)
    more = [f"and {len(causes) - MAX_NAMED} more"] if len(causes) > MAX_NAMED else []
    return f"{len(faults)} files are unfit: {'; '.join([*causes[:MAX_NAMED], *more])}"


def by_cause(faults: Sequence[str]) -> list[str]:
    """Return the first fault of each cause, with two more files of which it is true, and the number of the others."""
    causes, lines = dict[str, list[str]](), list[str]()
    for fault in faults:
        causes.setdefault(_FILE.sub("", fault), []).append(fault)
    for cause, (first, *others) in causes.items():
        names = ", ".join(other.removesuffix(cause) for other in others[:2])
        more = f" and {len(others) - 2:,} more" if len(others) > 2 else ""
        lines.append(first + f" (also {names}{more})" * bool(others))
    return lines


def _different(file: Path, shape: tuple[int, ...], first: Path, first_shape: tuple[int, ...]) -> FitError:
    (*_, height, width, _), (*_, first_height, first_width, _) = shape, first_shape
    if (height, width) == (first_height, first_width):
        return FitError(f"{file} holds {list(shape)} values where {first} holds {list(first_shape)}: set frames")
    sizes = f"{file} is {width}x{height} pixels where {first} is {first_width}x{first_height}"
    return FitError(f"{sizes}: remove it, or give data.size and data.fit (crop, stretch or tiles)")
