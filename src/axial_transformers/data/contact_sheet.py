"""Examples as pictures to look at."""

import math

import numpy as np
from numpy.typing import NDArray
from PIL import Image


def for_display(values: NDArray[np.integer], num_values: int = 256, uint16: bool = False) -> NDArray[np.uint8]:
    """Integers [N, *A, C] of one, two or three axes as pictures uint8 [N, H, W] or [N, H, W, 3].

    0 ... num_values - 1 are stretched to 0 ... 255; of 16-bit pairs the high bytes are shown, of two channels the
    first, of four or more the first three. A clip is the strip of its frames, a sequence one row.

    Raises:
        ValueError: another number of axes.
    """
    if not 3 <= values.ndim <= 5:
        raise ValueError(f"values [N, *A, C] with one to three axes can be shown, not {list(values.shape)}")
    if uint16:
        values = values[..., ::2]
    if num_values != 256:
        values = np.rint(np.asarray(values, np.float32) * (255 / (num_values - 1)))
    if values.ndim == 3:
        values = values[:, None]
    if values.ndim == 5:
        count, frames, height, width, channels = values.shape
        values = values.swapaxes(1, 2).reshape(count, height, frames * width, channels)
    shown = values.astype(np.uint8)
    return shown[..., :3] if shown.shape[-1] >= 3 else shown[..., 0]


def image_grid(
    values: NDArray[np.integer], columns: int | None = None, scale: int = 1, num_values: int = 256, uint16: bool = False
) -> Image.Image:
    """One picture of integers [N, *A, C], `columns` a row, each `scale` times enlarged, white between and around them.

    columns=None: about square; of clips one a row.

    Raises:
        ValueError: no examples, or a shape that `for_display` does not show.
    """
    pictures = for_display(values, num_values, uint16)
    count, height, width, *colours = pictures.shape
    if not count:
        raise ValueError("there are no examples to show")
    if columns is None:
        columns = 1 if values.ndim == 5 else max(1, round(math.sqrt(count * height / width)))
    gap = max(1, scale // 2)
    sheet = contact_sheet(pictures, min(count, columns), scale, gap, background=255)
    return Image.fromarray(np.pad(sheet, [(gap, gap)] * 2 + [(0, 0)] * len(colours), constant_values=255))


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
