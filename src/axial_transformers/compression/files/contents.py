"""Contents of the archive of a folder or a file."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from axial_transformers.compression.archive_writer import File
from axial_transformers.likelihood.evaluation import Images

OtherSizes = Literal["refuse", "tile"]
"""Treatment of images of another size than the model's: an error, or tiles of the model's size with repeated edges."""


@dataclass(frozen=True)
class Contents:
    """Images of the model's size, and everything else that is needed to write the source's files again."""

    images: Images
    """[N, *A, C], uint8; read when they are asked for."""
    description: dict[str, Any]
    """JSON that describes the files."""
    files: list[File] = field(default_factory=list)
    """Files that are stored whole."""
    left_out: list[str] = field(default_factory=list)
    """Names of the parts of the source that are not stored."""
    as_png: list[str] = field(default_factory=list)
    """Names of the pictures of the source that are stored as PNG files, not by the model."""
    whole: list[str] = field(default_factory=list)
    """Names of the files of the source that are stored byte for byte, not by the model."""
    others: list[str] = field(default_factory=list)
    """Those of them that cannot be read as what the model is of, such as notes.txt."""
    examples: int = 0
    """Number of pictures, examples of an array or videos of which the images are the tiles."""


class Tiles:
    """Images [N, *A, C], some of each example of a source: `images[start:stop]` reads the examples that they are of.

    Args:
        counts: number of images of each example.
        load: reads the images of the examples first..last - 1, none if these are equal.
    """

    def __init__(self, counts: Sequence[int], load: Callable[[int, int], NDArray[np.uint8]]):
        self._ends, self._load = np.cumsum([0, *counts]), load

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __getitem__(self, chosen: slice) -> NDArray[np.uint8]:
        start, stop, _ = chosen.indices(len(self))
        if start >= stop:
            return self._load(0, 0)
        first, last = (int(np.searchsorted(self._ends, number, "right")) for number in (start, stop - 1))
        skipped = self._ends[first - 1]
        return self._load(first - 1, last)[start - skipped : stop - skipped]


def other_size_error(path: Path, size: tuple[int, ...], shape: tuple[int, ...]) -> ValueError:
    """The error about images of another size."""
    return ValueError(
        f"{path} is of size {'x'.join(map(str, size))}, the model of {'x'.join(map(str, shape))}:"
        " tile it (other_sizes=tile), or leave it out"
    )
