"""Heat maps: the bits of each position as a colour, from 0 to the bits of a uniform guess."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from axial_transformers.data.scans import Scan, moved, write_scan
from axial_transformers.data.tiles import corner_of
from axial_transformers.pictures import html
from axial_transformers.pictures.display import (
    Look,
    as_rows,
    for_display,
    heat,
    in_a_strip,
    joined,
    with_alpha,
)
from axial_transformers.pictures.grids import contact_sheet, enlargement, image_gap, image_grid, with_scale
from axial_transformers.pictures.saving import save_table
from axial_transformers.storage.files import folder_written_whole

PAGE = "scores.html"
TEXT = "Each example, and the bits of each position. If an image was cut into tiles, scores are of the framed one."
OPACITY = 0.6


@dataclass(frozen=True)
class BitsOfExample:
    """The bits of each position of an example, or of an image that was cut into tiles."""

    rank: int
    """From 0; of an image, that of its most unusual tile."""
    name: str
    values: NDArray[np.integer]
    """[*A, C]."""
    bits: NDArray[np.floating]
    """[*A, C]."""
    tile: tuple[slice, ...] | None = None
    """The rows and columns of the most unusual tile."""


def save_scores(
    table: Path | None,
    rows: Sequence[Mapping[str, object]],
    folder: Path | None,
    maps: Iterable[BitsOfExample],
    look: Look,
    scan: Scan | None = None,
    facts: Mapping[str, str] = {},
    usual: Sequence[NDArray[np.integer]] = (),
) -> None:
    """Write scores to a .csv or .json file, and heat maps and a page to a folder: both appear, or neither.

    Rows are in the order of ranks; `usual` are the examples [*A, C] of the last ranks, the last first. Bits of volumes
    are also written as arrays [*A].

    Args:
        scan: the bits of a whole scan, of which the examples are blocks. It is also written, as bits.nii.gz or with
            another suffix of its own, and the maps of blocks are scans, each at its place.
    """
    with ExitStack() as whole:
        if folder:
            aside = whole.enter_context(folder_written_whole(folder))
            shown: dict[int, html.Figure] = {}
            for number, example in enumerate(maps, start=1):
                bare = re.sub(r"(\.nii)?\.\w+(?=#|$)", "", Path(example.name).name)  # mri.nii.gz#0,4 becomes mri#0,4
                picture = _save_map(aside / f"{number:04d}-{bare}.png", example, look, scan)
                shown[example.rank] = html.figure(picture, f"{example.rank + 1}: {example.name}")
            if scan:
                write_scan(aside / f"bits{scan.suffix}", scan.values, scan)
            sections = [
                html.Section(facts={name.replace("_", " "): value for name, value in facts.items()}),
                html.Section(
                    title="The most unusual",
                    text=TEXT,
                    rows=[rows[rank] for rank in shown],
                    images=[*shown.values()],
                ),
            ]
            if usual:
                sheet = html.figure(image_grid(np.stack(usual), look=look), "in the order of the table")
                last = rows[: -len(usual) - 1 : -1]
                sections.append(html.Section(title="The most usual", rows=last, images=[sheet]))
            html.write_page(aside / PAGE, Path(facts.get("model", folder)).resolve().name, sections)
        if table:
            save_table(table, rows, facts)


def _at_its_place(scan: Scan, example: BitsOfExample) -> Scan:
    """Return what the bits of a block are written like."""
    block = example.bits.shape[:-1]
    name = f"{example.name}#0,0" if example.tile else example.name  # all tiles of an image begin at its corner
    return moved(replace(scan, axes=scan.axes[-len(block) :]), corner_of(name, len(scan.axes), block))


def _save_map(
    path: Path,
    bits: BitsOfExample,
    look: Look,
    scan: Scan | None,
) -> Image.Image:
    """Write a heat map and return it; of a volume, and of a block of a scan, also its bits as an array."""
    picture = heat_map(bits.values, bits.bits, look, bits.tile)
    picture.save(path)
    if scan or look.is_volume(bits.bits.ndim - 1):
        mean = bits.bits.mean(axis=-1, dtype=np.float32)
        like = _at_its_place(scan, bits) if scan else Scan(mean, "")
        write_scan(path.with_name(path.stem + like.suffix), mean, like)
    return picture


def heat_map(
    example: NDArray[np.integer],
    bits: NDArray[np.floating],
    look: Look,
    tile: tuple[slice, ...] | None = None,
) -> Image.Image:
    """Return an example [*A, C] and its bits, averaged over channels: beside an image, below others.

    The bits of a volume lie over its slices through the position of the most bits. The bits of an image in tiles lie
    over the image; the borders of all tiles are drawn, and one tile is framed.
    """
    axes = bits.ndim - 1
    if axes == 1 or (look.series and axes == 2):
        return under_examples(example[None], bits[None], look)
    is_volume = look.is_volume(axes)
    if is_volume:
        mean = bits.mean(axis=-1)
        look = replace(look, at=tuple(map(int, np.unravel_index(mean.argmax(), mean.shape))))
    plain = with_alpha(for_display(example[None], look))
    heated = heat_colours(bits[None], look)
    if tile or is_volume:  # the example shines through
        heated = np.rint(plain + OPACITY * (heated - plain.astype(float))).astype(np.uint8)
    if tile:
        height, width = (side.stop - side.start for side in tile)
        heated[:, ::height, :, :3] //= 2
        heated[:, :, ::width, :3] //= 2
        frame = heated[:, *tile]
        frame[:, [0, -1]] = frame[:, :, [0, -1]] = 255
    columns = 2 if axes == 2 else 1
    scale = enlargement(columns * plain.shape[2], 2 // columns * plain.shape[1])
    page = Image.fromarray(contact_sheet(np.concatenate([plain, heated]), columns, scale, image_gap(scale)))
    return with_scale(page, hottest(look))


def under_examples(
    values: NDArray[np.integer],
    bits: NDArray[np.floating],
    look: Look,
) -> Image.Image:
    """Return examples [B, *A, C], and their bits below."""
    values = look.over_time(values)
    heated = heat_colours(bits, look)
    look = look.over(values)
    axes = values.ndim - 2
    columns = 1
    if axes == 2 or look.is_volume(axes):
        columns = len(values)
    scale = None
    if axes > 1:
        scale = enlargement(columns * heated.shape[2], heated.shape[1] * len(values) // columns)
    gap = image_gap(scale or 1)
    strips: list[Image.Image] = []
    for start in range(0, len(values), columns):
        row = slice(start, start + columns)
        shown = image_grid(values[row], columns, scale, look)
        below = Image.fromarray(contact_sheet(heated[row], columns, scale or 1, gap, background=255))
        height = below.height if scale else max(12, shown.height // 8)
        strips += [shown, below.resize((shown.width - 2 * gap, height), Image.Resampling.NEAREST)]
    page = Image.new("RGB", (strips[0].width, sum(strip.height for strip in strips)), "white")
    top = 0
    for strip in strips:
        page.paste(strip, ((page.width - strip.width) // 2, top))
        top += strip.height
    return with_scale(page, hottest(look))


def hottest(look: Look) -> int:
    """Return the bits of a uniform guess, rounded up."""
    return math.ceil(math.log2(look.modelled or look.num_values))


def heat_colours(bits: NDArray[np.floating], look: Look) -> NDArray[np.uint8]:
    """Return the bits [B, *A, C] as colours uint8 [B, H, W, 4]."""
    bits = look.over_time(bits)
    axes = bits.ndim - 2
    if look.is_volume(axes):
        page = joined([heat_colours(slices, look) for slices in look.parts(bits, axes)])
        return with_alpha(page[..., :3])
    levels = bits.mean(axis=-1) / hottest(look)
    if axes == 3:
        levels = in_a_strip(levels)
    if axes == 1:
        levels = as_rows(levels)
    return heat(levels)
