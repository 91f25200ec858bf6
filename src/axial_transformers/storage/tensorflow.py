"""TensorFlow's files, read without TensorFlow: TFRecord files, and V2 checkpoints ("tensor bundles").

PREFIX.index                  a LevelDB table: "" -> header, name of a variable -> offset, type and shape of its values
PREFIX.data-00000-of-00001    the values, row-major and little-endian; one file a shard
"""

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from axial_transformers.storage import import_extra
from axial_transformers.storage.byte_reader import ByteReader

_MASK = 0xA282EAD8


class FormatError(ValueError):
    """A file is damaged, or has something unsupported."""


def masked_crc32c(octets: bytes) -> int:
    """Return the CRC-32C of bytes, as LevelDB and TensorFlow store it; needs the extra `tensorflow`."""
    checksum = import_extra("tensorflow", "google_crc32c", "a TensorFlow file").value(octets)
    return ((checksum >> 15 | checksum << 17) + _MASK) & 0xFFFFFFFF


def reader(source: bytes | BinaryIO, where: str) -> ByteReader:
    """Return a reader of bytes or of a file that raises the errors of this module."""
    return ByteReader(source, where, truncated=FormatError, malformed=FormatError)


def parse(message: bytes, where: str) -> tuple[dict[int, int], dict[int, list[bytes]]]:
    """Return a protocol buffer message (https://protobuf.dev/programming-guides/encoding) by number.

    Returns:
        The last integer of each number; and all strings and nested messages.
    """
    integers: dict[int, int] = {}
    nested: dict[int, list[bytes]] = {}
    fields = reader(message, where)
    while fields.left:
        tag = fields.varint()
        number = tag >> 3
        match tag & 7:
            case 2:
                nested.setdefault(number, []).append(fields.take(fields.varint()))
            case 0:
                integers[number] = fields.varint()
            case 1:
                integers[number] = int.from_bytes(fields.take(8), "little")
            case 5:
                integers[number] = int.from_bytes(fields.take(4), "little")
            case unknown:
                raise FormatError(f"{where} has a field of the unknown wire type {unknown}")
    return integers, nested


def read_records(path: Path) -> Iterator[bytes]:
    """Yield the records of a TFRecord file."""
    size = path.stat().st_size
    number = 0
    with path.open("rb") as stream:
        while stream.tell() < size:
            where = f"{path}: record {number}"
            record = reader(stream, where)
            prefix = record.take(8)
            if not _agrees(prefix, record.take(4)):
                raise FormatError(f"{where}: the checksum of its length disagrees: damaged, or no TFRecord file")
            content = record.take(int.from_bytes(prefix, "little"))
            if not _agrees(content, record.take(4)):
                raise FormatError(f"{where}: the checksum of its bytes disagrees: copy the file again")
            yield content
            number += 1


def _agrees(octets: bytes, checksum: bytes) -> bool:
    return masked_crc32c(octets) == int.from_bytes(checksum, "little")


_FOOTER = 48
_MAGIC = 0xDB4775248B80FB57


def read_table(path: Path) -> dict[bytes, bytes]:
    """Return all keys and values of the LevelDB table at `path`.

        [data block, trailer]...  [metaindex block, trailer]  [index block, trailer]  footer (48 bytes)

    See https://github.com/google/leveldb/blob/main/doc/table_format.md. A key leaves out the prefix that it shares with
    the key before. A trailer is one byte for the compression, and the masked CRC-32C of block and byte.
    """
    octets = path.read_bytes()
    if len(octets) < _FOOTER or int.from_bytes(octets[-8:], "little") != _MAGIC:
        raise FormatError(f"{path} is not the index of a TensorFlow V2 checkpoint (no LevelDB table ends there)")
    footer = reader(octets[-_FOOTER:-8], f"{path}: footer")
    _place(footer)  # of the metaindex, which a checkpoint leaves empty
    places = [_place(reader(place, f"{path}: index block")) for _, place in _entries(octets, *_place(footer), path)]
    return {key: value for place in places for key, value in _entries(octets, *place, path)}


def _place(handle: ByteReader) -> tuple[int, int]:
    return handle.varint(), handle.varint()


def _entries(octets: bytes, start: int, size: int, path: Path) -> Iterator[tuple[bytes, bytes]]:
    where = f"{path}: block at byte {start}"
    end = start + size
    if not _agrees(octets[start : end + 1], octets[end + 1 : end + 5]):
        raise FormatError(f"{where}: the checksum disagrees; the file is damaged")
    if octets[end] != 0:
        raise FormatError(f"{where} is compressed (type {octets[end]}), which is not supported")
    restarts = 4 + 4 * int.from_bytes(octets[end - 4 : end], "little")
    block = reader(octets[start : end - restarts], where)
    key = b""
    while block.left:
        shared = block.varint()
        own = block.varint()
        length = block.varint()
        key = key[:shared] + block.take(own)
        yield key, block.take(length)


_DTYPES = {1: "<f4", 2: "<f8", 3: "<i4", 9: "<i8", 19: "<f2"}


class VariableEntry(NamedTuple):
    """Where the values of a variable are, their type and shape."""

    dtype: np.dtype[np.generic]
    shape: tuple[int, ...]
    shard: int
    offset: int
    checksum: int


class TensorBundle:
    """The variables of the checkpoint whose files begin with `prefix`.

    Compressed blocks, partitioned variables, and types other than float16/32/64 and int32/64 are a FormatError.
    """

    def __init__(self, prefix: str | Path) -> None:
        prefix = Path(prefix)
        self.path = prefix.with_name(f"{prefix.name}.index")
        table = read_table(self.path)
        if b"" not in table:
            raise FormatError(f"{self.path} has no header: it is a LevelDB table, but not a checkpoint's")
        header, _ = parse(table.pop(b""), f"{self.path}: header")
        if header.get(2, 0) != 0:
            raise FormatError(f"{self.path} says that the tensors are big-endian, which is not supported")
        self.shards: list[Path] = []
        sizes: list[int] = []
        for i in range(header.get(1, 0)):
            self.shards.append(prefix.with_name(f"{prefix.name}.data-{i:05d}-of-{header[1]:05d}"))
            sizes.append(self.shards[i].stat().st_size)
        self.entries: dict[str, VariableEntry] = {}
        for key, value in table.items():
            name = key.decode("utf-8", "backslashreplace")
            self.entries[name] = _entry(value, f"{self.path}: variable {name!r}", sizes)

    def read(self, name: str, *, verify: bool = False) -> np.ndarray:
        """Return the values of `name`; with `verify`, compare their checksum."""
        entry = self.entries[name]
        shard = self.shards[entry.shard]
        values = np.fromfile(shard, entry.dtype, math.prod(entry.shape), offset=entry.offset)
        if verify and masked_crc32c(values.tobytes()) != entry.checksum:
            raise FormatError(f"{shard}: the checksum of the variable {name!r} disagrees; the file is damaged")
        return values.reshape(entry.shape)


def find_prefix(folder: str | Path) -> Path:
    """Return the prefix of the newest checkpoint in `folder`, which its `checkpoint` file names.

    A name that does not exist is ignored: often it is a path of another machine.
    """
    folder = Path(folder)
    candidates = [folder / "model.ckpt"]
    state = folder / "checkpoint"
    if state.is_file():
        text = state.read_text(encoding="utf-8", errors="replace")
        if named := re.search(r'^model_checkpoint_path: "([^"\0]+)"', text, re.MULTILINE):
            candidates.insert(0, folder / named[1])
    for prefix in candidates:
        if prefix.with_name(f"{prefix.name}.index").is_file():
            return prefix
    raise FileNotFoundError(f"{folder} holds no TensorFlow V2 checkpoint: there is no {candidates[-1].name}.index")


def _entry(message: bytes, where: str, shard_sizes: list[int]) -> VariableEntry:
    integers, nested = parse(message, where)
    kind, shard, offset, size, checksum = (integers.get(number, 0) for number in (1, 3, 4, 5, 6))
    if 7 in nested:
        raise FormatError(f"{where} is partitioned into slices, which is not supported")
    if kind not in _DTYPES:
        raise FormatError(f"{where} has the data type {kind} (of TensorFlow's types.proto), which is not supported")
    dtype = np.dtype(_DTYPES[kind])
    _, axes = parse(b"".join(nested.get(2, [])), where)
    shape = tuple(parse(axis, where)[0].get(1, 0) for axis in axes.get(2, []))
    if math.prod(shape) * dtype.itemsize != size:
        raise FormatError(f"{where} has {size} bytes, but its shape {list(shape)} of {dtype} needs another number")
    if shard >= len(shard_sizes) or offset + size > shard_sizes[shard]:
        raise FormatError(f"{where} reaches beyond the end of data shard {shard}; the shard is cut short")
    return VariableEntry(dtype, shape, shard, offset, checksum)
