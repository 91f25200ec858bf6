"""Downsampled ImageNet: its published .npz batches and its two versions."""

import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axial_transformers.data.npy import array_header, read_array

KEY = "data"


def is_batch(path: Path, names: list[str]) -> bool:
    """Tests whether a file is a published batch: uint8 `data` [N, 3 S S], channel after channel."""
    if KEY not in names:
        return False
    shape, dtype = array_header(path, KEY)
    return dtype == np.uint8 and len(shape) == 2 and 0 not in shape and shape[1] == 3 * math.isqrt(shape[1] // 3) ** 2


def read_batch(path: Path) -> NDArray[np.uint8]:
    """The images of a published batch, uint8 [N, S, S, 3].

    Raises:
        ValueError: the file is damaged.
    """
    data: NDArray[Any] = read_array(path, KEY)
    side = math.isqrt(data.shape[1] // 3)
    return data.reshape(-1, 3, side, side).transpose(0, 2, 3, 1)


def imagenet_version(count: int) -> str | None:
    """The version of downsampled ImageNet that a number of images suggests, in words; None if neither.

    The versions are about 0.25 bits/dim apart. For the newer one a warning is given: published likelihoods are of the
    older one.
    """
    if count in (1_281_149, 49_999):
        return f"{count:,} images: downsampled ImageNet, old resize (the version of published likelihoods)"
    if count in (1_281_167, 50_000):
        version = f"{count:,} images: downsampled ImageNet, newer box resize"
        warnings.warn(
            f"{version}; its bits/dim must not be set beside those of the old one (49,999 validation images)",
            stacklevel=2,
        )
        return version
    return None
