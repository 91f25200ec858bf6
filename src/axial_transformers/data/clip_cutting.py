"""Videos cut into clips."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from axial_transformers.data.config import DataConfig
from axial_transformers.data.gathering import FitError
from axial_transformers.data.images import fitted


def clips(
    video: Path, frames: Iterable[Image.Image], options: DataConfig
) -> Iterator[tuple[NDArray[np.uint8], list[str]]]:
    """Clips of one video: parts [n, T, H, W, C], each with n suffixes of names; n > 1 for tiles (`fit`).

    Each frame is resized before the next one is decoded, so that at most one clip is in memory. Clips follow each other
    without overlap. Frames after the last whole clip are decoded too, so that damage is found, and dropped.

    Raises:
        ValueError: a frame that does not fit, or fewer frames than one clip.
    """
    clip: list[NDArray[np.uint8]] = []
    count = length = number = 0
    tiles: list[str] = []
    for length, frame in enumerate(frames, start=1):
        if (length - 1) % options.stride:
            continue
        pixels, tiles = fitted(video, frame, options, Image.Resampling.BOX)
        if clip and clip[0].shape != pixels.shape:
            raise FitError(f"{video} changes its frames' size at frame {length}: give a size and fit=crop or stretch")
        clip.append(pixels)
        count += 1
        if count == options.frames:
            yield np.stack(clip, axis=1), [f"#{number:04d}{tile}" for tile in tiles]
            clip, count, number = [], 0, number + 1
    if options.frames is None and clip:
        yield np.stack(clip, axis=1), tiles
    elif not number:
        raise _too_short(video, length, options)


def single_frames(
    video: Path, frames: Iterable[Image.Image], options: DataConfig
) -> Iterator[tuple[NDArray[np.uint8], list[str]]]:
    """Every frame of one video as a clip of its own, to be cut later (`windows`), whatever the stride.

    Raises:
        ValueError: as `clips`; some frames have come before.
    """
    length = 0
    for part in clips(video, frames, replace(options, frames=1, stride=1)):
        yield part
        length += 1
    if length < _wanted(options):
        raise _too_short(video, length, options)


def _wanted(options: DataConfig) -> int:
    return 1 + ((options.frames or 1) - 1) * options.stride


def _too_short(video: Path, length: int, options: DataConfig) -> ValueError:
    wanted = _wanted(options)
    return ValueError(f"{video} has {length} frames, too few for a clip of {wanted}: remove it, or lower frames")
