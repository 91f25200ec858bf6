"""Completions beside what was known."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from axial_transformers.pictures.display import (
    Palette,
    Pixels,
    for_display,
    marks_for_display,
    unseen,
    with_alpha,
)
from axial_transformers.pictures.grids import WIDTH, above, below, beside, enlargement, gap_of, sheet
from axial_transformers.pictures.saving import MOVIES, save_movie, save_picture

LONG = 6
WIDEST_TITLE = 80
MARK = "#e5484db0"


def save_completions(  # noqa: PLR0913
    output: Path,
    known: NDArray[np.integer],
    mask: NDArray[np.bool_],
    filled: NDArray[np.integer],
    num_values: int,
    lowest: int = 0,
    *,
    scale: int | None = None,
    palette: Palette = "auto",
    fps: int = 8,
    note: str = "",
) -> None:
    """Write `completion_sheet` as an image or a movie, with a note below."""
    show = partial(for_display, num_values=num_values, lowest=lowest, palette=palette)

    def page(at: int | slice, strips: bool | None) -> Image.Image:
        drawn = completion_sheet(known[:, at], mask[at], filled[:, at], show, lowest=lowest, scale=scale, strips=strips)
        return below(drawn, note) if note else drawn

    if output.suffix in MOVIES:
        save_movie(output, np.stack([np.asarray(page(t, strips=False)) for t in range(len(mask))]), fps)
    else:
        save_picture(output, page(slice(None), strips=True if known.ndim == 5 else None))


def completion_sheet(
    known: NDArray[np.integer],
    mask: NDArray[np.bool_],
    filled: NDArray[np.integer],
    show: Callable[[NDArray[np.integer]], Pixels],
    *,
    lowest: int = 0,
    marked: NDArray[np.bool_] | None = None,
    scale: int | None = None,
    strips: bool | None = None,
) -> Image.Image:
    """Draw the known part of each example, its completions and the whole.

    Args:
        known: [N, *A, C].
        mask: [*A, C], true where known.
        filled: [N * count, *A, C].
        lowest: the value that is shown for unknown channels of a position.
        marked: [*A].
        strips: a row for each tile.
    """
    count = len(filled) // len(known)
    tiles = _tiles(known, mask, filled, show, marked, lowest)
    height, width = tiles.shape[1:3]
    if strips is None:
        strips = width > LONG * height
    columns = 1 if strips else count + 2
    least = max(WIDTH, WIDEST_TITLE * columns)
    scale = scale or enlargement(columns * width, len(tiles) // columns * height, least)
    grid = sheet(tiles, columns=columns, scale=scale, gap=gap_of(scale))
    if strips:
        return beside(grid, ["known", *["completion"] * count, "original"] * len(known))
    return above(grid, [("known", 0.5 / columns), ("completions", 0.5), ("original", 1 - 0.5 / columns)])


def _tiles(
    known: NDArray[np.integer],
    mask: NDArray[np.bool_],
    filled: NDArray[np.integer],
    show: Callable[[NDArray[np.integer]], Pixels],
    marked: NDArray[np.bool_] | None,
    lowest: int,
) -> Pixels:
    whole, shown = (with_alpha(show(each)) for each in (known, filled))
    given = whole
    if known.ndim > 3:  # of a pixel some of whose channels are known, only these are shown
        given = with_alpha(show(np.where(mask, known, lowest)))
    given = unseen(given, marks_for_display(np.asarray((~mask).all(axis=-1)), whole.shape[2]))
    if marked is not None:
        given = unseen(given, marks_for_display(marked, whole.shape[2]), MARK)
    shown = shown.reshape(len(whole), -1, *whole.shape[1:])
    tiles = np.concatenate([given[:, None], shown, whole[:, None]], axis=1)
    return tiles.reshape(-1, *whole.shape[1:])
