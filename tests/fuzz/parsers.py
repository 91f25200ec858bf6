"""Parsers of files that come from others: sound files of each kind, and how they are read."""

import io
import json
import shutil
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from math import prod
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from PIL import Image

from axial_transformers.compression import (
    compress,
    compress_files,
    container,
    decompress,
    decompress_files,
    embedded_model,
    open_archive,
)
from axial_transformers.compression.embedded_model import fingerprint
from axial_transformers.data import save_arrays
from axial_transformers.models import AxialTransformer
from axial_transformers.storage.byte_reader import ByteReader
from tests.fuzz import checksums
from tests.fuzz.mutations import INTEGERS, mutated, mutated_json
from tests.small_models import random_model, small_config

PIXELS = np.random.default_rng(0).integers(0, 256, (6, 7, 3), np.uint8)


@dataclass(frozen=True, kw_only=True)
class Parser:
    seeds: list[tuple[str, bytes]]
    """Names and bytes of sound files."""
    parse: Callable[[str, bytes], Any]
    """Reads a file as the product does."""
    right: Callable[[str, Any], bool] = lambda name, result: True
    """Tests the result of a file whose checksums were not mended: True if it is what was written."""
    mend: Callable[[str, bytes], bytes] | None = None
    """The file with its checksums made right."""
    hostile: Callable[[Random], tuple[str, bytes]] | None = None
    """A file that no mutation would give: well-formed, of extreme content."""
    hostile_share: float = 0.1
    structured: Callable[[str, bytes, Random], bytes] = lambda name, content, draw: (
        mutated_json(content, draw) if name.endswith(".json") else mutated(content, content, draw)
    )
    """A mutation within the structure of the file."""


def put(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def containers(place: Path) -> Parser:
    sound = container.Header(fingerprint=bytes(range(32)), shape=(6, 7), channels=1, num_values=256, metadata=b"{}")
    seeds = []
    for chunks in ((), (b"abc", b"", b"x" * 100)):
        head = replace(sound, chunks=tuple(container.entry(2, chunk) for chunk in chunks))
        seeds.append(("a.axl", head.pack() + b"".join(chunks)))

    def parse(name: str, content: bytes) -> object:
        file = io.BytesIO(content)
        found = container.read_header(file)
        return found.pack(), [container.read_chunk(file, found, i) for i in range(len(found.chunks))]

    def hostile(draw: Random) -> tuple[str, bytes]:
        """Many chunks, empty or as large as fields can say."""
        line = container.ChunkEntry(draw.choice((0, 1, 256, 257)), draw.choice(INTEGERS) & 0xFFFFFFFF, 0)
        shape = tuple(draw.choice(INTEGERS) & 0xFFFFFFFF for _ in range(draw.randrange(18)))
        return "a.axl", replace(sound, chunks=(line,) * draw.choice((1, 100, 16_000)), shape=shape).pack()

    originals = [parse(*seed) for seed in seeds]
    return Parser(
        seeds=seeds, parse=parse, mend=checksums.of_archive, hostile=hostile,
        right=lambda name, result: result in originals,
    )  # fmt: skip


def _model() -> AxialTransformer:
    return random_model(small_config((6, 7), num_values=256), torch.float32)


def archives(place: Path) -> Parser:
    model, source, seeds = _model(), place / "source", list[tuple[str, bytes]]()
    values = torch.randint(0, 256, (5, 6, 7, 1), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    seeds.append(("images.axl", compress(model, values)))
    source.mkdir()
    for i in range(3):
        Image.fromarray(values[i, ..., 0].numpy()).save(source / f"{i}.png")
    Image.new("RGB", (5, 4), (1, 2, 3)).save(source / "colour.png")  # stored whole
    save_arrays(place / "array.npz", values.numpy())
    np.save(place / "volume.npy", values[0, :, :5, 0].numpy())
    made = {"pictures.axl": source, "array.axl": place / "array.npz", "volume.axl": place / "volume.npy"}
    for name, made_of in made.items():
        compress_files(model, made_of, place / name, embed=False, force=True)
        seeds.append((name, (place / name).read_bytes()))

    def parse(name: str, content: bytes) -> object:
        if name == "images.axl":
            return decompress(model, content).numpy().tobytes()
        shutil.rmtree(room := place / "room", ignore_errors=True)
        to = room / {"pictures.axl": "again", "array.axl": "again.npz", "volume.axl": "again.npy"}[name]
        try:
            decompress_files(model, put(room / name, content), to)
            return {file.relative_to(room).as_posix(): file.read_bytes() for file in room.rglob("again*/**/*.*")}
        finally:
            assert {file.name for file in room.iterdir()} <= {name, to.name}, "left behind, or written outside"

    def hostile(draw: Random) -> tuple[str, bytes]:
        """Another description of files, in an archive that is otherwise sound; few bytes that unpack to many."""
        name, content = draw.choice(seeds[1:])
        found = container.read_header(io.BytesIO(content))
        description = mutated_json(zlib.decompress(found.metadata), draw)
        packed = zlib.compress(description if draw.random() < 0.95 else b" " * (1 << 25))
        return name, replace(found, metadata=packed).pack() + content[found.start(0) :]

    written = {name: parse(name, content) for name, content in seeds}
    return Parser(
        seeds=seeds, parse=parse, mend=checksums.of_archive, hostile=hostile,
        right=lambda name, result: result == written[name],
    )  # fmt: skip


MAX_VALUES = 1 << 14
"""Of an archive that carries its model, which may be of any shape."""


def _require_few(header: container.Header) -> None:
    """Refuse what takes long."""
    if header.images * header.channels * prod(header.shape) > MAX_VALUES:
        raise container.ArchiveError("of more values than are tried here")


def embedded_models(place: Path) -> Parser:
    """Archives that carry their model: with labels, of several kinds of values, of an array, and of files."""
    generator, seeds = torch.Generator().manual_seed(0), list[tuple[str, bytes]]()
    configs = {
        "labels.axl": small_config((2, 3), 2, num_classes=3),
        "rotary.axl": small_config((3, 4), num_values=300, values="ordinal", mixtures=2, rotary=50.0),
        "centred.axl": small_config((2, 3, 2), values="ordinal", mixtures=2, centred=True, inner="lstm", convolution=1),
    }
    for name, config in configs.items():
        values = torch.randint(0, config.num_values, (4, *config.shape, config.channels), generator=generator)
        label = torch.tensor([0, 3, 2, 1]) if config.num_classes else None
        seeds.append((name, compress(random_model(config, torch.float32), values, label, embed=True, force=True)))
    model, source = random_model(small_config((4, 5), num_values=256), torch.float32), place / "source"
    source.mkdir()
    for i in range(2):
        Image.fromarray(PIXELS[:4, :5, i]).save(source / f"{i}.png")
    Image.new("RGB", (5, 4), (1, 2, 3)).save(source / "colour.png")  # stored whole
    save_arrays(place / "array.npz", PIXELS[None, :4, :5, :1])
    for name, made_of in {"pictures.axl": source, "array.axl": place / "array.npz"}.items():
        compress_files(model, made_of, place / name, force=True)
        seeds.append((name, (place / name).read_bytes()))

    def parse(name: str, content: bytes) -> object:
        if name.startswith("forged"):
            name, content = name.removeprefix("forged "), _of_its_model(content)
        if name not in ("pictures.axl", "array.axl"):
            archive = open_archive(content)
            _require_few(archive.header)
            labels = archive.labels
            return archive.values.numpy().tobytes(), None if labels is None else labels.tolist()
        shutil.rmtree(room := place / "room", ignore_errors=True)
        to = room / ("again" if name == "pictures.axl" else "again.npz")
        try:
            _require_few(container.read_header(io.BytesIO(content)))
            decompress_files(None, put(room / name, content), to)
            return {file.relative_to(room).as_posix(): file.read_bytes() for file in room.rglob("again*/**/*.*")}
        finally:
            assert {file.name for file in room.iterdir()} <= {name, to.name}, "left behind, or written outside"

    def structured(name: str, content: bytes, draw: Random) -> bytes:
        """A mutation of one part: configuration, stream of the model, labels or images. Its checksum is the old one."""
        header, (first, *rest) = _parts(content)
        if draw.random() < 0.3:
            i = draw.randrange(len(rest))
            rest[i] = mutated(rest[i], first, draw)
        else:
            first = _changed_model(first, draw)
        return _joined(header, [first, *rest])

    def hostile(draw: Random) -> tuple[str, bytes]:
        """Another model of extreme fields or tensors, or a change of one, with checksums and fingerprint of its own."""
        name, content = draw.choice(seeds)
        header, (first, *rest) = _parts(content)
        first = _changed_model(first, draw) if draw.random() < 0.5 else _extreme_model(first, draw.randrange(40))
        if draw.random() < 0.2:
            header = replace(header, chunks=header.chunks[: header.of_model])  # of no image
            rest = rest[: header.of_model - 1]
        return f"forged {name}", checksums.of_archive(name, _joined(header, [first, *rest]))

    written = {name: parse(name, content) for name, content in seeds}
    return Parser(
        seeds=seeds, parse=parse, mend=checksums.of_archive, hostile=hostile, hostile_share=0.3, structured=structured,
        right=lambda name, result: result == written[name],
    )  # fmt: skip


def _parts(content: bytes) -> tuple[container.Header, list[bytes]]:
    header, file = container.read_header(io.BytesIO(content)), io.BytesIO(content)
    return header, [container.read_chunk(file, header, i) for i in range(len(header.chunks))]


def _joined(header: container.Header, contents: list[bytes]) -> bytes:
    """The archive of other contents; their checksums are not changed."""
    chunks = [line._replace(size=len(content)) for line, content in zip(header.chunks, contents, strict=True)]
    return replace(header, chunks=tuple(chunks)).pack() + b"".join(contents)


def _of_its_model(content: bytes) -> bytes:
    """The archive with the fingerprint and the sizes of the model that it carries."""
    header, contents = _parts(content)
    model = embedded_model.unpack(contents[0])
    found, config = fingerprint(model), model.config
    fields = {"shape": config.shape, "channels": config.channels, "num_values": config.num_values}
    return replace(header, fingerprint=found, **fields).pack() + b"".join(contents)


def _configuration(first: bytes) -> tuple[bytes, bytes]:
    """The configuration and the stream of a model."""
    reader = ByteReader(first, "", ValueError, ValueError)
    return reader.take(reader.varint()), reader.rest()


EXTREME_FIELDS: dict[str, tuple[Any, ...]] = {
    "shape": ([1], [3, 4], [1] * 8, [2] * 8, [1] * 9, [1 << 20], [1 << 16], [1 << 10, 1 << 10], [1 << 20] * 2, [], [0]),
    "channels": (1, 2, 3, 100, 1 << 20), "num_values": (2, 3, 256, 257, 65_536), "lowest": (-5, 1, -(1 << 31), 1 << 31),
    "values": ("categorical", "ordinal"), "mixtures": (1, 10, 256), "centred": (True, False), "dim": (1, 2, 8, 1 << 20),
    "heads": (1, 2, 8), "mlp_ratio": (1, 64, 1e-9), "encoder_layers": (0, 1, 2, 8), "outer_layers": (0, [], [2], [999]),
    "inner_layers": (1, 50, 1000), "inner": ("attention", "lstm"), "convolution": (0, 1, 8), "rotary": (None, 2, 1e6),
    "layout": ("channels", "rows", "columns", "axis", "frames", "raster"), "num_classes": (None, 1, 3, 1 << 20),
    "channel_planes": ("one_hot", "index"), "known_channels": (0, 1), "grid": (None, [0.5, 1.0], [1e-300, 1e300]),
}  # fmt: skip


def _changed_model(first: bytes, draw: Random) -> bytes:
    """A model in an archive with another configuration or another stream."""
    text, stream = _configuration(first)
    kind = draw.randrange(4)
    if kind == 0:
        text = mutated_json(text, draw)
    elif kind == 1:
        chosen = draw.sample(sorted(EXTREME_FIELDS), draw.choice((1, 1, 2, 4)))
        changed = {name: draw.choice(EXTREME_FIELDS[name]) for name in chosen}
        text = json.dumps(json.loads(text) | changed).encode()
    if kind >= 2 or draw.random() < 0.3:
        size = draw.choice((8, 64, 1 << 10, 1 << 14, 1 << 17))
        kinds = mutated(stream, text, draw), draw.randbytes(size), bytes(size), b"\xff" * size
        stream = draw.choice((kinds[0], *kinds))
        stream = draw.choice((stream, bytes(3) + b"\x40" + stream[4:]))  # a state that an encoder leaves
    return container.varint(len(text)) + text + stream


@cache
def _extreme_model(first: bytes, number: int) -> bytes:
    """A model in an archive with a sound stream of steps and numbers that no training gives."""
    model, draw = embedded_model.unpack(first), Random(number)
    state = model.state_dict()
    for name in draw.sample(sorted(state), draw.choice((1, 2, len(state)))):
        extreme = draw.choice((0.0, 1.0, -1.0, 1e30, -1e30, float("inf"), 1e-40))
        if name.endswith((".rotations", ".spread")):
            extreme = draw.choice((extreme, float("nan")))
        whole = draw.choice((0, 1, -1, (1 << 63) - 1, -(1 << 63), 1 << 40))
        state[name].fill_(extreme if state[name].is_floating_point() else whole)
    codes = draw.choice(((0,), (240,), (511,), (0, 240, 511), (-1,), (512,), (511, 520)))
    steps = {
        name: np.array([draw.choice(codes) for _ in range(len(weight) if weight.ndim > 1 else 1)])
        for name, weight in model.named_parameters()
    }
    with np.errstate(all="ignore"):
        return embedded_model.pack(model, steps)


def model_folders(place: Path) -> Parser:
    model, folder = _model(), place / "model"
    model.save_pretrained(folder)
    files, values = {file.name: file.read_bytes() for file in folder.iterdir()}, torch.zeros(1, 6, 7, 1).long()

    def parse(name: str, content: bytes) -> object:
        for file in files:
            put(folder / file, content if file == name else files[file])
        found = AxialTransformer.from_pretrained(folder)
        if found.config == model.config:  # others may be large
            found(values)
        return None

    def structured(name: str, content: bytes, draw: Random) -> bytes:
        """The header of a safetensors file mutated as JSON, its length made right."""
        if not name.endswith(".safetensors"):
            return mutated_json(content, draw) if name.endswith(".json") else mutated(content, content, draw)
        (size,) = struct.unpack_from("<Q", content)
        changed = mutated_json(content[8 : 8 + size], draw)
        return struct.pack("<Q", len(changed)) + changed + content[8 + size :]

    def hostile(draw: Random) -> tuple[str, bytes]:
        """A large header: many tensors, long names, much metadata, extreme shapes, many spaces."""
        none = {"dtype": draw.choice(("F32", "BF16", "F8_E4M3", "I4", "BOOL")), "shape": [0], "data_offsets": [0, 0]}
        count = draw.choice((10, 1000, 2500))
        table: dict[str, Any] = draw.choice((
            {f"{i}{'x' * 50}": none for i in range(count)},
            {"__metadata__": {str(i): "x" * 20 for i in range(2 * count)}},
            {"x" * 100_000: {**none, "shape": [draw.choice(INTEGERS)] * draw.choice((1, 8, 1000))}},
        ))  # fmt: skip
        text = json.dumps(table).encode() + b" " * draw.choice((0, 1 << 17))
        return "model.safetensors", struct.pack("<Q", len(text)) + text

    parse("", b"")  # imports what models on the meta device need
    return Parser(seeds=[*files.items()], parse=parse, structured=structured, hostile=hostile)


def drawn(parser: Parser, draw: Random) -> tuple[str, bytes, bool]:
    """A name, an input, and whether its checksums may have been mended."""
    if parser.hostile and draw.random() < parser.hostile_share:
        return *parser.hostile(draw), True
    name, content = draw.choice(parser.seeds)
    if draw.random() < 0.5:
        content = parser.structured(name, content, draw)
    else:
        content = mutated(content, draw.choice(parser.seeds)[1], draw)
    mended = parser.mend is not None and draw.random() < 0.5
    return name, parser.mend(name, content) if mended else content, mended


PARSERS: dict[str, Callable[[Path], Parser]] = {
    "container": containers, "archive": archives, "embedded-model": embedded_models, "model-folder": model_folders,
}  # fmt: skip
"""Each is made with an empty folder, to work in."""
