"""Repairs of checksums after a mutation, so that it reaches the code behind them."""

import struct
import zlib

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
