"""A LevelDB table, read whole and always checked (https://github.com/google/leveldb/blob/main/doc/table_format.md).

    [data block, trailer]...  [metaindex block, trailer]  [index block, trailer]  footer (48 bytes)

A block is a sequence of (key, value); each key leaves out the prefix that it shares with the key before. Its trailer is
one byte that names the compression, and the masked CRC-32C of block and byte. The values of the index block are the
places of the data blocks.
"""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from axial_transformers.storage.byte_reader import ByteReader
from axial_transformers.storage.tensorflow.crc32c import crc32c, masked
from axial_transformers.storage.tensorflow.protobuf import ChecksumError, FormatError, reader

_FOOTER = 48
_TRAILER = 5
_MAGIC = 0xDB4775248B80FB57
# The published indexes have 15 KB and 792 variables. A model of 1,024 layers has 12 variables a layer, each with its
# moving average and two moments of Adam: 49,152 and some, in 4 MB. Keys leave out what they share, so that it is their
# number and length that bound the memory: 64 MiB.
LARGEST = 16 << 20
MOST_BLOCKS = 4096
MOST_ENTRIES = 1 << 17
LONGEST_KEY = 512


def read_table(path: Path) -> dict[bytes, bytes]:
    """All pairs of key and value of the table at `path`.

    It may have 16 MiB, in blocks that do not overlap: at most 4,096 of them with 131,072 keys, of 512 bytes at most.

    Raises:
        FormatError: a checksum disagrees, a block is compressed or malformed, the file is no table, or out of bounds.
        FileNotFoundError: there is no such file.
    """
    if path.stat().st_size > LARGEST:
        raise FormatError(f"{path} is larger than {LARGEST >> 20} MiB, which no index of a checkpoint is")
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
            if len(table) == MOST_ENTRIES:
                raise FormatError(f"{path} has more than {MOST_ENTRIES:,} keys, which no index of a checkpoint has")
            table[key] = value
            last = key
    return table


def _data_blocks(octets: bytes, start: int, size: int, path: Path) -> list[tuple[int, int]]:
    """Start and size of each data block that the index block at a place of the file names."""
    places = [place for _, place in islice(_entries(octets, start, size, path), MOST_BLOCKS + 1)]
    if len(places) > MOST_BLOCKS:
        raise FormatError(f"{path} has more than {MOST_BLOCKS:,} blocks, which no index of a checkpoint has")
    return [_handle(reader(place, f"{path}: index block")) for place in places]


def _handle(place: ByteReader) -> tuple[int, int]:
    """Start and size of a block."""
    return place.varint(), place.varint()


def _entries(octets: bytes, start: int, size: int, path: Path) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values of the block at a place of the file."""
    where = f"{path}: block at byte {start}"
    end = start + size
    if end + _TRAILER > len(octets) - _FOOTER:
        raise FormatError(f"{where} reaches beyond the file")
    if masked(crc32c(octets[start : end + 1])) != int.from_bytes(octets[end + 1 : end + _TRAILER], "little"):
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
        if shared + own > LONGEST_KEY:
            raise FormatError(f"{where} has a key of {shared + own:,} bytes, above {LONGEST_KEY}")
        key = key[:shared] + block.take(own)
        yield key, block.take(length)
