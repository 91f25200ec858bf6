"""Examples and samples as pictures and arrays on disk."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from axial_transformers.data.uint16 import join_uint16
from axial_transformers.storage.files import folder_written_whole, written_whole


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
    """One picture of integers [N, *A, C], `columns` a row, each `scale` times enlarged.

    None: about square; of clips one a row.

    Raises:
        ValueError: no examples, or a shape that `for_display` does not show.
    """
    pictures = for_display(values, num_values, uint16)
    count, height, width = pictures.shape[:3]
    if not count:
        raise ValueError("there are no examples to show")
    if columns is None:
        columns = 1 if values.ndim == 5 else max(1, round(math.sqrt(count * height / width)))
    columns = min(count, columns)
    rows = -(-count // columns)
    gap = max(1, scale // 2)
    grid = Image.new(
        "L" if pictures.ndim == 3 else "RGB",
        (columns * (width * scale + gap) + gap, rows * (height * scale + gap) + gap),
        color="white",
    )
    for i, picture in enumerate(pictures):
        row, column = divmod(i, columns)
        enlarged = Image.fromarray(picture).resize((width * scale, height * scale), Image.Resampling.NEAREST)
        grid.paste(enlarged, (gap + column * (width * scale + gap), gap + row * (height * scale + gap)))
    return grid


def save_grid(
    path: str | Path,
    values: NDArray[np.integer],
    columns: int | None = None,
    scale: int = 1,
    num_values: int = 256,
    uint16: bool = False,
) -> None:
    """Writes `image_grid` as a PNG file."""
    grid = image_grid(values, columns, scale, num_values, uint16)
    with written_whole(path) as aside:
        grid.save(aside, format="PNG")


def save_images(
    folder: str | Path,
    values: NDArray[np.integer],
    names: Sequence[str] | None = None,
    num_values: int = 256,
    uint16: bool = False,
) -> None:
    """Writes each of integers [N, *A, C] as a PNG file of a new folder: 0000.png, ..., or as named.

    One 16-bit channel is written as a 16-bit PNG, which `load` reads back; everything else as `for_display` shows it.

    Raises:
        FileExistsError: the folder exists and holds something.
    """
    if uint16 and values.ndim == 4 and values.shape[-1] == 2:
        pictures: NDArray[np.integer] = join_uint16(values.astype(np.uint8))[..., 0]
    else:
        pictures = for_display(values, num_values, uint16)
    with folder_written_whole(folder) as aside:
        for i, picture in enumerate(pictures):
            Image.fromarray(picture).save(aside / f"{names[i] if names else f'{i:04d}'}.png")


def save_arrays(
    path: str | Path, values: NDArray[np.integer], labels: NDArray[np.integer] | None = None, uint16: bool = False
) -> None:
    """Writes integers [N, *A, C] as an .npz file that `load` reads back: images, videos or values, and labels.

    16-bit pairs of channels are joined.

    Raises:
        ValueError: the path does not end in .npz.
    """
    path = Path(path)
    if path.suffix != ".npz":
        raise ValueError(f"{path} does not end in .npz")
    key = {4: "images", 5: "videos"}.get(values.ndim, "values")
    arrays: dict[str, Any] = {key: join_uint16(values.astype(np.uint8)) if uint16 else values}
    if labels is not None:
        arrays["labels"] = labels
    with written_whole(path) as aside:
        np.savez_compressed(aside, **arrays)
