"""Contents of the archive of a folder or a file."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

OtherSizes = Literal["refuse", "tile"]
"""Treatment of images of another size than the model's: an error, or tiles of the model's size with repeated edges."""


@dataclass(frozen=True)
class Contents:
    """Images of the model's size, and everything else that is needed to write the source's files again."""

    images: NDArray[np.uint8]
    """[N, *A, C]."""
    description: dict[str, Any]
    """JSON that describes the files."""
    files: list[bytes] = field(default_factory=list)
    """Files that are stored whole."""
    left_out: list[str] = field(default_factory=list)
    """Names of the parts of the source that are not stored."""
    whole: list[str] = field(default_factory=list)
    """Names of the files of the source that are stored byte for byte, not by the model."""
    others: list[str] = field(default_factory=list)
    """Those of them that cannot be read as what the model is of, such as notes.txt."""
    examples: int = 0
    """Number of pictures, examples of an array or videos of which the images are the tiles."""


def other_size_error(path: Path, size: tuple[int, ...], shape: tuple[int, ...]) -> ValueError:
    """The error about images of another size."""
    return ValueError(
        f"{path} is of size {'x'.join(map(str, size))}, the model of {'x'.join(map(str, shape))}:"
        " tile it (other_sizes=tile), or leave it out"
    )
