"""Lossless WebP, the fallback codec: for images that it makes smaller than the model does."""

import io

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from axial_transformers.compression.container import DamagedError

_LONGEST_SIDE = 16383


def encode(values: NDArray[np.uint8]) -> bytes | None:
    """An example [*A, C] as a WebP file, or None if a side is too long for one.

    Three channels are colours; other channels are placed side by side, and outer axes below each other.
    """
    picture = values.reshape(*_picture_shape(values.shape))
    if max(picture.shape[:2]) > _LONGEST_SIDE:
        return None
    file = io.BytesIO()
    try:
        Image.fromarray(picture).save(file, "WEBP", lossless=True)
    except KeyError as error:  # Pillow tries to load it when it is first used, and goes without it if it cannot
        raise OSError("Pillow's WebP codec is missing, or could not be loaded for want of memory") from error
    return file.getvalue()


def decode(file: bytes, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """The example of the given shape [*A, C] in a WebP file.

    Raises:
        DamagedError: not such a file, or of another size, which is checked before memory for it is allocated.
    """
    rows, columns, *colours = _picture_shape(shape)
    sides = int.from_bytes(file[21:25], "little")  # width - 1 and height - 1, 14 bits each
    expected = columns - 1 | rows - 1 << 14
    if file[:4] + file[8:16] != b"RIFFWEBPVP8L" or sides & 0xFFFFFFF != expected:
        raise DamagedError(f"an image is stored as something else than a lossless WebP file of {columns}x{rows} pixels")
    try:
        with Image.open(io.BytesIO(file), formats=["WEBP"]) as image:
            pixels = np.array(image)
    except Exception as error:  # decoders of damaged files raise errors of every kind
        raise DamagedError(f"an image stored as WebP is damaged ({type(error).__name__})") from error
    if pixels.shape != (rows, columns, 3):
        raise DamagedError("an image stored as WebP is not in RGB")
    return np.ascontiguousarray(pixels if colours else pixels[..., 0]).reshape(shape)


def _picture_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    *outer, columns, channels = shape
    rows = int(np.prod(outer))
    return (rows, columns, 3) if channels == 3 else (rows, columns * channels)
