"""Sizes of the pictures in a folder, read from their headers."""

import warnings
from pathlib import Path

from axial_transformers.data import bair_videos, picture_files
from axial_transformers.data.walking import files_below, is_hidden

MOST_OPENED = 1000


def picture_sizes(source: str | Path) -> list[tuple[int, int]]:
    """Width and height in pixels of a folder's pictures, of a thousand of them at most.

    Damaged pictures do not count. The list is empty for a source of another kind than a folder of pictures.
    """
    folder = Path(source)
    with warnings.catch_warnings(action="ignore"):  # `load` gives the same ones
        below = files_below(folder) if folder.is_dir() else []
    files = [file for file in below if not is_hidden(file.relative_to(folder))]
    if any(file.suffix.lower() in bair_videos.SUFFIXES for file in files):
        return []
    pictures = [file for file in files if file.suffix.lower() in picture_files.SUFFIXES]
    sizes = list[tuple[int, int]]()
    for file in pictures[:: max(1, len(pictures) // MOST_OPENED)]:
        try:
            with picture_files.opened(file) as header:
                sizes.append(picture_files.upright_size(file, header))
        except picture_files.PictureError:
            continue
    return sizes
