"""Examples collected from many files."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from axial_transformers.data.examples import Examples, GrowingArray
from axial_transformers.progress import Progress


def gather(
    root: Path,
    files: Sequence[Path],
    read: Callable[[Path], Iterable[tuple[NDArray[np.uint8], list[str]]]],
    labels: Sequence[int] | None,
    class_names: tuple[str, ...] | None,
    uint16: bool,
    progress: Progress,
) -> Examples:
    """What `read` makes of each file: parts [n, *A, C], and n places that end their names, which begin below `root`.

    Raises:
        ValueError: examples of different shapes.
    """
    stack, names, repeats = GrowingArray(), list[str](), list[int]()
    for file in progress(files):
        count = len(names)
        for examples, places in read(file):
            if stack.shape not in (None, examples.shape[1:]):
                raise _different(file, examples.shape[1:], files[0], stack.shape)
            stack.add(examples)
            names += [file.relative_to(root).as_posix() + place for place in places]
        repeats.append(len(names) - count)
    return Examples(
        values=stack.values(),
        names=names,
        labels=None if labels is None else np.repeat(np.asarray(labels, np.int64), repeats),
        class_names=class_names,
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
