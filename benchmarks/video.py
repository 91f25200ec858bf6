"""Bits/dim of clips after their first frame: a model, and JPEG XL on the same frames. JSON on the last line.

    python benchmarks/video.py runs/clips32 clips_test.npz --strips-to clips32.png

JPEG XL is lossless, effort 7: each frame by itself, and each as its difference to the frame before, modulo 256.
Strips are continuations of every fourth clip from its first frame, each above what really followed.
"""

import json
from pathlib import Path

import numpy as np
import torch
from imagecodecs import jpegxl_encode
from numpy.typing import NDArray
from PIL import Image

from axial_transformers.data import DataConfig, load
from axial_transformers.decoding.sampling import complete
from axial_transformers.likelihood.evaluation import bits_of_each, summarise
from axial_transformers.models import AxialTransformer
from axial_transformers.pictures.other_codecs import bits_per_dim
from command_line import run_command


def jpeg_xl(frames: NDArray[np.uint8]) -> float:
    """Bits/dim of frames [N, H, W, C], one file each."""
    size = sum(len(jpegxl_encode(frame, lossless=True, effort=7, numthreads=1)) for frame in frames)
    return bits_per_dim(size, frames)


def strips(net: AxialTransformer, clips: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Continuations [2 N, T, H, W, C] of clips [N, T, H, W, C], each followed by its clip."""
    drawn = complete(net, torch.from_numpy(clips), frames=1, generator=torch.Generator().manual_seed(0))
    return np.stack([drawn.numpy(), clips], axis=1).reshape(-1, *clips.shape[1:])


def main(model: Path, source: Path, batch_size: int = 4, strips_to: Path | None = None) -> None:
    """The first frame is given.

    Args:
        model: folder of a model of clips.
        source: clips, resized to the model's frames.
        strips_to: a PNG file for the strips.
    """
    net = AxialTransformer.from_pretrained(model)
    clips = load(source, DataConfig(size=net.config.shape[1], fit="crop"), "all").values
    if strips_to:
        rows = [np.concatenate(list(clip), axis=1) for clip in strips(net, clips[::4])]
        Image.fromarray(np.concatenate(rows)).save(strips_to)
    bits = bits_of_each(net, torch.from_numpy(clips), batch_size=batch_size, given_frames=1)
    figures = summarise(bits)
    frames, before = clips[:, 1:].reshape(-1, *clips.shape[2:]), clips[:, :-1].reshape(-1, *clips.shape[2:])
    codec = jpeg_xl(frames)
    found = {
        "clips": figures.images,
        "frames": len(frames),
        "model": figures.bits_per_dim,
        "standard_error": figures.standard_error,
        "JPEG XL": codec,
        "JPEG XL of differences": jpeg_xl(frames - before),
        "below JPEG XL": 1 - figures.bits_per_dim / codec,
        "each clip": [round(each, 3) for each in bits.tolist()],
    }
    for name, figure in found.items():
        print(f"{name}: {figure}")
    print(json.dumps(found))


if __name__ == "__main__":
    run_command(main)
