"""Sound archives that carry their model, and mutations of them, for the readers in Python and in C."""

import json
import struct
import zlib
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random
from unittest.mock import patch

import numpy as np
import torch
from PIL import Image

from axial_transformers.compression import compress, compress_files, container
from axial_transformers.compression.embedded_model import fingerprint, pack
from axial_transformers.models import AxialTransformer
from tests.compression.archive_parts import joined, model_joined, model_parts, parts
from tests.fuzz.mutations import mutated, mutated_json
from tests.small_models import VARIANTS, random_model, random_values, rounded_quickly, small_config

KINDS = (
    "2d", "rotary 3d", "lstm", "index plane", "classes", "gated convolutions", "centred columns", "centred axis",
    "pixels of clips", "pixels of 16 bits", "gated convolutions",
)  # fmt: skip
FOLDER, ARRAY = "folder", "array.npy"
"""Names of the archives of files. The others, which have the names of their kinds of model, are of values."""
EXTREMES = 40


def seeds(place: Path) -> dict[str, bytes]:
    """Return sound archives of values, of a folder of files, and of an array of floats; `place` is an empty folder."""
    found, noise = dict[str, bytes](), np.random.default_rng(0)
    (place / FOLDER).mkdir()
    (place / FOLDER / "notes.txt").write_text("notes")
    Image.fromarray(noise.integers(0, 9, (4, 7), dtype=np.uint8)).save(place / FOLDER / "a.png")
    np.save(place / ARRAY, (noise.integers(0, 9, (5, 7, 9)) / 4).astype(">f4"))
    floats = small_config((2, 2, 2), num_values=40, grid=(0.25, 0.0), values="ordinal", mixtures=2)
    with patch("axial_transformers.compression.archive.rounded", rounded_quickly):
        for kind in KINDS:
            model = random_model(VARIANTS[kind], torch.float32)
            label = torch.arange(3) % 4 if model.config.num_classes else None
            found[kind] = compress(model, random_values(model, 3), label, embed=True, force=True, verify=False)
        for name, config in {FOLDER: small_config((3, 5), num_values=256), ARRAY: floats}.items():
            model, target = random_model(config, torch.float32), place / f"{name}.axl"
            compress_files(model, place / name, target, force=True, verify=False)
            found[name] = target.read_bytes()
    return found


def changed(seeds: dict[str, bytes], draw: Random) -> tuple[str, bytes, bool]:
    """Return the name of an archive, a mutation of it, and whether its checksums have been mended."""
    name, other = draw.choice(list(seeds)), draw.choice(list(seeds.values()))
    content, of_extremes = seeds[name], draw.random() < 0.2
    if of_extremes:
        name, content = KINDS[0], extreme(draw.randrange(EXTREMES))
    if draw.random() < 0.4:
        return name, mutated(content, other, draw), of_extremes
    if of_extremes and draw.random() < 0.4:
        return name, content, True
    return name, _of_other_parts(content, other, draw), True


def _of_other_parts(content: bytes, other: bytes, draw: Random) -> bytes:
    """Return an archive with another part, which is well-formed where it can be, and right checksums."""
    header, contents = parts(content)
    at, kind = draw.randrange(len(contents)), draw.randrange(4)
    if kind == 0 and header.carries_model:
        config, stream = model_parts(contents[0])
        contents[0] = model_joined(mutated_json(json.dumps(config).encode(), draw), stream)
    elif kind == 1 and header.metadata:
        header = replace(header, metadata=zlib.compress(mutated_json(zlib.decompress(header.metadata), draw)))
    elif kind == 2:
        head = mutated(header.pack()[:-4], other, draw)
        return head + struct.pack("<I", zlib.crc32(head)) + b"".join(contents)
    elif header.stored_chunk == at:
        contents[at] = zlib.compress(mutated(zlib.decompress(contents[at]), other, draw))
    else:
        contents[at] = mutated(contents[at], other, draw)
    return joined(header, contents)


@cache
def extreme(number: int) -> bytes:
    """Return an archive whose model has extreme weights, and whose images are random bytes."""
    draw, noise, generator = Random(number), np.random.default_rng(number), torch.Generator().manual_seed(number)
    config = VARIANTS[draw.choice(KINDS)]
    model, steps = AxialTransformer(config).float(), {}
    for name, tensor in model.state_dict().items():
        if name.endswith(("spread", "rotations")):
            tensor.uniform_(generator=generator).mul_(draw.choice((0, 1, -1e38, 1e-45)))
        elif name.endswith("coefficients"):
            tensor.copy_(torch.from_numpy(noise.integers(-(1 << 63), 1 << 63, tensor.shape)))
        else:
            rows = len(tensor) if tensor.ndim > 1 else 1
            steps[name] = noise.integers(draw.choice((0, 200, 400)), 512, rows)
            tensor.normal_(0, draw.choice((1e-3, 1, 10, 1e20)), generator=generator)
    with np.errstate(over="ignore"):  # of rotations that grow
        model, content = pack(model, steps)
    stream = draw.randrange(1, 1 << 31).to_bytes(4, "little") + draw.randbytes(4 * draw.randrange(1, 100))
    contents = [content, *([bytes(2)] if config.num_classes else []), stream]
    header = container.Header(
        fingerprint=fingerprint(model), shape=config.shape, channels=config.channels, num_values=config.num_values,
        labels=config.num_classes is not None, carries_model=True,
        chunks=(*(container.entry(0, content) for content in contents[:-1]), container.entry(2, stream)),
    )  # fmt: skip
    return joined(header, contents)
