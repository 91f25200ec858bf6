"""Bits/dim of clips after their first frame: a model, and JPEG XL on the same frames. JSON on the last line.

    python benchmarks/video.py runs/clips32 clips_test.npz

JPEG XL is lossless, effort 7: each frame by itself, and each as its difference to the frame before, modulo 256.
"""

import json
from pathlib import Path

import numpy as np
import torch
import tyro
from imagecodecs import jpegxl_encode
from numpy.typing import NDArray
from tyro.conf import Positional

from axial_transformers.compression.comparison import bits_per_dim
from axial_transformers.data import DataConfig, load
from axial_transformers.evaluation import bits_of_each, summarise
from axial_transformers.models import AxialTransformer


def jpeg_xl(frames: NDArray[np.uint8]) -> float:
    """Bits/dim of frames [N, H, W, C], one file each."""
    size = sum(len(jpegxl_encode(frame, lossless=True, effort=7, numthreads=1)) for frame in frames)
    return bits_per_dim(size, frames)


def main(model: Positional[Path], source: Positional[Path], batch_size: int = 4) -> None:
    """The first frame is given.

    Args:
        model: folder of a model of clips.
        source: clips, resized to the model's frames.
    """
    net = AxialTransformer.from_pretrained(model)
    clips = load(source, DataConfig(size=net.config.shape[1], fit="crop"), "all").values
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
    tyro.cli(main)
