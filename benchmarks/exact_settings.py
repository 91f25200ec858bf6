"""An archive, encoded under one setting and decoded under others: each must give the same pixels.

    python benchmarks/exact_settings.py fashion_mnist fashion_mnist_test.npz --count 1000
    python benchmarks/exact_settings.py RUN photos.npz --count 500 --only avx2 flushed

Encoded with one thread and the processor's own instructions, without WebP. Each decoder is a process of its own:

    threads         two of torch's threads
    avx2            kernels compiled for AVX2, and C's library limited to it
    generic         for x86-64 without fused multiply-add, which is a call then: --slow-count images
    glibc           C's library limited to AVX2, kernels as they are
    flushed         denormal numbers flushed to zero by the caller
    together        three Python threads, a chunk at a time each
    backwards       one chunk after the other, the last one first

`--block` images are an archive, which all decoders read. Prints a line for each, then one JSON object; exit status 1 if
one gives other pixels.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from cyclopts import Parameter

import axial_transformers as axial
from axial_transformers.compression import ArchiveReader
from command_line import run_command

LIMITED = {"GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX512F,-AVX512VL"}
ENVIRONMENTS = {
    "threads": {},
    "avx2": {"AXIAL_CPU": "v3", **LIMITED},
    "generic": {"AXIAL_CPU": "v2"},
    "glibc": LIMITED,
    "flushed": {},
    "together": {},
    "backwards": {},
}
Result = dict[str, object]


def measure(
    model: str, source: Path, count: int = 1000, slow_count: int = 8, block: int = 500,
    only: Annotated[tuple[str, ...], Parameter(help="names of decoders; all if none")] = (),
) -> dict[str, object]:  # fmt: skip
    """Encodes, and decodes in the other settings."""
    torch.set_num_threads(1)
    net = axial.AxialTransformer.from_pretrained(model)
    with np.load(source) as arrays:
        values = next(array for array in arrays.values() if array.ndim > 1)[:count]
    images = torch.from_numpy(values.reshape(len(values), *net.config.shape, net.config.channels))
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for first in range(0, len(images), block):
            some, archive = images[first : first + block], Path(folder, f"{first}.axl")
            for name in only or ENVIRONMENTS:
                if name == "generic" and first:
                    continue
                chosen = some[:slow_count] if name == "generic" else some
                result = {"decoder": name, "first": first, **_decoded(net, model, chosen, archive, name)}
                found.append(result)
                print(result, flush=True)
    return {"decoders": found, "different": sum(not result["identical"] for result in found)}


def _decoded(net: axial.AxialTransformer, model: str, images: torch.Tensor, archive: Path, name: str) -> Result:
    """What a decoder makes of the archive of these images; the archive is written if there is none."""
    path = archive.with_suffix(f".{len(images)}")
    if not path.exists():
        path.write_bytes(axial.compress(net, images, verify=False))
    command = [sys.executable, __file__, "decode", str(model), str(path), name]
    begin, environment = time.perf_counter(), {**os.environ, **ENVIRONMENTS[name]}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True)
    same = ran.returncode == 0 and ran.stdout.split()[-1:] == [str(zlib.crc32(images.numpy().tobytes()))]
    error = {"error": ran.stderr[-300:]} if ran.returncode else {}
    return {"images": len(images), "identical": same, "seconds": time.perf_counter() - begin, **error}


def decode(model: str, archive: Path, name: str) -> dict[str, object]:
    """One of the decoders; prints the checksum of the pixels."""
    torch.set_num_threads(2 if name == "threads" else 1)
    net = axial.AxialTransformer.from_pretrained(model)
    if name == "flushed":
        torch.set_flush_denormal(True)
    content = archive.read_bytes()
    with archive.open("rb") as file:
        chunks = range(len(ArchiveReader(file, net).header.chunks))
    if name == "together":
        with ThreadPoolExecutor(3) as pool:
            parts = list(pool.map(lambda i: axial.decompress(net, content, chunks=[i]), chunks))
    elif name == "backwards":
        parts = [axial.decompress(net, content, chunks=[i]) for i in reversed(chunks)][::-1]
    else:
        parts = [axial.decompress(net, content)]
    print(zlib.crc32(torch.cat(parts).numpy().tobytes()))
    return {}


if __name__ == "__main__":
    if sys.argv[1:2] == ["decode"]:
        run_command(decode, argv=sys.argv[2:])
    else:
        result = run_command(measure, description=__doc__)
        print(json.dumps(result))
        sys.exit(1 if result["different"] else 0)
