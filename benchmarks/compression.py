"""Size of archives beyond the model's bits/dim, their speed, and whether decoders of other settings agree.

    python benchmarks/compression.py overhead MODEL fashion_mnist_test.npz --version 2
    python benchmarks/compression.py exactness MODEL fashion_mnist_test.npz --count 2000
    python benchmarks/compression.py codecs MODEL fashion_mnist_test.npz --count 10000

Folders of pictures are cut into tiles of the model's size. The last line is JSON.
"""

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import torch
import tyro

from axial_transformers.compression import compress, compress_files, container, decompress
from axial_transformers.compression import other_codecs as comparison
from axial_transformers.compression.chunk import Chunk
from axial_transformers.compression.exact import in_float64
from axial_transformers.data import DataConfig, load
from axial_transformers.decoding import decode
from axial_transformers.likelihood.bits import bits_per_dim
from axial_transformers.models import AxialTransformer

Positional = tyro.conf.Positional
DECODERS: list[tuple[int, int, dict[str, str]]] = [
    (64, 1, {}),
    (64, 2, {"ATEN_CPU_CAPABILITY": "default"}),
    (7, 2, {"ONEDNN": "off"}),
    (64, 2, {}),
    (1, 1, {}),
]
"""Micro-batch, threads, environment of each process that decodes."""


def read(model: AxialTransformer, source: Path, count: int) -> np.ndarray:
    """Images [count, *A, C], evenly spread over the source."""
    options = DataConfig(size=model.config.shape[0], fit="tiles") if source.is_dir() else DataConfig()
    values = load(source, options, "all").values
    if len(values) < count:
        raise ValueError(f"{source} has {len(values)} images, fewer than --count {count}")
    return values[np.linspace(0, len(values) - 1, count).astype(int)]


def timed(work: Callable[[], object]) -> tuple[object, float]:
    start = time.perf_counter()
    return work(), time.perf_counter() - start


def path_difference(model: AxialTransformer, images: torch.Tensor) -> dict[str, float]:
    """Largest difference between the float64 logits of the parallel pass and of decoding; the one allowed."""
    exact, worst = in_float64(model), 0.0
    with torch.no_grad():
        logits = exact(images)

    def choose(found: torch.Tensor, site: tuple[int, ...]) -> torch.Tensor:
        nonlocal worst
        here = (slice(None), *site)
        worst = max(worst, (found - logits[here]).abs().max().item())
        return images[here].long()

    decode(exact, choose, images)
    return {"logits": worst, "guard_allows": 2 * (2**-41 - 2 * model.config.num_values * 2**-53)}


def overhead(
    model: Positional[Path], source: Positional[Path], counts: tuple[int, ...] = (64, 1000), decode: bool = True,
    version: Literal[1, 2] = 2,
) -> dict[str, object]:  # fmt: skip
    """Bits/dim of whole files beside the model's own; throughput, without verification."""
    net, checksum = AxialTransformer.from_pretrained(model), 4 if version == 1 else 0  # bytes before a chunk's parts
    rows = []
    for count in counts:
        values = read(net, source, count)
        images = torch.from_numpy(values)
        with tempfile.TemporaryDirectory() as folder:
            np.savez(Path(folder) / "images.npz", images=values)
            written, encoding = timed(
                lambda folder=folder: compress_files(
                    net, Path(folder) / "images.npz", Path(folder) / "images.axl", verify=False, version=version
                )
            )
            with (Path(folder) / "images.axl").open("rb") as file:
                header = container.read_header(file)
                chunks = [
                    Chunk.unpack(container.read_chunk(file, header, i)[checksum:]) for i in range(len(header.chunks))
                ]
                file.seek(0)
                back, decoding = timed(lambda file=file: decompress(net, file)) if decode else (images, None)
        assert torch.equal(back, images)
        bits, scoring = timed(lambda images=images: torch.cat([bits_per_dim(net, some) for some in images.split(64)]))
        of_file, of_model = comparison.bits_per_dim(written.size, values), bits.mean().item()
        rows.append(
            {
                "images": count, "bytes": written.size, "file_bits_per_dim": of_file, "model_bits_per_dim": of_model,
                "ratio": of_file / of_model, "chunks": len(chunks),
                "escapes": sum(len(chunk.escapes) for chunk in chunks),
                "webp": sum(len(chunk.webp) for chunk in chunks),
                "encode_images_per_second": count / encoding, "decode_images_per_second": decoding and count / decoding,
                "encode_kb_per_second": values.nbytes / 1000 / encoding,
                "decode_kb_per_second": decoding and values.nbytes / 1000 / decoding, "score_seconds": scoring,
            }
        )  # fmt: skip
        print(rows[-1], flush=True)
    return {"rows": rows, "path_difference": path_difference(net, images[:64]) if version == 1 else 0.0}


def exactness(
    model: Positional[Path], source: Positional[Path], count: int = 2000,
    only: Annotated[tuple[int, ...], tyro.conf.arg(help="numbers of the decoders to run; all if none")] = (),
) -> dict[str, object]:  # fmt: skip
    """Encodes by the parallel pass, micro-batch 64, two threads; decodes in others; without WebP."""
    torch.set_num_threads(2)
    net = AxialTransformer.from_pretrained(model)
    values = read(net, source, count)
    archive = compress(net, torch.from_numpy(values), micro_batch=64, verify=False, plain_codec=False, version=1)
    expected = zlib.crc32(values.tobytes())
    results = []
    with tempfile.NamedTemporaryFile(suffix=".axl") as file:
        Path(file.name).write_bytes(archive)
        for micro_batch, threads, environment in [DECODERS[i] for i in only] or DECODERS:
            command = [sys.executable, __file__, "decode", str(model), file.name, str(micro_batch), str(threads)]
            ran = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True)
            found = json.loads(ran.stdout.splitlines()[-1]) if ran.returncode == 0 else {"error": ran.stderr[-300:]}
            same = found.pop("crc32", None) == expected
            results.append({"micro_batch": micro_batch, "threads": threads, **environment, "identical": same, **found})
            print(results[-1], flush=True)
    failures = sum(not result["identical"] for result in results)
    return {"images": count, "bytes": len(archive), "failures": failures, "decoders": results}


def decode_only(
    model: Positional[Path], archive: Positional[Path], micro_batch: Positional[int], threads: Positional[int]
) -> dict[str, object]:
    """One decoder of `exactness`."""
    torch.set_num_threads(threads)
    torch.backends.mkldnn.enabled = os.environ.get("ONEDNN") != "off"
    net = AxialTransformer.from_pretrained(model)
    images, seconds = timed(lambda: decompress(net, archive.read_bytes(), micro_batch=micro_batch))
    return {
        "crc32": zlib.crc32(images.numpy().tobytes()), "images_per_second": len(images) / seconds,
        "cpu": torch.backends.cpu.get_cpu_capability(),
    }  # fmt: skip


def codecs(
    model: Positional[Path], source: Positional[Path], count: int = 1000, verify: bool = False
) -> dict[str, object]:
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
    verbs = {"overhead": overhead, "exactness": exactness, "codecs": codecs, "decode": decode_only}
    result = tyro.extras.subcommand_cli_from_dict(verbs)
    machine = {
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "processor": platform.processor() or platform.machine(),
    }
    print(json.dumps({**result, **machine}))


if __name__ == "__main__":
    main()
