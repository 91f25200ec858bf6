"""Videos: files, folders of frames and TFRecord files, cut into clips; movies written."""

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from axial_transformers.data import bair_videos, images
from axial_transformers.data.config import DataConfig
from axial_transformers.data.errors import ParsingError, parsing, say
from axial_transformers.data.folders import natural_key
from axial_transformers.data.images import MODES, PixelKind, at_size, decoded
from axial_transformers.storage import import_extra

MISSING = 0.05
"""Share of a video's length from which on it counts as cut off."""
SUFFIXES = (".mp4", ".m4v", ".mov", ".mkv", ".webm", ".avi", ".gif")


def pyav() -> Any:
    """Return the package av; raise ValueError if it is missing."""
    return import_extra("video", "av", "a video")


def read_videos(file: Path, kind: PixelKind, options: DataConfig) -> Iterator[tuple[str, NDArray[np.integer]]]:
    """Yield the videos [T, H, W, C] of a file or a folder of frames, each with a suffix: #record of a TFRecord file."""
    for suffix, frames in _videos_in(file, kind, options):
        chosen = islice(frames, 0, None, options.stride)
        images_of_kind = (frame.convert(MODES[kind]) for frame in chosen)
        values = [at_size(file, frame, options, Image.Resampling.BOX) for frame in images_of_kind]
        for number, frame in enumerate(values):
            if frame.shape != values[0].shape:
                raise ParsingError(
                    f"{file} changes its frames' size at frame {number * options.stride}, from 0: give data.size, and"
                    " data.cut=crop or stretch"
                )
        if len(values) < (options.frames or 1):
            raise ParsingError(
                f"{file} has {len(values)} frames at data.stride={options.stride}, too few for a clip of"
                f" data.frames={options.frames}: remove it, or lower these"
            )
        yield suffix, np.stack(values)


def choose_kind(videos: Sequence[Path], options: DataConfig) -> PixelKind:
    """Return the kind as which all videos are read: by default rgb, and of folders of frames that of their images."""
    if any(video.suffix.lower() in SUFFIXES and video.is_file() for video in videos):
        pyav()
    if all(video.is_dir() for video in videos):
        return images.choose_kind([frame for video in videos for frame in frames_in(video)], options)
    return "rgb" if options.mode == "auto" else options.mode


def frames_in(folder: Path) -> list[Path]:
    """Return the images of a folder that can be frames, frame 10 after frame 9."""
    frames: list[Path] = []
    for file in folder.iterdir():
        suffix = file.suffix.lower()
        if suffix in images.SUFFIXES and suffix not in SUFFIXES and not file.name.startswith("."):
            frames.append(file)
    return sorted(frames, key=natural_key)


def _videos_in(file: Path, kind: PixelKind, options: DataConfig) -> Iterator[tuple[str, Iterator[Image.Image]]]:
    """Yield the frames of each video of a file or folder, with a suffix of the video's name."""
    if file.is_dir():
        yield "", (decoded(frame, kind, options) for frame in frames_in(file))
    elif file.suffix.lower() in bair_videos.SUFFIXES:
        for number, frames in enumerate(bair_videos.read_videos(file)):
            yield f"#{number:04d}", iter(frames)
    else:
        yield "", _decoded(file)


def _decoded(video: Path) -> Iterator[Image.Image]:
    with parsing(video, "is not a whole video"), video.open("rb") as stream, pyav().open(stream) as container:
        if not container.streams.video:
            raise ParsingError(f"{video} holds no video: remove it")
        track = container.streams.video[0]
        track.codec_context.thread_count = 1
        times: list[float] = []
        stated = _stated_seconds(container, track)
        for number, frame in enumerate(container.decode(track)):
            if frame.is_corrupt:
                raise ParsingError(f"{video} is damaged at frame {number}: replace or remove it")
            if not number and max(component.bits for component in frame.format.components) > 8:
                say(f"{video} has more than 8 bits a channel: its frames are converted to 8")
            has_alpha = any(component.is_alpha for component in frame.format.components)
            pixels = frame.to_ndarray(format="rgba" if has_alpha else "rgb24")
            if has_alpha and pixels[..., 3].min() < 255:
                raise ParsingError(f"{video} is transparent in places: flatten it onto a background first")
            times.append(frame.time or 0.0)
            yield Image.fromarray(np.ascontiguousarray(_as_displayed(frame, pixels[..., :3])))
    _say_if_cut_off(video, times, stated)


def _say_if_cut_off(video: Path, times: Sequence[float], stated: float) -> None:
    """Say where frames at these seconds are much shorter than a file states."""
    count = len(times)
    if count > 1 and (max(times) - min(times)) * count / (count - 1) < (1 - MISSING) * stated:
        say(f"{video} has only {count:,} frames, of the {stated:.2f} seconds that it states, as a file that is cut off")


def _stated_seconds(container: Any, track: Any) -> float:
    """Return how long the header says that a track is; 0 if it does not."""
    if track.duration:
        return float(track.duration * track.time_base)
    if "DURATION" in track.metadata:  # as Matroska has it, 00:01:02.345
        hours, minutes, seconds = map(float, track.metadata["DURATION"].split(":"))
        return 3600 * hours + 60 * minutes + seconds
    return container.duration / 1e6 if container.duration and len(container.streams) == 1 else 0.0


def _as_displayed(frame: Any, pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return pixels [H, W, C] turned and mirrored by the frame's matrix, which takes (x, y) to (ax + cy, bx + dy)."""
    stored = frame.side_data.get("DISPLAYMATRIX")
    if stored is None:
        return pixels
    a, b, _, c, d, *_ = np.frombuffer(stored, np.int32).tolist()
    across, down = a, d
    if abs(a) + abs(d) < abs(b) + abs(c):
        pixels, across, down = pixels.swapaxes(0, 1), c, b
    return pixels[:: -1 if down < 0 else 1, :: -1 if across < 0 else 1]


def write_mp4(file: Path, frames: NDArray[np.uint8], fps: int) -> None:
    """Write frames [T, H, W] or [T, H, W, 3] of even sides in H.264."""
    av = pyav()
    with av.open(file, "w", "mp4") as container:
        stream = container.add_stream("libx264", rate=fps, options={"crf": "12"})
        stream.pix_fmt = "yuv420p"
        stream.height, stream.width = frames.shape[1:3]
        for pixels in frames:
            frame = av.VideoFrame.from_ndarray(pixels, format="gray" if pixels.ndim == 2 else "rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
