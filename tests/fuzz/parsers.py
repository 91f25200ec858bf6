"""Parsers of files that come from others: sound files of each kind, how they are read, and how they are mutated."""

import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import NamedTuple

import numpy as np
import torch

from axial_transformers import data
from axial_transformers.compression import compress, decompress, decompress_files, open_archive
from axial_transformers.models import AxialTransformer
from axial_transformers.storage.tensorflow import TensorBundle, read_records, read_table
from tests.fuzz import archives
from tests.fuzz.mutations import mutated, mutated_json
from tests.small_models import random_model, random_values, small_config
from tests.tensor_bundle_writer import write_bundle, write_index
from tests.tfrecord_writer import framed, video_record, write_records

MAX_VALUES = 1 << 14
"""Of an archive that carries its model, which may be of any shape."""


class Parser(NamedTuple):
    seeds: dict[str, bytes]
    """Sound files by name."""
    parse: Callable[[str, bytes], object]
    """Reads a file as the product does."""
    changed: Callable[[Random], tuple[str, bytes, bool]]
    """Draws a name, another content, and whether its checksums have been mended: then it need not be an error."""


def of_archives(place: Path) -> Parser:
    """Archives of values and of files, with their model and without it."""
    model = random_model(small_config((3, 4)), torch.float32)
    seeds = archives.seeds(place) | {"without model": compress(model, random_values(model, 5))}

    def parse(name: str, content: bytes) -> object:
        if name == "without model":
            return decompress(model, content).numpy().tobytes()
        if name not in (archives.FOLDER, archives.ARRAY):
            archive = open_archive(content, most_values=MAX_VALUES)
            labels = archive.labels
            return archive.values.numpy().tobytes(), None if labels is None else labels.tolist()
        shutil.rmtree(room := place / "room", ignore_errors=True)
        room.mkdir()
        (room / "x.axl").write_bytes(content)
        target = room / ("again" if name == archives.FOLDER else "again.npy")
        try:
            decompress_files(None, room / "x.axl", target, most_values=MAX_VALUES)
            return {str(file): file.read_bytes() for file in room.rglob("again*/**/*.*")}
        finally:
            assert {file.name for file in room.iterdir()} <= {"x.axl", target.name}, "left behind, or written outside"

    return Parser(seeds, parse, lambda draw: archives.changed(seeds, draw))


def of_model_folders(place: Path) -> Parser:
    model = random_model(small_config((6, 7)), torch.float32)
    model.save_pretrained(place / "model")
    seeds, values = {file.name: file.read_bytes() for file in (place / "model").iterdir()}, random_values(model, 1)

    def parse(name: str, content: bytes) -> object:
        for file in seeds:
            (place / "model" / file).write_bytes(content if file == name else seeds[file])
        found = AxialTransformer.from_pretrained(place / "model")
        if found.config == model.config:  # others may be large
            found(values)
        return None

    def changed(draw: Random) -> tuple[str, bytes, bool]:
        """The configuration, or the header of the weights, is mutated as JSON in half of the files."""
        name, content = draw.choice(list(seeds.items()))
        if draw.random() < 0.5:
            return name, mutated(content, draw.choice(list(seeds.values())), draw), True
        if name.endswith(".json"):
            return name, mutated_json(content, draw), True
        (size,) = struct.unpack_from("<Q", content)
        header = mutated_json(content[8 : 8 + size], draw)
        return name, struct.pack("<Q", len(header)) + header + content[8 + size :], True

    return Parser(seeds, parse, changed)


def of_tensorflow(place: Path) -> Parser:
    """The authors' checkpoints, and TFRecord files of videos."""
    prefix, records = place / "model.ckpt", place / "a.tfrecord"
    variables = {"a/b": np.arange(15, dtype=np.float32).reshape(3, 5), "b": np.arange(4), "empty": np.zeros((0, 3))}
    write_bundle(prefix, variables.items())
    write_records(records, [video_record(np.full((1, 64, 64, 3), i, np.uint8)) for i in range(2)])
    seeds = {file.name: file.read_bytes() for file in place.iterdir()}
    table, messages = read_table(place / "model.ckpt.index"), list(read_records(records))

    def parse(name: str, content: bytes) -> object:
        for file in seeds:
            (place / file).write_bytes(content if file == name else seeds[file])
        if name == records.name:
            return data.load(records, split="all").values.tobytes()
        bundle = TensorBundle(prefix)
        return {name: bundle.read(name, verify=True).tobytes() for name in bundle.entries}

    def changed(draw: Random) -> tuple[str, bytes, bool]:
        """Half of the indices and of the records are mutated within their checksums."""
        name, content = draw.choice(list(seeds.items()))
        if draw.random() < 0.5 and name == records.name:
            return name, framed(messages[0]) + framed(mutated(messages[1], messages[0], draw)), True
        if draw.random() < 0.5 and name.endswith("index"):
            key = draw.choice(list(table))
            write_index(prefix, table | {key: mutated(table[key], draw.choice(list(table.values())), draw)})
            return name, (place / name).read_bytes(), True
        return name, mutated(content, draw.choice(list(seeds.values())), draw), False

    return Parser(seeds, parse, changed)


PARSERS: dict[str, Callable[[Path], Parser]] = {
    "archive": of_archives, "model-folder": of_model_folders, "tensorflow": of_tensorflow,
}  # fmt: skip
"""Each is made with an empty folder, to work in."""
