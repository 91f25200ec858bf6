"""The parsers of models, runs and archives, for the fuzzer."""

import hashlib
import io
import json
import shutil
import struct
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save

from axial_transformers.compression import compress, compress_files, container, decompress, decompress_files
from axial_transformers.data import DataConfig, save_arrays
from axial_transformers.layers.initialisation import randomise
from axial_transformers.models import AxialTransformer, AxialTransformerConfig
from axial_transformers.storage.typed_json import from_json, read_object, to_json
from axial_transformers.training import TrainConfig
from axial_transformers.training.checkpoint_record import RECORD, Counters, Record
from axial_transformers.training.metrics import MetricsLog
from axial_transformers.training.run_folder import RUN_RECORD, Fingerprint, Origin, RunRecord, read_run
from axial_transformers.training.understanding import Machine
from fuzz_mutations import INTEGERS, Parser, mutate, mutate_json

_LINE, _CHUNKS_AT, _SIZES_AT = 10, 46, 59  # of an archive's header, as in docs/exact_archives.md


def small_model() -> AxialTransformer:
    model = AxialTransformer(AxialTransformerConfig(shape=(6, 7), dim=8, heads=2, outer_layers=2, inner_layers=1))
    randomise(model, torch.Generator().manual_seed(0))
    return model.eval()


def emptied(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder


# Archives


def mend_archive(name: str, content: bytes) -> bytes:
    """Right checksums in header and index, where there is that much of an archive."""
    fixed = bytearray(content)
    if len(fixed) < _SIZES_AT:
        return content
    chunks, metadata = struct.unpack_from("<II", fixed, _CHUNKS_AT)
    index = _SIZES_AT + 4 * fixed[_SIZES_AT - 1]
    end = index + _LINE * chunks + metadata
    if end + 4 > len(fixed):
        return content
    start = end + 4
    for place in range(index + _LINE, index + _LINE * (chunks + 1), _LINE):
        (size,) = struct.unpack_from("<I", fixed, place - 8)
        struct.pack_into("<I", fixed, place - 4, zlib.crc32(fixed[start : start + size]))
        start += size
    struct.pack_into("<I", fixed, end, zlib.crc32(fixed[:end]))
    return bytes(fixed)


def containers(place: Path) -> Parser:
    sound = container.Header(fingerprint=bytes(range(32)), shape=(6, 7), channels=1, num_values=256, metadata=b"{}")
    seeds = []
    for chunks in ((), (b"abc", b"", b"x" * 100)):
        header = replace(sound, chunks=tuple(container.entry(2, chunk) for chunk in chunks))
        seeds.append(("a.axl", header.pack() + b"".join(chunks)))

    def parse(name: str, content: bytes) -> object:
        file = io.BytesIO(content)
        found = container.read_header(file)
        return found, [container.read_chunk(file, found, i) for i in range(len(found.chunks))]

    def generate(draw: Random) -> tuple[str, bytes]:
        """Many chunks, empty or as large as fields can say."""
        size = draw.choice((0, 0, 1, *INTEGERS)) & 0xFFFFFFFF
        line = container.Entry(draw.choice((0, 1, 256, 257)), size, 0)
        chunks = (line,) * draw.choice((1, 100, 16_000))
        shape = tuple(draw.choice(INTEGERS) & 0xFFFFFFFF for _ in range(draw.randrange(18)))
        shape = shape if draw.random() < 0.3 else (6, 7)
        return "a.axl", replace(sound, chunks=chunks, shape=shape).pack()

    originals = [parse(*seed) for seed in seeds]
    return Parser(
        seeds=seeds, parse=parse, mend=mend_archive, generate=generate, generated=0.005,
        right=lambda name, result: result in originals,
    )  # fmt: skip


def archives(place: Path) -> Parser:
    model, generator = small_model(), torch.Generator().manual_seed(0)
    source, seeds = place / "source", list[tuple[str, bytes]]()
    pixels, written = {b""}, list[object]()  # a mended header of no chunks is an archive of no images
    for count in (3, 5):
        values = torch.randint(0, 256, (count, 6, 7, 1), generator=generator, dtype=torch.uint8)
        values[1] = 77  # stored as WebP
        seeds.append(("images.axl", compress(model, values)))
        pixels.add(values.numpy().tobytes())
    source.mkdir()
    for i in range(3):
        Image.fromarray(values[i, ..., 0].numpy()).save(source / f"{i}.png")
    Image.new("RGB", (5, 4), (1, 2, 3)).save(source / "colour.png")  # stored whole
    save_arrays(place / "array.npz", values.numpy())
    for name, made_of in (("pictures.axl", source), ("array.axl", place / "array.npz")):
        compress_files(model, made_of, place / name)
        seeds.append((name, (place / name).read_bytes()))

    def parse(name: str, content: bytes) -> object:
        if name == "images.axl":
            return decompress(model, content).numpy().tobytes()
        room = emptied(place / "room")
        (room / name).write_bytes(content)
        to = room / ("again" if name == "pictures.axl" else "again.npz")
        try:
            decompress_files(model, room / name, to)
            return _content_of(to)
        finally:
            assert {file.name for file in room.iterdir()} <= {name, to.name}, "left behind, or written outside"

    def right(name: str, result: object) -> bool:
        return result in pixels if name == "images.axl" else result in written

    def of_images_written(name: str, result: object) -> bool:
        """Mended checksums let chunks change places or be lost, but no stream gives other pixels."""
        if not isinstance(result, bytes):
            return True
        size = model.config.shape[0] * model.config.shape[1]
        known = {image[i : i + size] for image in pixels for i in range(0, len(image), size)}
        return all(result[i : i + size] in known for i in range(0, len(result), size))

    def generate(draw: Random) -> tuple[str, bytes]:
        """Another description of files, in an archive that is otherwise sound; few bytes that unpack to many."""
        name, content = draw.choice(seeds[2:])
        found = container.read_header(io.BytesIO(content))
        description = mutate_json(zlib.decompress(found.metadata), draw, draw.choice((1, 1, 2, 4)))
        packed = zlib.compress(description if draw.random() < 0.95 else b" " * (1 << 25))
        return name, replace(found, metadata=packed).pack() + content[found.start(0) :]

    written += [parse(*seed) for seed in seeds[2:]]
    return Parser(
        seeds=seeds, parse=parse, mend=mend_archive, right=right, generate=generate,
        right_if_mended=of_images_written,
    )  # fmt: skip


def _content_of(path: Path) -> object:
    if path.is_file():
        with np.load(path) as arrays:
            return {name: (values.shape, str(values.dtype), values.tobytes()) for name, values in arrays.items()}
    pictures = {}
    for file in path.rglob("*.*"):
        with Image.open(file) as picture:
            pictures[file.relative_to(path).as_posix()] = picture.mode, picture.size, picture.tobytes()
    return pictures


# Models and runs


def _structured_weights(name: str, content: bytes, draw: Random) -> bytes:
    """The header of a safetensors file mutated as JSON, its length made right."""
    if not name.endswith(".safetensors"):
        return mutate(content, content, draw)
    (size,) = struct.unpack_from("<Q", content)
    changed = mutate_json(content[8 : 8 + size], draw, draw.choice((1, 1, 2, 4)))
    return struct.pack("<Q", len(changed)) + changed + content[8 + size :]


def model_folders(place: Path) -> Parser:
    model, folder, values = small_model(), place / "model", torch.zeros(1, 6, 7, 1, dtype=torch.int64)
    model.save_pretrained(folder)
    files = {file.name: file.read_bytes() for file in folder.iterdir()}

    def parse(name: str, content: bytes) -> object:
        for file in files:
            (folder / file).write_bytes(content if file == name else files[file])
        found = AxialTransformer.from_pretrained(folder)
        if found.config == model.config:  # others may be large
            found(values)
        return found.config

    parse("", b"")  # which imports what models on the meta device need

    def generate(draw: Random) -> tuple[str, bytes]:
        """A large header: many tensors, long names, much metadata, many spaces; or a tensor of another type."""
        if draw.random() < 0.5:
            tensors = dict(model.state_dict())
            name = draw.choice(list(tensors))
            dtype = draw.choice((torch.float16, torch.bfloat16, torch.float64, torch.int32, torch.bool))
            tensors[name] = tensors[name].to(dtype)
            return "model.safetensors", save(tensors)
        count, kind = draw.choice((10, 1000, 2500)), draw.randrange(4)
        none = {
            "dtype": draw.choice(("F32", "BF16", "F8_E4M3", "I4", "F4", "BOOL")),
            "shape": [0],
            "data_offsets": [0, 0],
        }
        table: dict[str, Any] = {f"{i}{'x' * draw.choice((0, 50))}": none for i in range(count)}
        if kind == 1:
            table = {"__metadata__": {str(i): "x" * 20 for i in range(count * 2)}}
        elif kind == 2:
            table = {"x" * 100_000: {**none, "shape": [draw.choice(INTEGERS)] * draw.choice((1, 8, 1000))}}
        text = json.dumps(table).encode() + b" " * draw.choice((0, 1 << 17))
        return "model.safetensors", struct.pack("<Q", len(text)) + text

    return Parser(seeds=[*files.items()], parse=parse, structured=_structured_weights, generate=generate)


def run_records(place: Path) -> Parser:
    """train.json, the state.json of a checkpoint, and metrics.jsonl."""
    config = small_model().config
    origin = Origin(recipe="digits", source="digits", data=DataConfig(), class_names=("0", "1"))
    record = RunRecord(
        data=Fingerprint(fingerprint="ab" * 32), training=TrainConfig(), model=config, about=origin, examples=9,
        machine=Machine.found(torch.device("cpu"), 1),
    )  # fmt: skip
    record.write(place)
    Record(Counters(step=4, seconds=1.5), {"seed": 0, "model": {"dim": 8}}, {"model.safetensors": "0" * 64}).write(
        place
    )
    lines = [{"step": i, "bits_per_dim": 1.5, "validation_bits_per_dim": 2.5} for i in range(1, 5)]
    (place / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    names = RUN_RECORD, RECORD, "metrics.jsonl"
    seeds = [(name, (place / name).read_bytes()) for name in names]

    def parse(name: str, content: bytes) -> object:
        (place / name).write_bytes(content)
        if name == RUN_RECORD:
            return read_run(place)
        if name == RECORD:
            return Record.read(place)
        with MetricsLog(place, Counters(step=2), tensorboard=False):
            return None

    state = parse(*seeds[1])
    return Parser(
        seeds=seeds, parse=parse, mend=_mend_state, right=lambda name, result: name != RECORD or result == state
    )


def _mend_state(name: str, content: bytes) -> bytes:
    """The right checksum in state.json."""
    if name != RECORD:
        return content
    try:
        found = json.loads(content)
        found.pop("sha256", None)
        return json.dumps(
            {**found, "sha256": hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()}
        ).encode()
    except (ValueError, RecursionError, AttributeError, TypeError):
        return content


def configurations(place: Path) -> Parser:
    """Every configuration that is read from JSON."""
    kinds: dict[str, Any] = {
        "model.json": small_model().config, "data.json": DataConfig(size=8, fit="crop"), "training.json": TrainConfig(),
        "video.json": AxialTransformerConfig(
            shape=(2, 4, 6), channels=3, layout="frames", known_channels=3, num_classes=5, encoder_layers=2,
            outer_layers=(4,), inner="lstm", inner_layers=1, dropout=0.5,
        ),
    }  # fmt: skip

    def parse(name: str, content: bytes) -> object:
        path = place / name
        path.write_bytes(content)
        return from_json(type(kinds[name]), read_object(path, "a configuration"), path)

    return Parser(seeds=[(name, json.dumps(to_json(kind)).encode()) for name, kind in kinds.items()], parse=parse)


PARSERS: dict[str, Callable[[Path], Parser]] = {
    "container": containers,
    "archive": archives,
    "model-folder": model_folders,
    "run-records": run_records,
    "configuration": configurations,
}
