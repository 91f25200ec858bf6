"""Drawn examples on disk: the suffix of --output decides on the format."""

import os
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from axial_transformers.cli.trained_model import TrainedModel
from axial_transformers.data import save_arrays
from axial_transformers.decoding.drawing import most_together, numbers_each
from axial_transformers.models import AxialTransformerConfig
from axial_transformers.pictures import MOVIES, Palette, save_clips, save_grid, save_images
from axial_transformers.planning.machine import free_memory
from axial_transformers.planning.operations import engineering
from axial_transformers.storage.files import require_place, written_whole

FILES = (".png", ".npz", ".mp4", ".gif", ".mkv")
LOSSLESS = (".npz", ".mkv")
"""Files that are data, as a folder of pictures is: what exists is not replaced. Grids and movies are drawn anew."""
MOST_SCALE = 256


@dataclass(frozen=True, kw_only=True)
class Appearance:
    """How drawn examples are shown."""

    scale: int | None = None
    """Enlargement of a picture. None: a whole factor that makes it 512 pixels wide at least."""
    palette: Palette = "auto"
    """Shades, or a colour for each value. auto: colours where one channel has 3 to 12 values."""
    fps: int = 8
    """Frames per second of a movie."""


def check_output(output: Path, config: AxialTransformerConfig, scale: int | None, folder: bool) -> None:
    """Raises ValueError or OSError, before anything is drawn, where `output` cannot hold examples of the model.

    Args:
        scale: enlargement of a picture.
        folder: whether it may be a folder.
    """
    if scale is not None and not 1 <= scale <= MOST_SCALE:
        raise ValueError(f"--scale must be within 1..{MOST_SCALE}, not {scale}")
    if output.suffix not in (*FILES, *[""] * folder):
        names = ", ".join(f"NAME{suffix}" for suffix in FILES)
        raise ValueError(f"--output {output} is none of {names}{' and a folder' * folder}")
    if output.suffix in MOVIES and len(config.shape) != 3:
        raise ValueError(f"--output {output}: this model is not of clips (frames, height, width)")
    require_place(output, folder=not output.suffix)
    if output.suffix in LOSSLESS and os.path.lexists(output):
        raise FileExistsError(f"--output {output} exists already: give another path, or remove it first")


def require_other_file(output: Path, source: str | Path | None) -> None:
    """Raises ValueError where `output` is a file of the data in `source`, which it would replace."""
    if source is not None and output.is_file() and output.resolve().is_relative_to(Path(source).resolve()):
        raise ValueError(f"--output {output} is a file of the data, and would be replaced: name another")


def require_room(count: int, output: Path, config: AxialTransformerConfig, scale: int, inputs: int = 1) -> None:
    """Raises ValueError, before anything is drawn, where --count examples would not fit into memory.

    Args:
        inputs: so many times --count are drawn.
    """
    available = free_memory()
    if available is None:
        return
    sites = prod(config.shape) * config.channels
    value = 1 if config.num_values <= 256 else 8
    shown = 0 if output.suffix in ("", ".npz", ".mkv") else 4 * scale**2  # copies of the picture, enlarged
    each = inputs * sites * (3 * value + 4 + shown)
    decoding = 4 * sum(numbers_each(config))
    together = most_together(config)
    need = each * count + decoding * min(count * inputs, together)
    if need > available:
        room = max((available - decoding * together) // each, available // (each + decoding * inputs))
        raise ValueError(
            f"--count {count} needs {engineering(need)}B of memory, but {engineering(available)}B are available: "
            f"about {min(room, count - 1):,} would fit{f' with --scale {scale}' * bool(shown)}"
        )


def save(output: Path, values: NDArray[np.integer], trained: TrainedModel, appearance: Appearance) -> None:
    """Writes values [N, *A, C] as an array, a grid, a movie, or a folder of pictures; replaces no data."""
    if output.suffix in LOSSLESS:
        with written_whole(output, replace=False) as aside:
            _save(aside, values, trained, appearance)
    else:
        _save(output, values, trained, appearance)


def _save(output: Path, values: NDArray[np.integer], trained: TrainedModel, appearance: Appearance) -> None:
    num_values, uint16 = trained.model.config.num_values, trained.uint16
    if output.suffix == ".npz":
        save_arrays(output, values, uint16=uint16)
    elif output.suffix == ".png":
        save_grid(output, values, None, appearance.scale, num_values, uint16, appearance.palette)
    elif output.suffix in MOVIES:
        save_clips(output, values, None, appearance.scale, num_values, uint16, appearance.fps, appearance.palette)
    else:
        save_images(output, values, num_values=num_values, uint16=uint16, palette=appearance.palette)
