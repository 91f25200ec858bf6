"""Bits/dim of clips after their first frame: a model, video codecs, and JPEG XL. JSON on the last line.

    python benchmarks/video.py clips32 clips_test.npz --strips-to clips32.png

x264 and x265 code each clip in RGB, losslessly, at the preset veryslow. Their packets after the first frame count; what
a file holds beside packets does not. JPEG XL (effort 7; where imagecodecs is installed) codes each frame by itself, and
each as its difference to the frame before, modulo 256.
Strips are continuations of every fourth clip from its first frame, each above what really followed.
"""

import io
import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import av
import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from axial_transformers.data import DataConfig, load
from axial_transformers.decoding.sampling import complete
from axial_transformers.likelihood.evaluation import bits_of_each, summarise
from axial_transformers.models import AxialTransformer
from command_line import run_command

LOSSLESS = {
    "x264": ("libx264rgb", "rgb24", {"qp": "0", "preset": "veryslow"}),
    "x265": ("libx265", "gbrp", {"preset": "veryslow", "x265-params": "lossless=1:ctu=16:log-level=none"}),
}
"""Encoder, its format of pixels, and its options. With blocks larger than 16, x265 alters some frames of 32x32."""


def video_codec(name: str, clips: NDArray[np.uint8]) -> float:
    """Bits/dim of clips [N, T, H, W, 3] without their first frame, which the decoded ones must equal."""
    encoder, pixels, options = LOSSLESS[name]
    size = 0
    for clip in clips:
        file = io.BytesIO()
        with av.open(file, "w", format="matroska") as container:
            stream: Any = container.add_stream(encoder, rate=25, options=options)
            stream.height, stream.width, stream.pix_fmt = *clip.shape[1:3], pixels
            for frame in clip:
                container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24").reformat(format=pixels)))
            container.mux(stream.encode(None))
        with av.open(io.BytesIO(file.getvalue())) as container:
            packets = [packet.size for packet in container.demux(video=0)]
        with av.open(io.BytesIO(file.getvalue())) as container:
            decoded = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
        assert np.array_equal(np.stack(decoded), clip), f"{name} is not lossless"
        size += sum(packets[1:])
    return 8 * size / clips[:, 1:].size


def jpeg_xl(frames: NDArray[np.uint8]) -> float:
    """Bits/dim of frames [N, H, W, C], one file each."""
    from imagecodecs import jpegxl_encode

    size = sum(len(jpegxl_encode(frame, lossless=True, effort=7, numthreads=1)) for frame in frames)
    return 8 * size / frames.size


def strips(net: AxialTransformer, clips: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Continuations [2 N, T, H, W, C] of clips [N, T, H, W, C], each followed by its clip."""
    sampled = complete(net, torch.from_numpy(clips), frames=1, seed=0)
    return np.stack([sampled.numpy(), clips], axis=1).reshape(-1, *clips.shape[1:])


def main(model: str, source: Path, batch_size: int = 4, strips_to: Path | None = None) -> None:
    """The first frame is given.

    Args:
        model: folder or name of a model of clips.
        source: clips, resized to the model's frames.
        strips_to: a PNG file for the strips.
    """
    net = AxialTransformer.from_pretrained(model)
    clips = np.asarray(load(source, DataConfig(size=net.config.shape[1], cut="crop"), "all").values).astype(np.uint8)
    if strips_to:
        rows = [np.concatenate(list(clip), axis=1) for clip in strips(net, clips[::4])]
        Image.fromarray(np.concatenate(rows)).save(strips_to)
    bits = bits_of_each(net, torch.from_numpy(clips), batch_size=batch_size, given_frames=1)
    metrics = summarise(bits)
    frames, before = clips[:, 1:].reshape(-1, *clips.shape[2:]), clips[:, :-1].reshape(-1, *clips.shape[2:])
    codecs = {name: video_codec(name, clips) for name in LOSSLESS}
    if find_spec("imagecodecs"):
        codecs |= {"JPEG XL": jpeg_xl(frames), "JPEG XL of differences": jpeg_xl(frames - before)}
    found = {
        "clips": metrics.images,
        "frames": len(frames),
        "model": metrics.bits_per_dim,
        "standard_error": metrics.standard_error,
        **codecs,
        "below the best codec": 1 - metrics.bits_per_dim / min(codecs.values()),
        "each clip": [round(each, 3) for each in bits.tolist()],
    }
    for name, figure in found.items():
        print(f"{name}: {figure}")
    print(json.dumps(found))


if __name__ == "__main__":
    run_command(main)
