"""Mutated archives: only typed errors, never wrong pixels, little memory and time.

    python benchmarks/fuzz_archives.py [COUNT, default 100000] [SEED]

Mutations: bits flipped, bytes overwritten, cut at every length, parts repeated, removed or moved, spliced with another
archive, 32-bit fields overwritten with extremes; half of them get their checksums made right again, so that they reach
the code behind the checks. Prints JSON.
"""

import json
import random
import resource
import struct
import sys
import time
import zlib
from collections import Counter

import torch

from axial_transformers.compression import ArchiveError, compress, decompress
from axial_transformers.layers.initialisation import randomise
from axial_transformers.models import AxialTransformer, AxialTransformerConfig

CHUNKS_AT, SIZES_AT = 47, 60  # offsets of the header, as in docs/compression.md
EXTREMES = (0, 1, 127, 128, 255, 256, 257, 1 << 16, (1 << 31) - 1, 1 << 31, (1 << 32) - 1)


def subject() -> tuple[AxialTransformer, list[bytes], set[bytes]]:
    """A small model, two archives (chunks, escapes, WebP files), and the pixels that may come out of them."""
    generator = torch.Generator().manual_seed(0)
    model = AxialTransformer(
        AxialTransformerConfig(shape=(6, 7), num_values=256, dim=8, heads=2, outer_layers=2, inner_layers=1)
    )
    randomise(model, generator)
    archives, pixels = [], {b""}  # a header of no chunks, with its checksum made right, is an archive of no images
    for count in (3, 5):
        images = torch.randint(0, 256, (count, 6, 7, 1), generator=generator, dtype=torch.uint8)
        images[1] = 77  # stored as WebP
        archives.append(compress(model, images))
        pixels.add(images.numpy().tobytes())
    return model, archives, pixels


def mutate(archive: bytes, other: bytes, draw: random.Random) -> bytes:
    """One random mutation."""
    content = bytearray(archive)
    kind = draw.randrange(7)
    at, to = sorted(draw.randrange(len(content) + 1) for _ in range(2))
    if kind == 0:
        for _ in range(draw.choice((1, 1, 1, 2, 8))):
            content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    elif kind == 1:
        content[at:to] = draw.randbytes(to - at)
    elif kind == 2:
        del content[at:]
    elif kind == 3:
        del content[at:to]
    elif kind == 4:
        content[to:to] = content[at:to]
    elif kind == 5:
        place = draw.randrange(max(1, len(content) - 4))
        content[place : place + 4] = struct.pack("<I", draw.choice(EXTREMES))
    else:
        start = draw.randrange(len(other))
        content[at:to] = other[start : start + to - at] if draw.random() < 0.5 else other[start:]
    return bytes(content)


def repaired(content: bytes) -> bytes:
    """The same with right checksums in header and index, where there is that much of an archive."""
    fixed = bytearray(content)
    if len(fixed) < SIZES_AT:
        return content
    chunks, metadata = struct.unpack_from("<II", fixed, CHUNKS_AT)
    index = SIZES_AT + 4 * fixed[SIZES_AT - 1]
    end = index + 16 * chunks + metadata
    if end + 4 > len(fixed):
        return content
    start = end + 4
    for entry in range(index, index + 16 * chunks, 16):
        (size,) = struct.unpack_from("<I", fixed, entry + 8)
        struct.pack_into("<I", fixed, entry + 12, zlib.crc32(fixed[start : start + size]))
        start += size
    struct.pack_into("<I", fixed, end, zlib.crc32(fixed[:end]))
    return bytes(fixed)


def outcome(model: AxialTransformer, content: bytes, pixels: set[bytes]) -> str:
    """Name of the error, or whether the pixels are right."""
    try:
        images = decompress(model, content)
    except ArchiveError as error:
        return type(error).__name__
    except Exception as error:
        return f"WRONG: {type(error).__name__}: {error}"
    return "the original" if images.numpy().tobytes() in pixels else "WRONG: other pixels"


def fuzz(count: int, seed: int) -> dict[str, object]:
    """Outcomes of `count` mutations: every truncation of both archives first."""
    model, archives, pixels = subject()
    draw = random.Random(seed)
    outcomes, slowest, slowest_of_cpu, examples = Counter[str](), 0.0, 0.0, []
    truncations = [archive[:length] for archive in archives for length in range(len(archive))]
    for i in range(count):
        if i < len(truncations):
            content = truncations[i]
        else:
            archive, other = draw.sample(archives, 2)
            content = mutate(archive, other, draw)
            content = repaired(content) if draw.random() < 0.5 else content
        start, cpu_start = time.perf_counter(), time.process_time()
        found = outcome(model, content, pixels)
        slowest = max(slowest, time.perf_counter() - start)
        slowest_of_cpu = max(slowest_of_cpu, time.process_time() - cpu_start)
        outcomes[found] += 1
        if found.startswith("WRONG") and len(examples) < 5:
            examples.append(content.hex())
    wrong = sum(number for name, number in outcomes.items() if name.startswith("WRONG"))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {
        "mutations": count,
        "seed": seed,
        "wrong": wrong,
        "outcomes": dict(outcomes),
        "slowest_seconds": slowest,
        "slowest_cpu_seconds": slowest_of_cpu,
        "peak_mb": round(peak / 1e6),
        "examples": examples,
    }


def main() -> None:
    count, seed = (*map(int, sys.argv[1:]), *(100_000, 0)[len(sys.argv) - 1 :])
    print(json.dumps(fuzz(count, seed)))


if __name__ == "__main__":
    main()
