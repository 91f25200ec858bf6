"""Repairs of checksums after a mutation, so that it reaches the code behind them."""

import struct
import zipfile
import zlib
from contextlib import suppress

from axial_transformers.storage.tensorflow import masked_crc32c, reader

BETWEEN = b"\n----\n"
"""Separates two files that are one input."""
_LINE, _CHUNKS_AT, _SIZES_AT = 10, 46, 59  # of an archive's header, as in docs/reference/archive_format.md


def of_png(name: str, content: bytes) -> bytes:
    """Those of the chunks of a PNG file."""
    mended, start = bytearray(content), 8
    while content[:4] == b"\x89PNG" and start + 12 <= len(content):
        end = start + 8 + struct.unpack_from(">I", mended, start)[0]
        if end + 4 > len(content):
            break
        struct.pack_into(">I", mended, end, zlib.crc32(mended[start + 4 : end]))
        start = end + 4
    return bytes(mended)


def of_zip(name: str, content: bytes) -> bytes:
    """Those, and the sizes, of the members of a ZIP archive, where its central directory leads to them."""
    mended, entry = bytearray(content), content.find(b"PK\1\2")
    while entry >= 0 and entry + 46 <= len(mended):
        method, size = struct.unpack_from("<H8xI", mended, entry + 10)
        (start,) = struct.unpack_from("<I", mended, entry + 42)
        if mended[start : start + 4] == b"PK\3\4" and start + 30 <= len(mended):
            body = start + 30 + sum(struct.unpack_from("<HH", mended, start + 26))
            unpacked = bytes(mended[body : body + size])
            if method == zipfile.ZIP_DEFLATED:
                with suppress(zlib.error):
                    unpacked = zlib.decompressobj(-15).decompress(unpacked, 1 << 22)
            for at in (start + 14, entry + 16):
                struct.pack_into("<I", mended, at, zlib.crc32(unpacked))
                struct.pack_into("<I", mended, at + 8, len(unpacked))
        entry = content.find(b"PK\1\2", entry + 1)
    return bytes(mended)


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


def of_records(name: str, content: bytes) -> bytes:
    """Those of the records of a TFRecord file."""
    mended, start = bytearray(content), 0
    while start + 16 <= len(mended):
        end = start + 12 + struct.unpack_from("<Q", mended, start)[0]
        if end + 4 > len(mended):
            break
        struct.pack_into("<I", mended, start + 8, masked_crc32c(bytes(mended[start : start + 8])))
        struct.pack_into("<I", mended, end, masked_crc32c(bytes(mended[start + 12 : end])))
        start = end + 4
    return bytes(mended)


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
