"""Mutated archives and model folders give what was written or an error of one line, soon and in little memory.

Half of the mutated archives have right checksums, so that they reach the code behind the checks.
"""

import io
import resource
import shutil
import struct
import time
from math import prod
from pathlib import Path
from random import Random

import pytest
import torch

from axial_transformers.compression import ArchiveReader, compress, container, decompress_files
from axial_transformers.models import AxialTransformer
from tests.fuzz import archives
from tests.fuzz.mutations import mutated, mutated_json
from tests.fuzz.processes import Forked, address_space, limit
from tests.small_models import random_model, random_values, small_config

SECONDS, MEMORY = 10, 1 << 30
"""Bounds of one input: seconds of CPU time, and bytes beyond what the process has."""
MAX_VALUES = 1 << 14
"""Of an archive, which may be of any shape."""


class Archives:
    """Archives of values and of files, with their model and without it."""

    def __init__(self, place: Path) -> None:
        self.room, self.model = place / "room", random_model(small_config((3, 4)), torch.float32)
        self.seeds = archives.seeds(place) | {"without model": compress(self.model, random_values(self.model, 5))}

    def parse(self, name: str, content: bytes) -> object:
        """Read a file as the product does."""
        header = container.read_header(io.BytesIO(content))
        if header.images * header.channels * prod(header.shape) > MAX_VALUES:
            raise container.ArchiveError("of more values than are tried here")
        if name not in (archives.FOLDER, archives.ARRAY):
            archive = ArchiveReader(content, self.model if name == "without model" else None)
            return archive.values.tolist(), str(archive.labels)
        shutil.rmtree(self.room, ignore_errors=True)
        self.room.mkdir()
        (self.room / "x.axl").write_bytes(content)
        try:
            decompress_files(None, self.room / "x.axl", target := self.room / name)
            return {str(file): file.read_bytes() for file in (target, *target.rglob("*")) if file.is_file()}
        finally:
            assert {file.name for file in self.room.iterdir()} <= {"x.axl", name}, "left behind, or written outside"

    def changed(self, draw: Random) -> tuple[str, bytes, bool]:
        """Return a name, another content, and whether its checksums have been mended: it may be no error."""
        return archives.changed(self.seeds, draw)


class ModelFolders:
    """The configuration and the weights of a model."""

    def __init__(self, place: Path) -> None:
        self.folder, self.model = place / "model", random_model(small_config((6, 7)), torch.float32)
        self.model.save_pretrained(self.folder)
        self.seeds = {file.name: file.read_bytes() for file in self.folder.iterdir()}

    def parse(self, name: str, content: bytes) -> object:
        for file, sound in self.seeds.items():
            (self.folder / file).write_bytes(content if file == name else sound)
        found = AxialTransformer.from_pretrained(self.folder)
        if found.config == self.model.config:  # others may be large
            found(random_values(self.model, 1))
        return None

    def changed(self, draw: Random) -> tuple[str, bytes, bool]:
        """The configuration, or the header of the weights, is mutated as JSON in half of the files."""
        name, content = draw.choice(list(self.seeds.items()))
        if draw.random() < 0.5:
            return name, mutated(content, draw.choice(list(self.seeds.values())), draw), True
        if name.endswith(".json"):
            return name, mutated_json(content, draw), True
        (size,) = struct.unpack_from("<Q", content)
        header = mutated_json(content[8 : 8 + size], draw)
        return name, struct.pack("<Q", len(header)) + header + content[8 + size :], True


@pytest.mark.parametrize("inputs", [10, pytest.param(2000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", [Archives, ModelFolders])
def test_files_give_what_was_written_or_an_error_of_one_line(kind, inputs, tmp_path):
    (tmp_path / "place").mkdir()
    parser, draw, now = kind(tmp_path / "place"), Random(inputs), tmp_path / "input"
    written = {file: parser.parse(file, content) for file, content in parser.seeds.items()}

    def work() -> None:
        for _ in range(inputs):
            file, content, mended = parser.changed(draw)
            now.write_bytes(content)
            limit(resource.RLIMIT_AS, address_space() + MEMORY)
            limit(resource.RLIMIT_CPU, int(time.process_time() + SECONDS) + 1)
            try:
                right = parser.parse(file, content) == written[file] or mended
            except (ValueError, OSError) as error:
                right = len(str(error).strip().splitlines()) == 1 and "allocate" not in str(error)
            assert right, file

    status, said = Forked(work).wait()
    assert status == 0, f"the input is {now}: {status}\n{said}"
