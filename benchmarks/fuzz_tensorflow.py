"""The parsers of TensorFlow's files, for the fuzzer: TFRecord and checkpoints."""

import shutil
import struct
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random

import numpy as np

from axial_transformers.data import bair_videos
from axial_transformers.importers.official import import_official_to
from axial_transformers.storage.tensorflow.crc32c import crc32c, masked
from axial_transformers.storage.tensorflow.protobuf import reader
from axial_transformers.storage.tensorflow.records import read_records
from axial_transformers.storage.tensorflow.tensor_bundle import TensorBundle, find_prefix
from fuzz_mutations import INTEGERS, Parser, varint

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from tensor_bundle_writer import entry, header, table_bytes, write_bundle
from tfrecord_writer import bytes_feature, example, floats_feature, framed, video_record


def _mend_records(name: str, content: bytes) -> bytes:
    """Right checksums of the records of a TFRecord file."""
    mended, start = bytearray(content), 0
    while start + 16 <= len(mended):
        (size,) = struct.unpack_from("<Q", mended, start)
        end = start + 12 + size
        if end + 4 > len(mended):
            break
        struct.pack_into("<I", mended, start + 8, masked(crc32c(bytes(mended[start : start + 8]))))
        struct.pack_into("<I", mended, end, masked(crc32c(bytes(mended[start + 12 : end]))))
        start = end + 4
    return bytes(mended)


def _hostile_record(draw: Random) -> tuple[str, bytes]:
    """Messages of many small or nested fields, of one of the levels that are parsed."""
    field = draw.choice(
        (b"\x0a\0", b"\x08\x01", b"\x0a\x02\x0a\0", b"\x12\0", varint(1 << 40 | 2) + b"\0", b"\x0d" + bytes(4))
    )
    message = field * draw.choice((1, 100, 10_000, 60_000))
    for _ in range(draw.randrange(5)):
        message = draw.choice((b"\x0a", b"\x12")) + varint(len(message)) + message
    features = {
        draw.choice(("0/image_aux1/encoded", "7" * 5000 + "/action", "\u0663/action", "")): bytes_feature(message)
    }
    return "bair", framed(draw.choice((message, example(features)))) * draw.choice((1, 2))


def tfrecord(place: Path) -> Parser:
    path = place / "a.tfrecord"
    frames = np.random.default_rng(0).integers(0, 256, (1, 64, 64, 3), np.uint8)
    small = [example({"0/action": floats_feature([0.5]), "x": bytes_feature(b"abc")}), b"", b"abcdefgh"]
    contents = {"records": b"".join(map(framed, small)), "bair": framed(video_record(frames)) * 2}

    def parse(name: str, content: bytes) -> object:
        path.write_bytes(content)
        if name == "records":
            return list(read_records(path))
        return [b"".join(frame.tobytes() for frame in video) for video in bair_videos.read_videos(path)]

    def right(name: str, result: list[bytes]) -> bool:
        return set(result) <= ({frames.tobytes()} | ({b""} if name == "records" else set()) | set(small))

    return Parser(seeds=[*contents.items()], parse=parse, mend=_mend_records, right=right, generate=_hostile_record)


def _mend_table(name: str, content: bytes) -> bytes:
    """Right checksums of the blocks of a LevelDB table, where the footer leads to them."""
    if not name.endswith(".index") or len(content) < 48:
        return content
    mended = bytearray(content)

    def mend(start: int, size: int) -> bytes:
        end = start + size
        if end + 5 <= len(mended) and size < 1 << 20:
            struct.pack_into("<I", mended, end + 1, masked(crc32c(bytes(mended[start : end + 1]))))
        return bytes(mended[start:end])

    try:
        footer = reader(bytes(mended[-48:-8]), "footer")
        mend(footer.varint(), footer.varint())
        start, size = footer.varint(), footer.varint()
        index = reader(mend(start, size), "index")
        for _ in range(8):  # blocks of small files
            index.varint()
            own, length = index.varint(), index.varint()
            index.take(own)
            place = reader(index.take(length), "place")
            mend(place.varint(), place.varint())
        mend(start, size)
    except ValueError:
        pass
    return bytes(mended)


def _table(blocks: list[bytes], index: bytes) -> bytes:
    """A table of these blocks' bytes, which may be anything."""
    out, places = b"", []
    for body in (*blocks, struct.pack("<II", 0, 1), index):
        places.append(varint(len(out)) + varint(len(body)))
        out += body + b"\0" + struct.pack("<I", masked(crc32c(body + b"\0")))
    return out + (places[-2] + places[-1]).ljust(40, b"\0") + struct.pack("<Q", 0xDB4775248B80FB57)


def _hostile_table(draw: Random) -> bytes:
    """Keys that share long prefixes, thousands of handles of one block, tensors of extreme shape or number."""
    kind, end = draw.randrange(3), struct.pack("<II", 0, 1)
    if kind == 0:
        long, count = draw.choice((100, 100_000)), draw.choice((10, 1000, 12_000))
        body = varint(0) + varint(long) + varint(0) + b"x" * long
        body += b"".join(varint(long + 2 * (i > 0)) + varint(2) + varint(0) + struct.pack(">H", i) for i in range(1))
        body += b"".join(varint(long) + varint(2) + varint(0) + struct.pack(">H", i) for i in range(1, count))
        return _table(
            [body + end],
            varint(0) + varint(1) + varint(4) + b"z" + (varint(0) + varint(len(body) + 8)).ljust(4, b"\0") + end,
        )
    if kind == 1:
        body, count = (
            varint(0) + varint(0) + varint(0) + b"x" * draw.choice((0, 1)) + end,
            draw.choice((2, 1000, 20_000)),
        )
        body = b"" if draw.random() < 0.5 else body
        place = varint(0) + varint(len(body + end))
        return _table([body + end], (varint(0) + varint(1) + varint(len(place)) + b"z" + place) * count + end)
    shape = tuple(draw.choice(INTEGERS) for _ in range(draw.choice((0, 1, 2, 9, 1000))))
    size = draw.choice((0, 4, *INTEGERS))
    entries = {
        f"{i:05}".encode(): entry(1, shape, draw.choice((0, *INTEGERS)), size, 0) for i in range(draw.choice((1, 50)))
    }
    return table_bytes({b"": header(draw.choice((1, 1, 2, 10_000, *INTEGERS))), **entries})


def bundles(place: Path) -> Parser:
    """TensorFlow checkpoints: files of a tiny one; whole imports of the authors' layout."""
    prefix, generator = place / "model.ckpt", np.random.default_rng(0)
    variables = {f"a/b{i}": generator.random((2, i), np.float32) for i in range(3)}
    variables["global_step"] = np.array(7)
    write_bundle(prefix, variables.items())
    (place / "checkpoint").write_text('model_checkpoint_path: "model.ckpt"\n')
    files = {file.name: file.read_bytes() for file in place.iterdir()}
    official = TensorBundle(find_prefix(Path(__file__).parents[1] / "tests" / "data" / "official_c"))
    theirs = {name: official.read(name) for name in official.entries}

    def parse(name: str, content: bytes) -> object:
        if name == "official":
            return _imported(place / "room", theirs, Random(content))
        for file in files:
            (place / file).write_bytes(content if file == name else files[file])
        bundle = TensorBundle(find_prefix(place))
        return {variable: bundle.read(variable, verify=True).tobytes() for variable in bundle.entries}

    def generate(draw: Random) -> tuple[str, bytes]:
        return ("official", draw.randbytes(8)) if draw.random() < 0.02 else ("model.ckpt.index", _hostile_table(draw))

    original = parse("checkpoint", files["checkpoint"])
    return Parser(
        seeds=[*files.items()], parse=parse, mend=_mend_table, generate=generate,
        right=lambda name, result: name == "checkpoint" or result == original,
    )  # fmt: skip


def _imported(folder: Path, variables: Mapping[str, np.ndarray], draw: Random) -> object:
    """Imports a checkpoint of which some variables are of another shape, type or value."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    extremes = np.array(np.inf), np.array(np.nan), np.array([1, 2]), np.array(1e300), np.array(-(1 << 63)), np.zeros(0)
    changed = {"global_step": draw.choice(extremes)} if draw.random() < 0.6 else {}
    for name in draw.sample(sorted(variables), draw.choice((0, 0, 1, 2))):
        values = variables[name]
        changed[name] = draw.choice(
            (values.astype(np.float64), values[None], values[:0], values.T, np.array(3), values[:1])
        )
    write_bundle(folder / "model.ckpt", sorted({**variables, **changed}.items()))
    return import_official_to(
        folder, folder / "model", heads=draw.choice((2, 2, 4, 0, -1)), raw=draw.random() < 0.3
    ).config


PARSERS: dict[str, Callable[[Path], Parser]] = {"tfrecord": tfrecord, "tf-bundle": bundles}
