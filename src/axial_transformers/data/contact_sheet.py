"""Examples as pictures to look at."""

import colorsys
import math
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from axial_transformers.data.line_plots import line_plots
from axial_transformers.data.uint16 import join_uint16

Palette = Literal["auto", "gray", "categories"]
"""Colours of values: shades, or a colour for each. auto: categories where one channel has 3 to 12 values."""
Window = tuple[float, float]
"""The values that are shown black and white; those beyond are cut off."""

MOST_CATEGORIES = 12
WIDTH, MOST_HEIGHT = 512, 4096
"""Grids are enlarged to this width at least, unless they would be higher than that."""
_PERCENTILES = (0.5, 99.5)
_CATEGORIES = (
    "#efe3c8", "#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee",
    "#aa3377", "#222222", "#ee7733", "#44bb99", "#882255", "#7f5539",
)  # fmt: skip


def window_of(values: NDArray[np.integer], num_values: int = 256, uint16: bool = False) -> Window:
    """The window in which values [N, *A, C] are shown.

    It is 0 ... num_values - 1; of 16-bit pairs it is from the 0.5th to the 99.5th percentile of the values, since
    12-bit pictures, for example, would be black otherwise.
    """
    if not uint16:
        return 0, num_values - 1
    low, high = np.percentile(join_uint16(values.astype(np.uint8)), _PERCENTILES) if values.size else (0, 0)
    return float(low), max(float(high), low + 1)


def can_be_shown(axes: int) -> bool:
    """Whether pictures show data of so many axes: sequences, images and clips or volumes."""
    return 1 <= axes <= 3


def for_display(
    values: NDArray[np.integer],
    num_values: int = 256,
    uint16: bool = False,
    palette: Palette = "auto",
    window: Window | None = None,
) -> NDArray[np.uint8]:
    """Integers [N, *A, C] of one, two or three axes as pictures uint8 [N, H, W] or [N, H, W, 3].

    The window (None: `window_of` these values) is stretched to 0 ... 255; of two channels the first is shown, of four
    or more the first three. A clip is the strip of its frames, a sequence a line plot, or a row of cells if it is of
    categories.

    Raises:
        ValueError: another number of axes.
    """
    if not can_be_shown(values.ndim - 2):
        raise ValueError(f"values [N, *A, C] with one to three axes can be shown, not {list(values.shape)}")
    low, high = window or window_of(values, num_values, uint16)
    if uint16:
        values = join_uint16(values.astype(np.uint8))
    categories = _are_categories(values, num_values, uint16, palette)
    if values.ndim == 3 and not categories:
        return line_plots((values.astype(float) - low) / (high - low), f"{low:.0f}", f"{high:.0f}")
    if values.ndim == 3:
        values = np.stack([as_row(each) for each in values])
    if values.ndim == 5:
        count, frames, height, width, channels = values.shape
        values = values.swapaxes(1, 2).reshape(count, height, frames * width, channels)
    if categories:
        return _colours_of(num_values)[values[..., 0]]
    if (low, high) != (0, 255):
        stretched = (np.asarray(values, np.float32) - low) * (255 / (high - low))
        values = np.rint(np.clip(stretched, 0, 255))
    shown = values.astype(np.uint8)
    return shown[..., :3] if shown.shape[-1] >= 3 else shown[..., 0]


def marks_for_display(marks: NDArray[np.bool_], width: int) -> NDArray[np.bool_]:
    """Marks of sites [*A] at the pixels [H, width], or [1, width], of the picture that `for_display` makes of *A."""
    if marks.ndim == 3:
        return np.concatenate(list(marks), axis=1)
    return marks if marks.ndim == 2 else marks[None, np.arange(width) * len(marks) // width]


def as_row(sites: NDArray[Any]) -> NDArray[Any]:
    """Sites [L, ...] of a sequence as a row of cells [H, L, ...], high enough to see."""
    return sites[None].repeat(max(1, len(sites) // 16), axis=0)


def image_grid(
    values: NDArray[np.integer],
    columns: int | None = None,
    scale: int | None = None,
    num_values: int = 256,
    uint16: bool = False,
    palette: Palette = "auto",
    window: Window | None = None,
) -> Image.Image:
    """One picture of integers [N, *A, C], `columns` a row, each `scale` times enlarged, white between and around them.

    columns=None: about square; of clips one a row. scale=None: as `enlargement` says. For others see `for_display`.

    Raises:
        ValueError: no examples, or a shape that `for_display` does not show.
    """
    pictures = for_display(values, num_values, uint16, palette, window)
    count, height, width, *colours = pictures.shape
    if not count:
        raise ValueError("there are no examples to show")
    if columns is None:
        columns = 1 if values.ndim == 5 else max(1, round(math.sqrt(count * height / width)))
    columns = min(count, columns)
    if scale is None:
        scale = enlargement(columns * width, -(-count // columns) * height)
    gap = gap_of(scale)
    sheet = contact_sheet(pictures, columns, scale, gap, background=255)
    return Image.fromarray(np.pad(sheet, [(gap, gap)] * 2 + [(0, 0)] * len(colours), constant_values=255))


def enlargement(width: int, height: int, least: int = WIDTH) -> int:
    """The whole factor by which a picture becomes at least `least` pixels wide, unless it becomes too high."""
    return max(1, min(-(-least // width), MOST_HEIGHT // height))


def gap_of(scale: int) -> int:
    """Pixels between the pictures of a grid."""
    return min(16, max(1, scale // 2))


def contact_sheet(
    pictures: NDArray[np.uint8], columns: int, scale: int = 1, gap: int = 0, background: int = 0
) -> NDArray[np.uint8]:
    """Pictures [N, H, W] or [N, H, W, C] side by side, in reading order, as one [rows, columns] or [rows, columns, C].

    Args:
        columns: pictures in a row.
        scale: times that each pixel is repeated along both sides.
        gap: pixels between pictures.
        background: value of all channels between pictures and after the last one.
    """
    count, height, width, *channels = pictures.shape
    rows = -(-count // columns)
    tall, wide = height * scale + gap, width * scale + gap
    tiles = np.full((rows * columns, tall, wide, *channels), background, np.uint8)
    tiles[:count, : height * scale, : width * scale] = pictures.repeat(scale, 1).repeat(scale, 2)
    sheet = tiles.reshape(rows, columns, tall, wide, *channels).swapaxes(1, 2)
    return sheet.reshape(rows * tall, columns * wide, *channels)[: rows * tall - gap, : columns * wide - gap]


def _are_categories(values: NDArray[np.integer], num_values: int, uint16: bool, palette: Palette) -> bool:
    if palette == "auto":
        return values.shape[-1] == 1 and not uint16 and 3 <= num_values <= MOST_CATEGORIES
    return palette == "categories" and not uint16


def _colours_of(count: int) -> NDArray[np.uint8]:
    """Colours [count, 3] that differ; beyond the first dozen, less so."""
    first = [tuple(bytes.fromhex(colour[1:])) for colour in _CATEGORIES[:count]]
    hues = ((i * 0.618034 % 1, 0.65, 0.5 + 0.2 * (i % 3)) for i in range(len(first), count))
    others = [tuple(round(255 * level) for level in colorsys.hsv_to_rgb(*hue)) for hue in hues]
    return np.array(first + others, np.uint8)
