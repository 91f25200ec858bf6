"""Size of archives beyond the model's bits/dim, and beside other codecs; `exact_speed.py` has their speed.

    python benchmarks/compression.py overhead MODEL fashion_mnist_test.npz
    python benchmarks/compression.py rounding MODEL fashion_mnist_test.npz --count 10000

Folders of pictures are cut into tiles of the model's size. The last line is JSON.
"""

import json
import platform
import tempfile
from pathlib import Path

import numpy as np
import torch

from axial_transformers.compression import compress_files, decompress
from axial_transformers.compression.archive import to_embed
from axial_transformers.data import DataConfig, load
from axial_transformers.likelihood.bits import bits_per_dim
from axial_transformers.models import AxialTransformer
from command_line import run_command


def read(model: AxialTransformer, source: Path, count: int) -> np.ndarray:
    """Images [count, *A, C], evenly spread over the source."""
    options = DataConfig(size=model.config.shape[0], fit="tiles") if source.is_dir() else DataConfig()
    values = load(source, options, "all").values
    if len(values) < count:
        raise ValueError(f"{source} has {len(values)} images, fewer than --count {count}")
    return values[np.linspace(0, len(values) - 1, count).astype(int)]


def overhead(model: Path, source: Path, counts: tuple[int, ...] = (64, 1000)) -> dict[str, object]:
    """Bits/dim of whole files beside the model's own."""
    net, rows = AxialTransformer.from_pretrained(model), []
    for count in counts:
        values = read(net, source, count)
        images = torch.from_numpy(values)
        with tempfile.TemporaryDirectory() as folder:
            path, archive = Path(folder) / "images.npz", Path(folder) / "images.axl"
            np.savez(path, images=values)
            written = compress_files(net, path, archive, embed=False, force=True, verify=False)
            with archive.open("rb") as file:
                back = decompress(net, file)
        assert torch.equal(back, images)
        bits = torch.cat([bits_per_dim(net, some) for some in images.split(64)])
        of_file, of_model = 8 * written.size / values.size, bits.mean().item()
        row = {"images": count, "bytes": written.size, "file_bits_per_dim": of_file, "model_bits_per_dim": of_model}
        row["ratio"] = of_file / of_model
        print(row, flush=True)
        rows.append(row)
    return {"rows": rows}


def rounding(model: Path, source: Path, count: int) -> dict[str, object]:
    """Bytes of the rounded weights for an archive of `count` images, and what rounding adds to the bits of a sample."""
    net = AxialTransformer.from_pretrained(model)
    values = read(net, source, count)
    found, weights = to_embed(net, values), sum(weight.numel() for weight in net.parameters())
    bits = bits_per_dim(net, torch.from_numpy(values[:: -(-count // 512)])).mean().item()
    added = found.loss * values.size / 8
    return {
        "images": count, "model_bytes": len(found.content), "added_bits_per_dim": found.loss,
        "added_share": found.loss / bits, "bytes_of_a_weight": (len(found.content) + added) / weights,
    }  # fmt: skip


def main() -> None:
    result = run_command(overhead, rounding)
    machine = {
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "processor": platform.processor() or platform.machine(),
    }
    print(json.dumps({**result, **machine}))


if __name__ == "__main__":
    main()
