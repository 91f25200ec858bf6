"""Videos: files, folders of frames and TFRecord files, cut into clips; frames encoded."""

import io
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from axial_transformers.data import bair_videos, picture_files
from axial_transformers.data.blocks_of_arrays import examples_of
from axial_transformers.data.config import DataConfig, Palette
from axial_transformers.data.examples import Examples
from axial_transformers.data.folders import FitError, Selection, gather, natural_key
from axial_transformers.data.images import PixelKind, decoded, fitted, kind_of_images
from axial_transformers.data.parsing import ParsingError, parsing, say
from axial_transformers.progress import Progress
from axial_transformers.storage import require_extra

if TYPE_CHECKING:
    import av

SUFFIXES = (".mp4", ".m4v", ".mov", ".mkv", ".webm", ".avi", ".gif")


def pyav() -> ModuleType:
    """Return the package av; raise ValueError if it is missing."""
    require_extra("video", "av", "a video")
    return import_module("av")


def clips(
    video: Path, frames: Iterable[Image.Image], options: DataConfig
) -> Iterator[tuple[NDArray[np.integer], list[str]]]:
    """Yield clips of one video: parts [n, T, H, W, C], each with n suffixes of names; n > 1 for tiles.

    With random offsets, all frames are one clip. Frames after the last clip are decoded too, to find damage.
    """
    stride, frames_of_clip = (options.stride, options.frames) if options.offsets == "fixed" else (1, None)
    clip, tiles = list[NDArray[np.integer]](), list[str]()
    length = number = 0
    for length, frame in enumerate(frames, start=1):
        if (length - 1) % stride:
            continue
        pixels, tiles = fitted(video, frame, options, Image.Resampling.BOX)
        if clip and clip[0].shape != pixels.shape:
            where = f"{video} changes its frames' size at frame {length}"
            raise FitError(f"{where}: give data.size, and data.fit=crop or stretch")
        clip.append(pixels)
        if len(clip) == frames_of_clip:
            yield np.stack(clip, axis=1), [f"#{number:04d}{tile}" for tile in tiles]
            clip, number = [], number + 1
    wanted = 1 + ((options.frames or 1) - 1) * options.stride
    if length < wanted:
        few = f"{video} has {length} frames, too few for a clip of {wanted}"
        raise ValueError(f"{few}: remove it, or lower data.frames or data.stride")
    if frames_of_clip is None:
        yield np.stack(clip, axis=1), tiles


def load_videos(selection: Selection, options: DataConfig, kind: PixelKind, progress: Progress) -> Examples:
    """Return clips [N, T, H, W, C] of videos, of random offsets or fixed ones.

    Names are paths below the root, then #record of a TFRecord file, #clip, and #row,column of tiles.
    """
    of_records = any(map(_holds_records, selection.chosen))
    skip_bad = 0 if options.skip_bad is None and of_records else options.skip_bad

    def read(video: Path) -> Iterator[tuple[NDArray[np.integer], list[str]]]:
        if not _holds_records(video):
            yield from clips(video, frames_of(video, kind, options.background, options.palette), options)
            return
        for number, frames in enumerate(bair_videos.read_videos(video)):
            for examples, suffixes in clips(video, (_in_kind(frame, kind) for frame in frames), options):
                yield examples, [f"#{number:04d}{suffix}" for suffix in suffixes]

    found = gather(selection, read, skip_bad, progress, alike=options.offsets == "fixed")
    return examples_of(found, options, selection.root, kind == "gray16")


def kind_of_videos(videos: Sequence[Path], options: DataConfig) -> PixelKind:
    """Return the kind as which all videos are read: by default rgb if any is."""
    options.require_one_size()
    if any(video.suffix.lower() in SUFFIXES for video in videos if not video.is_dir()):
        pyav()
    folders = [frame for video in videos if video.is_dir() for frame in frames_in(video)]
    files = [video for video in videos if not video.is_dir()]
    if folders and not files:
        return kind_of_images(folders, options)
    if options.mode != "auto":
        return options.mode
    gray = all(map(_is_gray, files)) and (not folders or kind_of_images(folders, options) == "gray")
    return "gray" if gray else "rgb"


def frames_in(folder: Path) -> list[Path]:
    """Return the images of a folder, frame 10 after frame 9."""
    return sorted((file for file in folder.iterdir() if is_frame(file)), key=natural_key)


def is_frame(file: Path) -> bool:
    """Return True if a file can be one frame of a video."""
    suffix = file.suffix.lower()
    return suffix in picture_files.SUFFIXES and suffix not in SUFFIXES and not file.name.startswith(".")


def frames_of(
    video: Path, kind: PixelKind, background: str | None = None, palette: Palette = "colours"
) -> Iterator[Image.Image]:
    """Yield the frames of a file or a folder, in mode I (16-bit), L, RGB or RGBA; of a folder, on the background."""
    if video.is_dir():
        return (decoded(frame, kind, background, palette) for frame in frames_in(video))
    return (_in_kind(frame, kind) for frame in _decoded(video))


def _in_kind(frame: Image.Image, kind: PixelKind) -> Image.Image:
    return frame.convert("RGB" if kind == "rgb" else "L")


def _is_gray(video: Path) -> bool:
    if _holds_records(video):
        return False
    try:
        first = next(_decoded(video), None)
    except ValueError:
        return True
    return first is not None and first.mode == "L"


def _holds_records(video: Path) -> bool:
    return video.suffix.lower() in bair_videos.SUFFIXES


def _decoded(video: Path) -> Iterator[Image.Image]:
    av = pyav()
    with parsing(video, "is not a whole video"), video.open("rb") as stream, av.open(stream) as container:
        if not container.streams.video:
            raise ParsingError(f"{video} holds no video: remove it")
        track = container.streams.video[0]
        track.codec_context.thread_count = 1
        for number, frame in enumerate(container.decode(track)):
            if frame.is_corrupt:
                raise ParsingError(f"{video} is damaged at frame {number}: replace or remove it")
            if not number and max(component.bits for component in frame.format.components) > 8:
                say(f"{video} has more than 8 bits a channel: its frames are converted to 8")
            yield _picture(video, frame)


def _picture(video: Path, frame: "av.VideoFrame") -> Image.Image:
    if frame.format.name.startswith("gray"):
        pixels = frame.to_ndarray(format="gray")
    elif any(component.is_alpha for component in frame.format.components):
        pixels = frame.to_ndarray(format="rgba")
        if pixels[..., 3].min() < 255:
            raise ParsingError(f"{video} is transparent in places: flatten it onto a background first")
        pixels = pixels[..., :3]
    else:
        pixels = frame.to_ndarray(format="rgb24")
    return Image.fromarray(np.ascontiguousarray(np.rot90(pixels, round(frame.rotation / 90))))


def write_lossless(file: Path | io.BytesIO, frames: Iterable[NDArray[np.uint8]], rate: Fraction, *, gray: bool) -> None:
    """Write frames [H, W] or [H, W, 3] one after the other as an .mkv file."""
    encode(file, frames, rate, "ffv1", "gray" if gray else "bgr0", {}, "matroska")


def encode(
    file: Path | io.BytesIO,
    frames: Iterable[NDArray[np.uint8]],
    fps: int | Fraction,
    codec: str,
    pixels: str,
    options: dict[str, str],
    container_format: str | None = None,
) -> None:
    """Write frames uint8 [H, W] or [H, W, 3] with a codec of PyAV."""
    av = pyav()
    with av.open(file, "w", container_format) as container:
        stream = container.add_stream(codec, rate=fps, options=options)
        stream.pix_fmt = pixels
        for number, frame in enumerate(frames):
            if not number:
                stream.height, stream.width = frame.shape[:2]
            picture = av.VideoFrame.from_ndarray(
                np.ascontiguousarray(frame), format="gray" if frame.ndim == 2 else "rgb24"
            )
            container.mux(stream.encode(picture))
        container.mux(stream.encode())
