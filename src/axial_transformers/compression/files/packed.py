"""What a source of images becomes before it is compressed."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

OtherSizes = Literal["refuse", "tile"]
"""What happens to images of another size than the model's: an error, or tiles of the model's size, edges repeated."""


@dataclass(frozen=True)
class Packed:
    """Images of the model's size, and what is needed to make the source's files of them again."""

    images: NDArray[np.uint8]
    """[N, *A, C]."""
    description: dict[str, Any]
    """JSON, which the archive carries along."""
    files: list[bytes] = field(default_factory=list)
    """Whole files, which the archive carries along."""
    left_out: list[str] = field(default_factory=list)
    """What of the source is not kept."""


def refuse(path: Path, size: tuple[int, ...], shape: tuple[int, ...]) -> ValueError:
    """The error about images of another size."""
    return ValueError(
        f"{path} is of size {'x'.join(map(str, size))}, the model of {'x'.join(map(str, shape))}:"
        " tile it (other_sizes=tile), or leave it out"
    )
