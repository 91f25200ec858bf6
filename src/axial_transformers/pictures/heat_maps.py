"""Heat maps: the bits of each position as a colour, from 0 to the bits of a uniform guess."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from axial_transformers.data.scans import Scan, write_scan
from axial_transformers.pictures.display import HEAT, Look, Pixels, as_row, colour, for_display, joined, with_alpha
from axial_transformers.pictures.grids import enlargement, gap_of, image_grid, sheet, with_scale
from axial_transformers.pictures.saving import save_table
from axial_transformers.storage.files import folder_written_whole


def save_scores(
    table: Path | None,
    rows: Sequence[Mapping[str, object]],
    folder: Path | None,
    maps: Iterable[tuple[str, NDArray[np.integer], NDArray[np.floating]]],
    look: Look,
    scan: Scan | None = None,
) -> None:
    """Write scores to a .csv or .json file, and heat maps to a folder: both appear, or neither.

    The maps are names, examples [*A, C] and their bits. Those of volumes are also written as arrays [*A], like `scan`.
    """
    with ExitStack() as whole:
        if folder:
            aside = whole.enter_context(folder_written_whole(folder))
            for rank, (name, example, bits) in enumerate(maps, start=1):
                bare = re.sub(r"(\.nii)?\.\w+(?=#|$)", "", Path(name).name)  # of mri.nii.gz#0,4 it is mri#0,4
                stem = f"{rank:04d}-{bare}"
                heat_map(example, bits, look).save(aside / f"{stem}.png")
                if look.is_volume(bits.ndim - 1):
                    mean = bits.mean(axis=-1, dtype=np.float32)
                    like = replace(scan or Scan(mean, ""), values=mean, scale=1.0, offset=0.0)
                    write_scan(aside / f"{stem}{like.suffix}", mean, like)
        if table:
            save_table(table, rows)


def heat_map(example: NDArray[np.integer], bits: NDArray[np.floating], look: Look) -> Image.Image:
    """Return the bits [*A, C] of an example, averaged over channels.

    Of a volume: the slices through the position of the most bits, and below them the bits over them.
    """
    tiles, volume = heat_colours(bits[None], look), look.is_volume(bits.ndim - 1)
    if volume:
        mean = bits.mean(axis=-1)
        look = replace(look, at=tuple(map(int, np.unravel_index(mean.argmax(), mean.shape))))
        plain = with_alpha(for_display(example[None], look))
        tiles = np.concatenate([plain, laid_over(plain, heat_colours(bits[None], look))])
    scale = enlargement(tiles.shape[2], len(tiles) * tiles.shape[1])
    return with_scale(sheet(tiles, columns=1, scale=scale), HEAT, hottest(look.num_values), "bits")


def laid_over(plain: Pixels, heat: Pixels, opacity: float = 0.6) -> Pixels:
    """Return images [N, H, W, 4] under the colours of their bits."""
    return np.rint(plain + opacity * (heat - plain.astype(float))).astype(np.uint8)


def under_examples(values: NDArray[np.integer], bits: NDArray[np.floating], look: Look) -> Image.Image:
    """Return examples [B, *A, C], and their bits below."""
    heat, look = heat_colours(bits, look), look.over(values)
    columns = len(values) if values.ndim == 4 or look.is_volume(values.ndim - 2) else 1
    rows = len(values) // columns
    scale = enlargement(columns * heat.shape[2], heat.shape[1] * rows) if values.ndim > 3 else None
    gap = gap_of(scale or 1)
    strips = list[Image.Image]()
    for start in range(0, len(values), columns):
        part = slice(start, start + columns)
        shown = image_grid(values[part], columns, scale, look)
        below = sheet(heat[part], columns, scale or 1, gap)
        height = below.height if scale else max(12, shown.height // 8)
        strips += [shown, below.resize((shown.width - 2 * gap, height), Image.Resampling.NEAREST)]
    page = Image.new("RGB", (strips[0].width, sum(strip.height for strip in strips)), "white")
    top = 0
    for strip in strips:
        page.paste(strip, ((page.width - strip.width) // 2, top), strip if strip.mode == "RGBA" else None)
        top += strip.height
    return with_scale(page, HEAT, hottest(look.num_values), "bits")


def hottest(num_values: int) -> int:
    """Return the bits of a uniform guess, rounded up."""
    return math.ceil(math.log2(num_values))


def heat_colours(bits: NDArray[np.floating], look: Look) -> Pixels:
    """Return the bits [B, *A, C] as colours uint8 [B, H, W, 4]."""
    axes = bits.ndim - 2
    if look.is_volume(axes):
        heat = joined([heat_colours(part, look) for part in look.parts(bits, axes)])
        return with_alpha(heat[..., :3])
    levels = bits.mean(axis=-1) / hottest(look.num_values)
    if axes == 3:
        levels = np.concatenate(list(levels.swapaxes(0, 1)), axis=2)
    if axes == 1:
        levels = np.stack([as_row(each) for each in levels])
    return colour(levels, HEAT)
