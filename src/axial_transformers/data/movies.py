"""Movies written by PyAV."""

import io
from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from axial_transformers.storage.files import written_whole

MOVIES = (".mp4", ".gif", ".mkv")
"""Suffixes of movies."""

_LOSSLESS = {3: ("ffv1", "gray"), 4: ("ffv1", "bgr0")}
"""Codec and pixels by the number of axes of frames [T, H, W] and [T, H, W, 3]."""


def save_movie(path: str | Path, frames: NDArray[np.uint8], fps: int = 8) -> None:
    """Writes frames [T, H, W] or [T, H, W, 3] as .mp4 (H.264, for any player), .gif (256 colours) or .mkv (lossless).

    Sides of .mp4 are even, as players need: an odd one gets one more line, which is white.

    Raises:
        ValueError: another suffix; an fps outside of 1..100.
    """
    path = Path(path)
    if path.suffix not in MOVIES:
        raise ValueError(f"{path} does not end in {', '.join(MOVIES)}")
    if not 1 <= fps <= 100:
        raise ValueError(f"fps must be within 1..100, not {fps}")
    with written_whole(path) as aside:
        if path.suffix == ".gif":
            first, *others = map(Image.fromarray, frames)
            first.save(aside, format="GIF", save_all=True, append_images=others, duration=round(1000 / fps), loop=0)
        elif path.suffix == ".mkv":
            _encode(aside, frames, fps, *_LOSSLESS[frames.ndim], {})
        else:
            height, width = frames.shape[1:3]
            padding = [(0, 0), (0, height % 2), (0, width % 2)] + [(0, 0)] * (frames.ndim - 3)
            even = np.pad(frames, padding, constant_values=255)
            _encode(aside, even, fps, "libx264", "yuv420p", {"crf": "12"})


def lossless_movie(frames: NDArray[np.uint8], rate: Fraction) -> bytes:
    """The bytes of an .mkv file of frames [T, H, W] or [T, H, W, 3], at any rate."""
    file = io.BytesIO()
    write_lossless(file, frames, rate, gray=frames.ndim == 3)
    return file.getvalue()


def write_lossless(file: Path | io.BytesIO, frames: Iterable[NDArray[np.uint8]], rate: Fraction, *, gray: bool) -> None:
    """`lossless_movie` of frames [H, W] if gray, otherwise [H, W, 3], one after the other into a file."""
    _encode(file, frames, rate, *_LOSSLESS[3 if gray else 4], {}, "matroska")


def _encode(
    file: Path | io.BytesIO,
    frames: Iterable[NDArray[np.uint8]],
    fps: int | Fraction,
    codec: str,
    pixels: str,
    options: dict[str, str],
    container_format: str | None = None,
) -> None:
    with av.open(file, "w", container_format) as container:
        stream = container.add_stream(codec, rate=fps, options=options)
        assert isinstance(stream, av.VideoStream)
        stream.pix_fmt = pixels
        for number, frame in enumerate(frames):
            if not number:
                stream.height, stream.width = frame.shape[:2]
            picture = av.VideoFrame.from_ndarray(
                np.ascontiguousarray(frame), format="gray" if frame.ndim == 2 else "rgb24"
            )
            container.mux(stream.encode(picture))
        container.mux(stream.encode())


def deep_colour_png(picture: NDArray[np.integer]) -> bytes:
    """The PNG file of uint16 [H, W, 3], which Pillow cannot write."""
    encoder = av.CodecContext.create("png", "w")
    assert isinstance(encoder, av.VideoCodecContext)
    encoder.height, encoder.width = picture.shape[:2]
    encoder.pix_fmt, encoder.time_base = "rgb48be", Fraction(1)
    frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(picture), format="rgb48be")
    return b"".join(bytes(packet) for packet in [*encoder.encode(frame), *encoder.encode(None)])
