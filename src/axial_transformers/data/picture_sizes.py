"""Sizes of the examples of a source, read from their headers."""

import warnings
from pathlib import Path

from axial_transformers.data import bair_videos, npy, picture_files
from axial_transformers.data.arrays import example_shape
from axial_transformers.data.config import DataConfig
from axial_transformers.data.natural_order import natural_key
from axial_transformers.data.walking import files_below, is_hidden

MOST_OPENED = 1000


def picture_sizes(source: str | Path, options: DataConfig | None = None) -> list[tuple[int, ...]]:
    """Width and height of a folder's pictures, of a thousand of them at most; or the axes of an array's examples.

    Damaged pictures do not count. The list is empty for a source of another kind, and for sequences.

    Raises:
        ValueError: an array that cannot be read.
    """
    folder = Path(source)
    if folder.is_file() and folder.suffix.lower() in npy.SUFFIXES:
        return _of_array(folder, options or DataConfig())
    with warnings.catch_warnings(action="ignore"):  # `load` gives the same ones
        below = files_below(folder) if folder.is_dir() else []
    files = [file for file in below if not is_hidden(file.relative_to(folder))]
    if any(file.suffix.lower() in bair_videos.SUFFIXES for file in files):
        return []
    pictures = [file for file in files if file.suffix.lower() in picture_files.SUFFIXES]
    arrays = [file for file in files if file.suffix.lower() in npy.SUFFIXES and file.parent == folder]
    if arrays and not pictures:
        return _of_array(min(arrays, key=natural_key), options or DataConfig())
    sizes = list[tuple[int, ...]]()
    for file in pictures[:: max(1, len(pictures) // MOST_OPENED)]:
        try:
            with picture_files.opened(file) as header:
                sizes.append(picture_files.upright_size(file, header))
        except picture_files.PictureError:
            continue
    return sizes


def _of_array(file: Path, options: DataConfig) -> list[tuple[int, ...]]:
    shape = example_shape(file, options)
    return [shape] if len(shape) > 1 else []
