"""Completions beside what was known."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from axial_transformers.pictures.display import Look, for_display, marks_for_display, unseen, with_alpha
from axial_transformers.pictures.grids import WIDTH, above, beside, contact_sheet, enlargement, image_gap
from axial_transformers.pictures.saving import MOVIES, save_movie, save_picture

LONG = 6
WIDEST_TITLE = 80


def save_completions(
    out: Path,
    known: NDArray[np.integer],
    mask: NDArray[np.bool_],
    filled: NDArray[np.integer],
    look: Look,
    scale: int | None = None,
) -> None:
    """Write `completion_sheet` as an image or a movie."""
    look = look.over(known)

    def page(at: int | slice, strips: bool | None) -> Image.Image:
        return completion_sheet(known[:, at], mask[at], filled[:, at], look, scale=scale, strips=strips)

    if out.suffix in MOVIES:
        save_movie(out, np.stack([np.asarray(page(t, strips=False)) for t in range(len(mask))]))
    else:
        save_picture(out, page(slice(None), strips=True if look.is_clip(mask.ndim - 1) else None))


def completion_sheet(
    known: NDArray[np.integer],
    mask: NDArray[np.bool_],
    filled: NDArray[np.integer],
    look: Look,
    *,
    scale: int | None = None,
    strips: bool | None = None,
) -> Image.Image:
    """Draw the known part of each example, its completions and the whole.

    Args:
        known: [N, *A, C].
        mask: [*A, C], true where known.
        filled: [N * count, *A, C].
        strips: a row for each tile.
    """
    known = look.over_time(known)
    filled = look.over_time(filled)
    mask = look.over_time(mask[None])[0]
    count = len(filled) // len(known)
    tiles = _tiles(known, mask, filled, look.over(known))
    height, width = tiles.shape[1:3]
    if strips is None:
        strips = width > LONG * height
    columns = 1 if strips else count + 2
    least = max(WIDTH, WIDEST_TITLE * columns)
    scale = scale or enlargement(columns * width, len(tiles) // columns * height, least)
    grid = Image.fromarray(contact_sheet(tiles, columns, scale, image_gap(scale)))
    if strips:
        return beside(grid, ["known", *["completion"] * count, "original"] * len(known))
    return above(grid, [("known", 0.5 / columns), ("completions", 0.5), ("original", 1 - 0.5 / columns)])


def _tiles(
    known: NDArray[np.integer],
    mask: NDArray[np.bool_],
    filled: NDArray[np.integer],
    look: Look,
) -> NDArray[np.uint8]:
    whole = with_alpha(for_display(known, look))
    given = whole
    if known.ndim > 3:  # of a pixel some of whose channels are known, only these are shown
        given = with_alpha(for_display(np.where(mask, known, look.lowest), look))
    given = unseen(given, marks_for_display(np.asarray(~mask.any(axis=-1)), whole.shape[2], look))
    shown = with_alpha(for_display(filled, look)).reshape(len(whole), -1, *whole.shape[1:])
    tiles = np.concatenate([given[:, None], shown, whole[:, None]], axis=1)
    return tiles.reshape(-1, *whole.shape[1:])
