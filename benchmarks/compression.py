"""Size of archives beyond the model's bits/dim, and their speed; `exact_settings.py` decodes in other settings.

    python benchmarks/compression.py overhead MODEL fashion_mnist_test.npz
    python benchmarks/compression.py codecs MODEL fashion_mnist_test.npz --count 10000

Folders of pictures are cut into tiles of the model's size. The last line is JSON.
"""

import json
import platform
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch

from axial_transformers.compression import compress, compress_files, container, decompress
from axial_transformers.compression.container import Chunk
from axial_transformers.data import DataConfig, load
from axial_transformers.likelihood.bits import bits_per_dim
from axial_transformers.models import AxialTransformer
from axial_transformers.pictures import other_codecs as comparison
from command_line import run_command

Result = TypeVar("Result")


def read(model: AxialTransformer, source: Path, count: int) -> np.ndarray:
    """Images [count, *A, C], evenly spread over the source."""
    options = DataConfig(size=model.config.shape[0], fit="tiles") if source.is_dir() else DataConfig()
    values = load(source, options, "all").values
    if len(values) < count:
        raise ValueError(f"{source} has {len(values)} images, fewer than --count {count}")
    return values[np.linspace(0, len(values) - 1, count).astype(int)]


def timed(work: Callable[[], Result]) -> tuple[Result, float]:
    start = time.perf_counter()
    return work(), time.perf_counter() - start


def overhead(model: Path, source: Path, counts: tuple[int, ...] = (64, 1000), decode: bool = True) -> dict[str, object]:
    """Bits/dim of whole files beside the model's own; throughput, without verification."""
    net, rows = AxialTransformer.from_pretrained(model), []
    for count in counts:
        values = read(net, source, count)
        images = torch.from_numpy(values)
        with tempfile.TemporaryDirectory() as folder:
            np.savez(Path(folder) / "images.npz", images=values)
            written, encoding = timed(
                lambda folder=folder: compress_files(
                    net, Path(folder) / "images.npz", Path(folder) / "images.axl", verify=False
                )
            )
            with (Path(folder) / "images.axl").open("rb") as file:
                header = container.read_header(file)
                chunks = [Chunk.unpack(container.read_chunk(file, header, i)) for i in range(len(header.chunks))]
                file.seek(0)
                back, decoding = timed(lambda file=file: decompress(net, file)) if decode else (images, None)
        assert torch.equal(back, images)
        bits, scoring = timed(lambda images=images: torch.cat([bits_per_dim(net, some) for some in images.split(64)]))
        of_file, of_model = comparison.bits_per_dim(written.size, values), bits.mean().item()
        rows.append(
            {
                "images": count, "bytes": written.size, "file_bits_per_dim": of_file, "model_bits_per_dim": of_model,
                "ratio": of_file / of_model, "chunks": len(chunks),
                "webp": sum(len(chunk.webp) for chunk in chunks),
                "encode_images_per_second": count / encoding, "decode_images_per_second": decoding and count / decoding,
                "encode_kb_per_second": values.nbytes / 1000 / encoding,
                "decode_kb_per_second": decoding and values.nbytes / 1000 / decoding, "score_seconds": scoring,
            }
        )  # fmt: skip
        print(rows[-1], flush=True)
    return {"rows": rows}


def codecs(model: Path, source: Path, count: int = 1000, verify: bool = False) -> dict[str, object]:
    """Bits/dim of the archive beside PNG, WebP and JPEG XL: one file each, and all on one sheet."""
    net = AxialTransformer.from_pretrained(model)
    values = read(net, source, count)
    archive, seconds = timed(lambda: compress(net, torch.from_numpy(values), verify=verify))
    rates: dict[str, float | None] = {"archive": comparison.bits_per_dim(len(archive), values)}
    print(rates, f"{seconds:.0f} s", flush=True)
    for name, encode in comparison.codecs().items():
        rates[name] = comparison.one_file_each(encode, values, iter)
        rates[f"{name}, one sheet"] = comparison.one_sheet(encode, values)
        print(rates, flush=True)
    return {"images": count, "bytes": len(archive), "bits_per_dim": rates, "encode_seconds": seconds}


def main() -> None:
    result = run_command(overhead, codecs)
    machine = {
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "processor": platform.processor() or platform.machine(),
    }
    print(json.dumps({**result, **machine}))


if __name__ == "__main__":
    main()
