"""Repairs of checksums after a mutation, so that it reaches the code behind them."""

import struct
import zlib
from contextlib import suppress

from axial_transformers.storage.tensorflow import masked_crc32c, reader

BETWEEN = b"\n----\n"
"""Separates two files that are one input."""
_LINE, _CHUNKS_AT, _SIZES_AT = 10, 46, 59  # of an archive's header, as in docs/reference/archive_format.md


def of_archive(name: str, content: bytes) -> bytes:
    """Those in header and index of an .axl file, where there is that much of one."""
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


def of_block(body: bytes) -> bytes:
    """A block of a LevelDB table with the checksum behind it."""
    return body + b"\0" + struct.pack("<I", masked_crc32c(body + b"\0"))


def of_table(name: str, content: bytes) -> bytes:
    """Those of the blocks of a LevelDB table, where the footer leads to them."""
    if not name.endswith(".index") or len(content) < 48:
        return content
    mended = bytearray(content)

    def mend(start: int, size: int) -> bytes:
        end = start + size
        if end + 5 <= len(mended) and size < 1 << 20:
            struct.pack_into("<I", mended, end + 1, masked_crc32c(bytes(mended[start : end + 1])))
        return bytes(mended[start:end])

    with suppress(ValueError):
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
    return bytes(mended)
