"""Examples collected from many files."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from axial_transformers.data.examples import Examples, GrowingArray
from axial_transformers.progress import Progress


class Classes(NamedTuple):
    """Classes of files."""

    names: tuple[str, ...]
    of_files: list[int]
    """The class of each file, a position among the names."""


def gather(
    root: Path,
    files: Sequence[Path],
    read: Callable[[Path], Iterable[tuple[NDArray[np.uint8], list[str]]]],
    classes: Classes | None,
    uint16: bool,
    progress: Progress,
) -> Examples:
    """The examples that `read` makes of files: of each file parts [n, *A, C], with n suffixes of names.

    Names begin with the file's path below `root`; an example has the class of its file.

    Raises:
        ValueError: examples of different shapes.
    """
    stack, names, counts = GrowingArray(), list[str](), list[int]()
    for file in progress(files):
        before = len(names)
        for examples, places in read(file):
            if stack.shape not in (None, examples.shape[1:]):
                raise _different(file, examples.shape[1:], files[0], stack.shape)
            stack.add(examples)
            names += [file.relative_to(root).as_posix() + place for place in places]
        counts.append(len(names) - before)
    return Examples(
        values=stack.values(),
        names=names,
        labels=None if classes is None else np.repeat(np.array(classes.of_files, np.int64), counts),
        class_names=None if classes is None else classes.names,
        uint16=uint16,
    )


def _different(file: Path, shape: tuple[int, ...], first: Path, first_shape: tuple[int, ...]) -> ValueError:
    (*_, height, width, _), (*_, first_height, first_width, _) = shape, first_shape
    if (height, width) == (first_height, first_width):
        return ValueError(f"{file} holds {list(shape)} values where {first} holds {list(first_shape)}: set frames")
    return ValueError(
        f"{file} is {width}x{height} pixels where {first} is {first_width}x{first_height}: remove it,"
        " or give a size and fit=crop, fit=stretch or fit=tiles"
    )
