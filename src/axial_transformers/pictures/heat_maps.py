"""Heat maps: the bits of each position as a colour, from 0 to the bits of a uniform guess."""

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from axial_transformers.pictures.display import HEAT, Pixels, as_row, can_be_shown, colour
from axial_transformers.pictures.grids import enlargement, gap_of, image_grid, sheet, with_scale
from axial_transformers.pictures.saving import save_table
from axial_transformers.storage.files import folder_written_whole


def save_scores(
    table: Path | None,
    rows: Sequence[Mapping[str, object]],
    folder: Path | None,
    maps: Iterable[tuple[str, NDArray[np.floating]]],
    num_values: int,
) -> None:
    """Write scores to a .csv or .json file, and heat maps to a folder: both appear, or neither."""
    with ExitStack() as whole:
        if folder:
            aside = whole.enter_context(folder_written_whole(folder))
            for rank, (name, bits) in enumerate(maps, start=1):
                heat_map(bits, num_values).save(aside / f"{rank:04d}-{Path(name).stem}.png")
        if table:
            save_table(table, rows)


def heat_map(bits: NDArray[np.floating], num_values: int) -> Image.Image:
    """Return the bits [*A, C] of an example, averaged over channels."""
    heat = heat_colours(bits[None], num_values)
    picture = sheet(heat, columns=1, scale=enlargement(heat.shape[2], heat.shape[1]))
    return with_scale(picture, HEAT, hottest(num_values), "bits")


def under_examples(
    values: NDArray[np.integer], bits: NDArray[np.floating], num_values: int, lowest: int = 0
) -> Image.Image:
    """Return examples [B, *A, C], and their bits below."""
    heat = heat_colours(bits, num_values)
    columns = len(values) if values.ndim == 4 else 1
    rows = len(values) // columns
    scale = enlargement(columns * heat.shape[2], heat.shape[1] * rows) if values.ndim > 3 else None
    gap = gap_of(scale or 1)
    strips = list[Image.Image]()
    for start in range(0, len(values), columns):
        part = slice(start, start + columns)
        shown = image_grid(values[part], columns, scale, num_values, lowest)
        below = sheet(heat[part], columns, scale or 1, gap)
        height = below.height if scale else max(12, shown.height // 8)
        strips += [shown, below.resize((shown.width - 2 * gap, height), Image.Resampling.NEAREST)]
    page = Image.new("RGB", (strips[0].width, sum(strip.height for strip in strips)), "white")
    top = 0
    for strip in strips:
        page.paste(strip, ((page.width - strip.width) // 2, top), strip if strip.mode == "RGBA" else None)
        top += strip.height
    return with_scale(page, HEAT, hottest(num_values), "bits")


def hottest(num_values: int) -> int:
    """Return the bits of a uniform guess, rounded up."""
    return math.ceil(math.log2(num_values))


def heat_colours(bits: NDArray[np.floating], num_values: int) -> Pixels:
    """Return the bits [B, *A, C] as colours uint8 [B, H, W, 4]."""
    if not can_be_shown(axes := bits.ndim - 2):
        raise ValueError(f"heat maps are for sequences, images and clips, not for {axes} axes")
    levels = bits.mean(axis=-1) / hottest(num_values)
    if axes == 3:
        levels = np.concatenate(list(levels.swapaxes(0, 1)), axis=2)
    if axes == 1:
        levels = np.stack([as_row(each) for each in levels])
    return colour(levels, HEAT)
