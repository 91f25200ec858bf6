"""Grids of images, with titles."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont, ImageOps

from axial_transformers.pictures.display import Look, for_display, heat

WIDTH = 512
MAX_HEIGHT = 4096
LETTER = (7, 14)
NARROWEST = 96
"""Width of a page at least."""
NAMES = 320
"""Width of a page with names of axes at least."""
_SIZE = 12
_INK = "#14171f"


def image_grid(
    values: NDArray[np.integer],
    columns: int | None = None,
    scale: int | None = None,
    look: Look = Look(),
) -> Image.Image:
    """Return one image of integers [N, *A, C], `columns` a row, each enlarged `scale` times; above slices, their axes.

    Raises:
        ValueError: no examples.
    """
    pictures = for_display(values, look)
    count, height, width = pictures.shape[:3]
    if not count:
        raise ValueError("there are no examples to show")
    if columns is None:
        columns = 1 if look.is_clip(values.ndim - 2) else round(math.sqrt(count * height / width)) or 1
    columns = min(count, columns)
    if scale is None:
        scale = enlargement(columns * width, -(-count // columns) * height)
    gap = image_gap(scale)
    sheet = contact_sheet(pictures, columns, scale, gap, background=255)
    page = ImageOps.expand(Image.fromarray(sheet), gap, "white")
    if not look.is_volume(values.ndim - 2) or page.width < NAMES:
        return page
    depth, row, column = list((look.axes or "DHW").replace("C", "")[-3:])
    return above(page, [(f"{row} down, {column} across; {depth} to the right and below", 0.5)])


def enlargement(
    width: int,
    height: int,
    least: int = WIDTH,
) -> int:
    """Return the whole factor for a width of at least `least` pixels."""
    return max(1, min(-(-least // width), MAX_HEIGHT // height))


def image_gap(scale: int) -> int:
    """Return the pixels between images."""
    return min(16, max(1, scale // 2))


def contact_sheet(
    pictures: NDArray[np.uint8],
    columns: int,
    scale: int,
    gap: int,
    background: int = 0,
) -> NDArray[np.uint8]:
    """Return images [N, H, W] or [N, H, W, C] side by side, as one, with a gap of at least one pixel."""
    count, height, width, *channels = pictures.shape
    rows = -(-count // columns)
    tall = height * scale + gap
    wide = width * scale + gap
    tiles = np.full((rows * columns, tall, wide, *channels), background, np.uint8)
    tiles[:count, :-gap, :-gap] = pictures.repeat(scale, 1).repeat(scale, 2)
    sheet = tiles.reshape(rows, columns, tall, wide, *channels).swapaxes(1, 2)
    return sheet.reshape(rows * tall, columns * wide, *channels)[:-gap, :-gap]


def above(picture: Image.Image, titles: Sequence[tuple[str, float]]) -> Image.Image:
    """Return the image with titles above it."""
    page = _on_paper(picture, top=LETTER[1] + 4)
    for title, centre in titles:
        _write(page, (centre * picture.width, LETTER[1] / 2 + 2), title, "mm")
    return page


def beside(picture: Image.Image, titles: Sequence[str]) -> Image.Image:
    """Return the image with titles beside its rows."""
    left = LETTER[0] * max(map(len, titles)) + 8
    page = _on_paper(picture, left=left)
    for row, title in enumerate(titles):
        _write(page, (left - 6, (row + 0.5) * picture.height / len(titles)), title, "rm")
    return page


def with_scale(picture: Image.Image, highest: float) -> Image.Image:
    """Return the image, and under it the colours of bits."""
    bar = 10
    text = LETTER[1] + 2
    page = _on_paper(picture, bottom=6 + bar + text)
    ramp = heat(np.linspace(0, 1, picture.width)[None].repeat(bar, 0))
    page.paste(Image.fromarray(ramp), (0, picture.height + 6))
    middle = picture.height + 6 + bar + text / 2
    _write(page, (0, middle), "0", "lm")
    _write(page, (picture.width / 2, middle), f"{highest / 2:.3g}", "mm")
    _write(page, (picture.width, middle), f"{highest:.3g}+ bits", "rm")
    return page


def _on_paper(
    picture: Image.Image,
    left: int = 0,
    top: int = 0,
    bottom: int = 0,
) -> Image.Image:
    page = Image.new("RGB", (max(NARROWEST, left + picture.width), top + picture.height + bottom), "white")
    page.paste(picture, (left, top), picture if picture.mode == "RGBA" else None)
    return page


def _write(
    page: Image.Image,
    at: tuple[float, float],
    text: str,
    anchor: str,
) -> None:
    ImageDraw.Draw(page).text(at, text, fill=_INK, font=ImageFont.load_default(_SIZE), anchor=anchor)
