"""TensorFlow's files, read without TensorFlow: TFRecord files, and V2 checkpoints ("tensor bundles").

PREFIX.index                  a LevelDB table: "" -> header, name of a variable -> offset, type and shape of its values
PREFIX.data-00000-of-00001    the values, row-major and little-endian; one file a shard
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from axial_transformers.storage import require_extra
from axial_transformers.storage.byte_reader import ByteReader

_MASK = 0xA282EAD8


class FormatError(ValueError):
    """A file is damaged, or has something unsupported."""


class TruncatedError(FormatError):
    """The bytes end too early."""


class ChecksumError(FormatError):
    """The bytes do not match their checksum."""


def masked_crc32c(octets: bytes) -> int:
    """Return the CRC-32C of bytes, as LevelDB and TensorFlow store it; needs the extra `tensorflow`."""
    try:
        import google_crc32c
    except ImportError:
        require_extra("tensorflow", "google_crc32c", "a TensorFlow file")
        raise

    checksum = google_crc32c.value(octets)
    return ((checksum >> 15 | checksum << 17) + _MASK) & 0xFFFFFFFF


def reader(octets: bytes, where: str) -> ByteReader:
    """Return a reader of bytes that raises the errors of this module."""
    return ByteReader(octets, where, truncated=TruncatedError, malformed=FormatError)


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


_MAX_RECORD = 16 << 20  # bytes of a record; those of BAIR robot pushing have 0.7 MiB


def read_records(path: Path) -> Iterator[bytes]:
    """Yield the records of a TFRecord file, at most 16 MiB each."""
    size, number = path.stat().st_size, 0
    with path.open("rb") as stream:
        while stream.tell() < size:
            where = f"{path}: record {number}"
            record = ByteReader(stream, where, truncated=TruncatedError, malformed=FormatError)
            prefix = record.take(8)
            if not _agrees(prefix, record.take(4)):
                raise ChecksumError(f"{where}: the checksum of its length disagrees: damaged, or no TFRecord file")
            length = int.from_bytes(prefix, "little")
            if length > _MAX_RECORD:
                raise FormatError(f"{where} has {length:,} bytes, above {_MAX_RECORD:,}: too large to be read")
            content = record.take(length)
            if not _agrees(content, record.take(4)):
                raise ChecksumError(f"{where}: the checksum of its bytes disagrees: copy the file again")
            yield content
            number += 1


def _agrees(octets: bytes, checksum: bytes) -> bool:
    return masked_crc32c(octets) == int.from_bytes(checksum, "little")


_FOOTER = 48
_TRAILER = 5
_MAGIC = 0xDB4775248B80FB57
# The published indexes have 15 KB and 792 variables. A model of 1,024 layers has 12 variables a layer, each with its
# moving average and two moments of Adam: 49,152 and some, in 4 MB. Keys leave out what they share, so that it is their
# number and length that bound the memory: 64 MiB.
MAX_INDEX = 16 << 20
MAX_BLOCKS = 4096
MAX_ENTRIES = 1 << 17
MAX_KEY = 512


def read_table(path: Path) -> dict[bytes, bytes]:
    """Return all keys and values of the LevelDB table at `path`.

        [data block, trailer]...  [metaindex block, trailer]  [index block, trailer]  footer (48 bytes)

    See https://github.com/google/leveldb/blob/main/doc/table_format.md. A key leaves out the prefix that it shares with
    the key before. A trailer is one byte for the compression, and the masked CRC-32C of block and byte.

    Limits: 16 MiB, 4,096 blocks without overlap, 131,072 keys of 512 bytes.
    """
    if path.stat().st_size > MAX_INDEX:
        raise FormatError(f"{path} is larger than {MAX_INDEX >> 20} MiB, which no index of a checkpoint is")
    octets = path.read_bytes()
    if len(octets) < _FOOTER or int.from_bytes(octets[-8:], "little") != _MAGIC:
        raise FormatError(f"{path} is not the index of a TensorFlow V2 checkpoint (no LevelDB table ends there)")
    footer = reader(octets[-_FOOTER:-8], f"{path}: footer")
    metaindex, index = _handle(footer), _handle(footer)
    if any(footer.rest()) or any(_entries(octets, *metaindex, path)):
        raise FormatError(f"{path} has a footer or a metaindex that no checkpoint's index has; the file is damaged")
    table: dict[bytes, bytes] = {}
    last: bytes | None = None
    end = 0
    for start, size in _data_blocks(octets, *index, path):
        if start < end:
            raise FormatError(f"{path}: the block at byte {start} begins within or before another")
        end = start + size + _TRAILER
        for key, value in _entries(octets, start, size, path):
            if last is not None and key <= last:
                raise FormatError(f"{path}: the key {key!r} is out of order")
            if len(table) == MAX_ENTRIES:
                raise FormatError(f"{path} has more than {MAX_ENTRIES:,} keys, which no index of a checkpoint has")
            table[key] = value
            last = key
    return table


def _data_blocks(octets: bytes, start: int, size: int, path: Path) -> list[tuple[int, int]]:
    handles = [handle for _, handle in islice(_entries(octets, start, size, path), MAX_BLOCKS + 1)]
    if len(handles) > MAX_BLOCKS:
        raise FormatError(f"{path} has more than {MAX_BLOCKS:,} blocks, which no index of a checkpoint has")
    return [_handle(reader(handle, f"{path}: index block")) for handle in handles]


def _handle(handle: ByteReader) -> tuple[int, int]:
    return handle.varint(), handle.varint()


def _entries(octets: bytes, start: int, size: int, path: Path) -> Iterator[tuple[bytes, bytes]]:
    where = f"{path}: block at byte {start}"
    end = start + size
    if end + _TRAILER > len(octets) - _FOOTER:
        raise FormatError(f"{where} reaches beyond the file")
    if masked_crc32c(octets[start : end + 1]) != int.from_bytes(octets[end + 1 : end + _TRAILER], "little"):
        raise ChecksumError(f"{where}: the checksum disagrees; the file is damaged")
    if octets[end] != 0:
        raise FormatError(f"{where} is compressed (type {octets[end]}), which is not supported")
    restarts = 4 + 4 * int.from_bytes(octets[end - 4 : end], "little")
    if restarts > size:
        raise FormatError(f"{where} claims more restart points than it can hold")
    block = reader(octets[start : end - restarts], where)
    key = b""
    while block.left:
        shared, own, length = block.varint(), block.varint(), block.varint()
        if shared > len(key):
            raise FormatError(f"{where}: a key shares {shared} bytes with one of {len(key)}")
        if shared + own > MAX_KEY:
            raise FormatError(f"{where} has a key of {shared + own:,} bytes, above {MAX_KEY}")
        key = key[:shared] + block.take(own)
        yield key, block.take(length)


_DTYPES = {1: "<f4", 2: "<f8", 3: "<i4", 9: "<i8", 19: "<f2"}
_MAX_SHARDS = 10_000
_MAX_AXES = 8


@dataclass(frozen=True)
class VariableEntry:
    """Offset, type and shape of a variable's values."""

    dtype: np.dtype[np.generic]
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int
    checksum: int


class TensorBundle:
    """The variables of the checkpoint whose files begin with `prefix`.

    Compressed blocks, partitioned variables, and types other than float16/32/64 and int32/64 are a FormatError.
    """

    entries: dict[str, VariableEntry]

    def __init__(self, prefix: str | Path) -> None:
        prefix = Path(prefix)
        self.path = prefix.with_name(f"{prefix.name}.index")
        table = read_table(self.path)
        if b"" not in table:
            raise FormatError(f"{self.path} has no header: it is a LevelDB table, but not a checkpoint's")
        count = _shards(table.pop(b""), f"{self.path}: header")
        self.shards = [prefix.with_name(f"{prefix.name}.data-{i:05d}-of-{count:05d}") for i in range(count)]
        sizes = [shard.stat().st_size for shard in self.shards]
        self.entries = {}
        for key, value in table.items():
            name = key.decode("utf-8", "backslashreplace")
            if not name.isprintable():
                raise FormatError(f"{self.path}: {name!r} cannot be the name of a variable; the file is damaged")
            self.entries[name] = _entry(value, f"{self.path}: variable {name!r}", sizes)
        # So that a small file cannot ask for a large model.
        if (claimed := sum(entry.size for entry in self.entries.values())) > sum(sizes):
            raise FormatError(f"{self.path}: the variables have {claimed} bytes, the data shards only {sum(sizes)}")

    def read(self, name: str, *, verify: bool = False) -> np.ndarray:
        """Return the values of `name`; with `verify`, compare their checksum."""
        entry = self.entries[name]
        values = np.empty(entry.shape, entry.dtype)
        octets = values.reshape(-1).view(np.uint8).data
        shard = self.shards[entry.shard]
        with shard.open("rb", buffering=0) as file:
            file.seek(entry.offset)
            done = 0
            while done < entry.size:
                step = file.readinto(octets[done:])
                if not step:
                    raise FormatError(f"{shard} ends inside the variable {name!r}")
                done += step
        if verify and masked_crc32c(values.tobytes()) != entry.checksum:
            raise ChecksumError(f"{shard}: the checksum of the variable {name!r} disagrees; the file is damaged")
        return values


def find_prefix(folder: str | Path) -> Path:
    """Return the prefix of the newest checkpoint in `folder`, which its `checkpoint` file names.

    A name that does not exist is ignored: often it is a path of another machine.
    """
    folder = Path(folder)
    candidates = [folder / "model.ckpt"]
    state = folder / "checkpoint"
    if state.is_file():
        with state.open("rb") as file:
            text = file.read(1 << 16).decode("utf-8", "replace")
        if named := re.search(r'^model_checkpoint_path: "([^"\0]+)"', text, re.MULTILINE):
            candidates.insert(0, folder / named[1])
    for prefix in candidates:
        if prefix.with_name(f"{prefix.name}.index").is_file():
            return prefix
    raise FileNotFoundError(f"{folder} holds no TensorFlow V2 checkpoint: there is no {candidates[-1].name}.index")


def _shards(header: bytes, where: str) -> int:
    integers, _ = parse(header, where)
    if integers.get(2, 0) != 0:
        raise FormatError(f"{where} says that the tensors are big-endian, which is not supported")
    count = integers.get(1, 0)
    if not 1 <= count <= _MAX_SHARDS:
        raise FormatError(f"{where} claims {count} data shards")
    return count


def _entry(message: bytes, where: str, shard_sizes: list[int]) -> VariableEntry:
    integers, nested = parse(message, where)
    kind, shard, offset, size, checksum = (integers.get(number, 0) for number in (1, 3, 4, 5, 6))
    if 7 in nested:
        raise FormatError(f"{where} is partitioned into slices, which is not supported")
    if kind not in _DTYPES:
        raise FormatError(f"{where} has the data type {kind} (of TensorFlow's types.proto), which is not supported")
    dtype = np.dtype(_DTYPES[kind])
    _, axes = parse(b"".join(nested.get(2, [])), where)
    lengths = axes.get(2, [])
    if len(lengths) > _MAX_AXES:
        raise FormatError(f"{where} has {len(lengths)} axes")
    shape = tuple(parse(axis, where)[0].get(1, 0) for axis in lengths)
    if math.prod(shape) * dtype.itemsize != size:
        raise FormatError(f"{where} has {size} bytes, but its shape {list(shape)} of {dtype} needs another number")
    if shard >= len(shard_sizes):
        raise FormatError(f"{where} lies in shard {shard} of {len(shard_sizes)}")
    if offset + size > shard_sizes[shard]:
        raise FormatError(f"{where} reaches beyond the end of data shard {shard}; the shard is cut short")
    return VariableEntry(dtype, shape, shard, offset, size, checksum)
