"""16-bit channels as pairs of 8-bit ones: medical, satellite and microscope images."""

import numpy as np
from numpy.typing import NDArray


def split_uint16(values: NDArray[np.uint16]) -> NDArray[np.uint8]:
    """uint16 [..., C] -> uint8 [..., 2 C]: high byte and low byte of channel 0, then of channel 1, ...

    Raises:
        ValueError: another type than uint16.
    """
    if values.dtype.kind != "u" or values.dtype.itemsize != 2:
        raise ValueError(f"uint16 values are needed, not {values.dtype}")
    return np.ascontiguousarray(values, ">u2").view(np.uint8)


def join_uint16(values: NDArray[np.uint8]) -> NDArray[np.uint16]:
    """uint8 [..., 2 C] -> uint16 [..., C]; undoes `split_uint16`.

    Raises:
        ValueError: another type than uint8, or an odd number of channels.
    """
    if values.dtype != np.uint8 or values.shape[-1] % 2:
        raise ValueError(f"uint8 pairs of channels are needed, not {values.dtype} {list(values.shape)}")
    return np.ascontiguousarray(values).view(">u2").astype(np.uint16)
