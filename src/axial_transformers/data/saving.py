"""Examples and samples written as pictures and arrays."""

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from axial_transformers.data.contact_sheet import Palette, Window, for_display, image_grid
from axial_transformers.data.uint16 import join_uint16
from axial_transformers.storage.files import folder_written_whole, written_whole


def save_grid(
    path: str | Path,
    values: NDArray[np.integer],
    columns: int | None = None,
    scale: int | None = None,
    num_values: int = 256,
    uint16: bool = False,
    palette: Palette = "auto",
    window: Window | None = None,
) -> None:
    """Writes `image_grid` as a PNG file."""
    grid = image_grid(values, columns, scale, num_values, uint16, palette, window)
    with written_whole(path) as aside:
        grid.save(aside, format="PNG")


def save_images(
    folder: str | Path,
    values: NDArray[np.integer],
    names: Sequence[str] | None = None,
    num_values: int = 256,
    uint16: bool = False,
    palette: Palette = "auto",
) -> None:
    """Writes each of integers [N, *A, C] as a PNG file of a new folder, called 0000.png, ... or by `names`.

    Images of one or three 16-bit channels are written as 16-bit PNG, without loss; everything else as `for_display`
    shows it.

    Raises:
        FileExistsError: the folder exists and is not empty.
    """
    if uint16 and values.ndim == 4 and values.shape[-1] in (2, 6):
        pictures: NDArray[np.integer] = join_uint16(values.astype(np.uint8))
        pictures = pictures if pictures.shape[-1] == 3 else pictures[..., 0]
    else:
        pictures = for_display(values, num_values, uint16, palette)
    with folder_written_whole(folder) as aside:
        for i, picture in enumerate(pictures):
            path = aside / f"{names[i] if names else f'{i:04d}'}.png"
            if picture.dtype == np.uint16 and picture.ndim == 3:
                path.write_bytes(_deep_colour_png(picture))
            else:
                Image.fromarray(picture).save(path)


def _deep_colour_png(picture: NDArray[np.integer]) -> bytes:
    """The PNG file of uint16 [H, W, 3], which Pillow cannot write."""
    encoder = av.CodecContext.create("png", "w")
    assert isinstance(encoder, av.VideoCodecContext)
    encoder.height, encoder.width = picture.shape[:2]
    encoder.pix_fmt, encoder.time_base = "rgb48be", Fraction(1)
    frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(picture), format="rgb48be")
    return b"".join(bytes(packet) for packet in [*encoder.encode(frame), *encoder.encode(None)])


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
