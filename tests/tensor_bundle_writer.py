"""Writes TensorFlow V2 checkpoints for tests, one variable at a time, so that a full-size one needs little memory."""

import struct
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from axial_transformers.storage.tensorflow import masked_crc32c

DTYPES = {"float32": 1, "float64": 2, "int32": 3, "int64": 9, "float16": 19}
MAGIC = struct.pack("<Q", 0xDB4775248B80FB57)


def write_bundle(prefix: Path, variables: Iterable[tuple[str, np.ndarray]], shards: int = 1) -> None:
    """Writes the index and the data shards; variables come one at a time, in the order of their names."""
    table = {b"": header(shards)}
    with ExitStack() as stack:
        files = [
            stack.enter_context(prefix.with_name(f"{prefix.name}.data-{i:05d}-of-{shards:05d}").open("wb"))
            for i in range(shards)
        ]
        for count, (name, values) in enumerate(variables):
            shard = count % shards
            data = np.ascontiguousarray(values).tobytes()
            table[name.encode()] = entry(
                DTYPES[values.dtype.name], values.shape, files[shard].tell(), len(data), masked_crc32c(data), shard
            )
            files[shard].write(data)
    write_index(prefix, table)


def write_index(prefix: Path, table: Mapping[bytes, bytes], compression: int = 0) -> None:
    prefix.with_name(f"{prefix.name}.index").write_bytes(table_bytes(table, compression))


def header(shards: int, endianness: int = 0) -> bytes:
    return number(1, shards) + (number(2, endianness) if endianness else b"") + nested(3, number(1, 1))


def entry(dtype: int, shape: tuple[int, ...], offset: int, size: int, checksum: int, shard: int = 0) -> bytes:
    axes = b"".join(nested(2, number(1, length)) for length in shape)
    place = number(3, shard) + number(4, offset) + number(5, size)
    return number(1, dtype) + nested(2, axes) + place + bytes([6 << 3 | 5]) + struct.pack("<I", checksum)


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def nested(field: int, message: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(message)) + message


def varint(value: int) -> bytes:
    octets = b""
    while value >= 0x80:
        octets += bytes([value & 0x7F | 0x80])
        value >>= 7
    return octets + bytes([value])


def table_bytes(table: Mapping[bytes, bytes], compression: int = 0, a_block: int = 64) -> bytes:
    """A LevelDB table of blocks of at most `a_block` entries, whose keys leave out what they share."""
    out = b""
    handles: dict[bytes, bytes] = {}
    keys = list(table)
    for start in range(0, len(keys), a_block):
        some = keys[start : start + a_block]
        out, handles[some[-1]] = placed(out, block({key: table[key] for key in some}), compression)
    return joined(out, block(handles), compression)


def placed(out: bytes, content: bytes, compression: int = 0) -> tuple[bytes, bytes]:
    """The file with one block more, and the place of that."""
    body = content + bytes([compression])
    handle = varint(len(out)) + varint(len(content))
    return out + body + struct.pack("<I", masked_crc32c(body)), handle


def joined(out: bytes, index_block: bytes, compression: int = 0) -> bytes:
    """The whole table: data blocks, an empty metaindex, the index, the footer."""
    out, metaindex = placed(out, block({}), compression)
    out, index = placed(out, index_block, compression)
    return out + (metaindex + index).ljust(40, b"\0") + MAGIC


def block(entries: Mapping[bytes, bytes]) -> bytes:
    out, last = b"", b""
    for key, value in entries.items():
        shared = next((i for i, (a, b) in enumerate(zip(key, last)) if a != b), min(len(key), len(last)))
        out += varint(shared) + varint(len(key) - shared) + varint(len(value)) + key[shared:] + value
        last = key
    return out + struct.pack("<II", 0, 1)
