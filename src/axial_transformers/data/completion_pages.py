"""Completions beside what was known: one picture of the known part, what was drawn, and the whole."""

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from axial_transformers.data.captions import above, beside
from axial_transformers.data.colours import sheet, unseen
from axial_transformers.data.contact_sheet import (
    WIDTH,
    Palette,
    Window,
    enlargement,
    for_display,
    gap_of,
    marks_for_display,
)

LONG = 6
"""Width of tiles, divided by their height, above which there is one a row."""
WIDEST_TITLE = 80
"""Pixels of a column at least, for the titles."""
MARK = "#e5484db0"
"""Colour of marked sites."""


def completion_tiles(
    known: NDArray[np.uint8],
    mask: NDArray[np.bool_],
    filled: NDArray[np.integer],
    num_values: int,
    uint16: bool,
    palette: Palette,
    window: Window,
    marked: NDArray[np.bool_] | None = None,
) -> NDArray[np.uint8]:
    """Of each example the known part, its completions and the whole: [N * (count + 2), H, W, 4].

    Args:
        known: [N, *A, C]. filled: [N * count, *A, C].
        mask: [*A, C], true where known.
        marked: [*A], true where the known part is to have a mark.
    """
    whole, drawn = (opaque(for_display(each, num_values, uint16, palette, window)) for each in (known, filled))
    given = whole
    if known.ndim > 3:  # of a pixel some of whose channels are known, only these are shown
        shown = np.where(mask, known, 0).astype(np.uint8)
        given = opaque(for_display(shown, num_values, uint16, palette, window))
    given = unseen(given, marks_for_display(np.asarray((~mask).all(axis=-1)), whole.shape[2]))
    if marked is not None:
        given = unseen(given, marks_for_display(marked, whole.shape[2]), MARK)
    drawn = drawn.reshape(len(whole), -1, *whole.shape[1:])
    tiles = np.concatenate([given[:, None], drawn, whole[:, None]], axis=1)
    return tiles.reshape(-1, *whole.shape[1:])


def completion_page(
    tiles: NDArray[np.uint8], count: int, scale: int | None = None, strips: bool | None = None
) -> Image.Image:
    """The tiles [N * (count + 2), H, W, 4] as one titled picture, an example a row, or a strip a row.

    Args:
        scale: enlargement; None: as `enlargement` says.
        strips: whether each tile has a row of its own; None: if it is long.
    """
    if strips is None:
        strips = tiles.shape[2] > LONG * tiles.shape[1]
    columns = 1 if strips else count + 2
    height, width = tiles.shape[1:3]
    least = max(WIDTH, WIDEST_TITLE * columns)
    scale = scale or enlargement(columns * width, len(tiles) // columns * height, least)
    grid = sheet(tiles, columns=columns, scale=scale, gap=gap_of(scale))
    if strips:
        titles = ["known", *["completion"] * count, "original"]
        return beside(grid, titles * (len(tiles) // len(titles)))
    return above(grid, [("known", 0.5 / columns), ("completions", 0.5), ("original", 1 - 0.5 / columns)])


def opaque(pictures: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Gray [N, H, W] or RGB [N, H, W, 3] pictures as RGBA [N, H, W, 4]."""
    if pictures.ndim == 3:
        pictures = np.repeat(pictures[..., None], 3, axis=-1)
    return np.concatenate([pictures, np.full_like(pictures[..., :1], 255)], axis=-1)
