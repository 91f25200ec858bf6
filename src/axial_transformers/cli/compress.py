"""axial compress: images to one file, losslessly."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from rich.console import Console
from rich.table import Table

from axial_transformers.cli.console import ERRORS
from axial_transformers.cli.parsing import Positional, parse
from axial_transformers.cli.runs import Weights, open_model
from axial_transformers.compression import compress_files
from axial_transformers.compression import other_codecs as comparison
from axial_transformers.likelihood.bits import bits_per_dim
from axial_transformers.progress import bar


@dataclass(frozen=True, kw_only=True)
class Compress:
    """Compress a folder of pictures, or an array of images, into one file that only this model reads.

    axial compress runs/fashion_mnist fashion_mnist_test.npz test.axl
    axial compress runs/photos photos/ photos.axl --other-sizes tile --compare
    """

    model: Positional[str]
    """Folder of a run or an exported model, or a hub id. Whoever decompresses needs the same one."""
    source: Positional[Path]
    """Folder of pictures, or .npz or .npy file with one array of images. Pixels, names and modes are kept."""
    archive: Positional[Path]
    """The file to write, NAME.axl."""
    other_sizes: Literal["refuse", "tile"] = "refuse"
    """Images of another size than the model's: refuse them, or cut them into tiles of its size."""
    verify: bool = True
    """Decompress and compare before the file appears."""
    compare: bool = False
    """Also say what PNG, WebP and (with the extra `codecs`) JPEG XL make of the images."""
    chunk_images: int = 128
    """Images that can only be read together, 64 to 128: more are smaller, but need more memory."""
    weights: Weights = "ema"
    """The running average of the weights, or the raw ones of the newest checkpoint."""
    device: str = "auto"
    """cuda, cuda:1, cpu, ...; auto takes CUDA if there is any."""
    json: bool = False
    """Print one JSON object."""


def main(argv: Sequence[str]) -> None:
    """Runs the verb."""
    options = parse(Compress, argv, "compress")
    model = open_model(options.model, options.weights, options.device).model
    written = compress_files(
        model, options.source, options.archive, other_sizes=options.other_sizes, verify=options.verify,
        chunk_images=options.chunk_images, progress=bar("chunks"),
    )  # fmt: skip
    if written.left_out:
        ERRORS.print(f"warning: not in the archive: {', '.join(written.left_out)}", style=None, highlight=False)
    images = written.images.numpy()
    device = model.device
    bits = torch.cat(
        [bits_per_dim(model, some.to(device)).cpu() for some in written.images.split(64)] or [torch.zeros(1)]
    )
    rates: dict[str, float | None] = {
        "archive": comparison.bits_per_dim(written.size, images) if images.size else None,
        "model": bits.mean().item(),
    }
    if options.compare and images.size:
        for name, encode in comparison.codecs().items():
            rates[name] = comparison.one_file_each(encode, images, bar(name))
            rates[f"{name}, one sheet"] = comparison.one_sheet(encode, images)
    if options.json:
        figures = {"archive": str(options.archive), "images": len(images), "bytes": written.size, "bits_per_dim": rates}
        print(json.dumps(figures))
        return
    console = Console()
    console.print(f"{options.archive}: {len(images):,} images, {written.size:,} bytes", highlight=False, soft_wrap=True)
    table = Table(box=None)
    table.add_column("", justify="left")
    table.add_column("bits/dim", justify="right")
    for name, value in rates.items():
        table.add_row(name, "-" if value is None else f"{value:.4f}")
    console.print(table)
