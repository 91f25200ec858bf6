"""Mutated archives that carry their model, for the C decoder under the address and undefined-behaviour sanitizers.

    TMPDIR=/dev/shm python -m tests.fuzz.c_decoder 100000 [SEED]        # 240 archives a second

Each gives what was written, or an error of one line, within `SECONDS` of axl_many.c. Half of the mutated archives get
their checksums mended. Some carry models with extreme weights, whose images are random bytes: these reach the network.
"""

import io
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zlib
from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import NamedTuple

import numpy as np
import torch

from axial_transformers.compression import compress, compress_files, container
from axial_transformers.compression.embedded_model import fingerprint, pack, round_weights
from axial_transformers.models import AxialTransformer
from axial_transformers.storage.byte_reader import ByteReader
from tests.fuzz import checksums
from tests.fuzz.mutations import mutated, mutated_json
from tests.small_models import VARIANTS, random_model, random_values, small_config

SOURCE = Path(__file__).with_name("axl_many.c")
ENGINE = Path(__file__).parents[2] / "src" / "axial_transformers" / "engine"
SANITIZERS = ("-fsanitize=address,undefined,float-cast-overflow", "-fno-sanitize-recover=all")
FLAGS = (f"-I{ENGINE}", "-std=gnu99", "-O1", "-g", "-ffp-contract=off", *SANITIZERS)
KINDS = ("2d", "rotary 3d", "lstm", "index plane", "classes", "convolution", "centred columns", "centred axis")
EXTREMES = 40
"""Archives of extreme weights."""


class Seed(NamedTuple):
    content: bytes
    of_files: bool = False
    """The output is a folder."""


def build(folder: Path, compiler: str) -> Path | None:
    """Return the program, or None if the compiler has no sanitizers."""
    program = folder / "axl_many"
    done = subprocess.run([compiler, *FLAGS, "-o", program, SOURCE, "-lm"], capture_output=True, check=False)
    return None if done.returncode else program


def seeds(place: Path) -> list[Seed]:
    """Sound archives of values, of files, and of an array of floats."""
    found = []
    for kind in KINDS:
        model = random_model(VARIANTS[kind], torch.float32)
        label = torch.arange(3) % 4 if model.config.num_classes else None
        found.append(Seed(compress(model, random_values(model, 3), label, embed=True, force=True, verify=False)))
    pictures = place / "pictures"
    pictures.mkdir()
    (pictures / "notes.txt").write_text("notes")
    from PIL import Image

    noise = np.random.default_rng(0)
    Image.fromarray(noise.integers(0, 9, (4, 7), dtype=np.uint8)).save(pictures / "a.png")
    np.save(place / "floats.npy", (noise.integers(0, 9, (5, 7, 9)) / 4).astype(">f4"))
    wide = {"values": "ordinal", "mixtures": 2}
    models = {
        pictures: small_config((3, 5), num_values=256),
        place / "floats.npy": small_config((2, 2, 2), num_values=40, grid=(0.25, 0.0), **wide),
    }
    for source, config in models.items():
        compress_files(random_model(config, torch.float32), source, place / "x.axl", force=True, verify=False)
        found.append(Seed((place / "x.axl").read_bytes(), source == pictures))
    return found


def extreme(draw: Random) -> Seed:
    """An archive whose model has extreme weights, and whose images are random bytes."""
    config = VARIANTS[draw.choice(KINDS)]
    model, noise = AxialTransformer(config).float(), np.random.default_rng(draw.randrange(1 << 32))
    steps = {}
    for name, tensor in model.state_dict().items():
        if name.endswith(("spread", "rotations")):
            tensor.uniform_().mul_(draw.choice((0, 1, -1e38, 1e-45)))
        elif name.endswith("coefficients"):
            tensor.copy_(torch.from_numpy(noise.integers(-(1 << 63), 1 << 63, tensor.shape)))
        else:
            rows = len(tensor) if tensor.ndim > 1 else 1
            steps[name] = noise.integers(draw.choice((0, 200, 400)), 512, rows)
            if draw.random() < 0.5:
                steps[name][:] = draw.choice((240, 260, 300))
            tensor.normal_(0, draw.choice((1e-3, 1, 10, 1e20)))
    with np.errstate(over="ignore"):  # of rotations that grow
        model = round_weights(model, steps)
    contents = [pack(model, steps), *([bytes(2)] if config.num_classes else []), _stream(draw)]
    entries = [container.entry(2 if i + 1 == len(contents) else 0, content) for i, content in enumerate(contents)]
    header = container.Header(
        fingerprint=fingerprint(model), shape=config.shape, channels=config.channels, num_values=config.num_values,
        labels=config.num_classes is not None, carries_model=True, chunks=tuple(entries),
    )  # fmt: skip
    return Seed(header.pack() + b"".join(contents))


def _stream(draw: Random) -> bytes:
    """A state and some words, at random."""
    return draw.randrange(1, 1 << 31).to_bytes(4, "little") + draw.randbytes(4 * draw.randrange(1, 100))


def changed(seed: Seed, other: Seed, draw: Random) -> tuple[bytes, bool]:
    """A mutated archive, and whether its checksums have been mended."""
    if draw.random() < 0.5:
        return mutated(seed.content, other.content, draw), False
    if draw.random() < 0.5:
        return checksums.of_archive("", mutated(seed.content, other.content, draw)), True
    header = container.read_header(io.BytesIO(seed.content))
    contents = [container.read_chunk(io.BytesIO(seed.content), header, i) for i in range(len(header.chunks))]
    kind, at = draw.randrange(5), draw.randrange(len(contents))
    if kind == 0:
        contents[0] = _other_configuration(contents[0], draw)
    elif kind == 1 and header.metadata:
        header = replace(header, metadata=_other_json(header.metadata, draw))
    elif kind == 2 and not header.chunks[-1].images:
        contents[-1] = _other_json(contents[-1], draw)
    elif kind == 3:
        count = draw.choice((0, 1, 2, 64, 256, 257))
        entry = header.chunks[-1]._replace(images=count)
        header = replace(header, chunks=(*header.chunks[:-1], entry), labels=draw.random() < 0.5)
    else:
        contents[at] = mutated(contents[at], other.content, draw)
    entries = [container.entry(old.images, new) for old, new in zip(header.chunks, contents, strict=True)]
    return replace(header, chunks=tuple(entries)).pack() + b"".join(contents), True


def _other_configuration(content: bytes, draw: Random) -> bytes:
    reader = ByteReader(content, "", ValueError, ValueError)
    text = mutated_json(reader.take(reader.varint()), draw)
    return container.varint(len(text)) + text + reader.rest()


def _other_json(packed: bytes, draw: Random) -> bytes:
    """Another description; or of stored files, other bytes."""
    try:
        return zlib.compress(mutated_json(zlib.decompress(packed), draw))
    except ValueError:
        return zlib.compress(mutated(zlib.decompress(packed), packed, draw))


class Decoder:
    """The program, which is started again after it has died."""

    def __init__(self, program: Path, place: Path) -> None:
        self._program, self._archive, self._output = program, place / "x.axl", place / "out"
        self._process: subprocess.Popen[bytes] | None = None

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def restored(self, content: bytes, of_files: bool) -> tuple[str, dict[str, bytes]]:
        """Return "0" or one line, and the files written; AssertionError for anything else."""
        shutil.rmtree(self._output, ignore_errors=True)
        self._output.unlink(missing_ok=True)
        if of_files:
            self._output.mkdir()
        self._archive.write_bytes(content)
        if self._process is None:
            options = {"ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1:quarantine_size_mb=8"}
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
            self._process = subprocess.Popen([self._program], env=options, **pipes)
        process = self._process
        process.stdin.write(f"{self._archive}\t{self._output}\n".encode())
        process.stdin.flush()
        said = []
        while (line := process.stdout.readline()) and not line.startswith(b"= "):
            said.append(line.decode(errors="replace"))
        if not line:
            self._process = None
            raise AssertionError((process.wait(), "".join(said)[:3000]))
        errors = [each for each in said if each.startswith("axl: ")]
        if line == b"= 2\n":
            assert len(errors) == 1, said
            assert errors[0] == said[-1]
            return errors[0], {}
        assert (line, errors) == (b"= 0\n", []), (line, said)
        files = self._output.rglob("*") if of_files else [self._output]
        return "0", {str(file): file.read_bytes() for file in files}


def fuzz(count: int, number: int, program: Path, place: Path, kept: Path | None = None) -> Counter[str]:
    """Return how often each outcome came of `count` mutated archives.

    Args:
        number: seed of the mutations.
        kept: folder for archives that fail; None: the first one raises AssertionError.
    """
    draw, decoder, outcomes = Random(number), Decoder(program, place), Counter[str]()
    sound = seeds(place)
    all_seeds = sound + [extreme(draw) for _ in range(EXTREMES)]
    try:
        right = [decoder.restored(*seed) for seed in sound]
        assert all(outcome == "0" for outcome, _ in right), right
        for i in range(count):
            which = draw.randrange(len(all_seeds))
            seed = all_seeds[which]
            content, mended = changed(seed, draw.choice(all_seeds), draw) if i >= EXTREMES else (seed.content, True)
            try:
                outcome, files = decoder.restored(content, seed.of_files)
                assert outcome != "0" or mended or files == right[which][1], "other values from a damaged archive"
                outcomes[re.sub(r"\d+", "..", outcome.strip())] += 1
            except AssertionError as error:
                if kept is None:
                    raise
                (kept / f"{number}-{i}.axl").write_bytes(content)
                outcomes[f"failed: {error}"[:1000]] += 1
    finally:
        decoder.close()
    return outcomes


def main() -> None:
    count, number = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    place = Path(tempfile.mkdtemp())
    program = build(place, "cc")
    assert program is not None, "the C compiler has no sanitizers"
    torch.set_num_threads(1)
    began, kept = time.monotonic(), Path(tempfile.mkdtemp(prefix="failed"))
    outcomes = fuzz(count, number, program, place, kept)
    for outcome, times in outcomes.most_common():
        print(f"{times:8,}  {outcome}")
    print(f"{count / (time.monotonic() - began):.0f} archives a second; those that failed are in {kept}")


if __name__ == "__main__":
    main()
