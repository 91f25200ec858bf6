"""What TensorFlow's files are made of: CRC-32C checksums, protocol buffer messages, and TFRecord files of them."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np

from axial_transformers.storage.byte_reader import ByteReader

_POLYNOMIAL = 0x82F63B78  # reflected
_MASK = 0xA282EAD8
_BLOCK = 1 << 17  # words folded at once: their copies stay in the processor's cache
_SHORT = 512  # octets up to which one at a time is faster


def crc32c(data: bytes | memoryview) -> int:
    """CRC-32C of a contiguous buffer (RFC 3720, appendix B.4): 0xe3069283 for b"123456789"."""
    octets = memoryview(data).cast("B")
    head = len(octets) % 4 if len(octets) > _SHORT else len(octets)
    register = 0xFFFFFFFF
    for octet in octets[:head]:
        register = _OCTETS[(register ^ octet) & 0xFF] ^ register >> 8
    words = np.frombuffer(octets[head:], "<u4")
    for start in range(0, len(words), _BLOCK):
        block = words[start : start + _BLOCK].copy()
        block[0] ^= register
        register = int(_advance_words(_fold(block), 0)[0])
    return register ^ 0xFFFFFFFF


def masked(checksum: int) -> int:
    """The form in which LevelDB and TensorFlow store a checksum (a CRC over data that holds its own CRC is weak)."""
    return ((checksum >> 15 | checksum << 17) + _MASK) & 0xFFFFFFFF


def _fold(words: np.ndarray) -> np.ndarray:
    while len(words) > 1:
        level = (len(words) - 1).bit_length() - 1
        front, words = words[: -(1 << level)], words[-(1 << level) :]
        words[-len(front) :] ^= _advance_words(front, level)
    return words


def _advance_words(registers: np.ndarray, level: int) -> np.ndarray:
    """Each register after 2**level zero words."""
    low, high = _tables(level)
    advanced: np.ndarray = low[registers & 0xFFFF] ^ high[registers >> 16]
    return advanced


@cache
def _tables(level: int) -> tuple[np.ndarray, np.ndarray]:
    halves = np.arange(1 << 16, dtype=np.uint32)
    if level == 0:
        return _advance_bits(halves, 32), _advance_bits(halves << 16, 32)
    low, high = _tables(level - 1)
    return _advance_words(low, level - 1), _advance_words(high, level - 1)


def _advance_bits(registers: np.ndarray, bits: int) -> np.ndarray:
    for _ in range(bits):
        registers = registers >> 1 ^ (registers & 1) * np.uint32(_POLYNOMIAL)
    return registers


_OCTETS: list[int] = _advance_bits(np.arange(256, dtype=np.uint32), 8).tolist()


class FormatError(ValueError):
    """A file is damaged, or holds what this reader does not support; the message names the file and the place."""


class TruncatedError(FormatError):
    """The bytes end before what they hold does."""


class ChecksumError(FormatError):
    """The bytes are not those of which the checksum was taken."""


def reader(octets: bytes, where: str) -> ByteReader:
    """A reader of bytes that errors call `where`; it raises the errors of this module."""
    return ByteReader(octets, where, truncated=TruncatedError, malformed=FormatError)


def parse(message: bytes, where: str) -> tuple[dict[int, int], dict[int, list[bytes]]]:
    """Fields of one protocol buffer message (https://protobuf.dev/programming-guides/encoding), by number.

    Returns:
        Its integers, the last of each number; and its strings and nested messages, all of each number.

    Raises:
        FormatError: the message ends early, or holds a wire type that is not in use any more.
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


_LARGEST = 16 << 20  # bytes of a record; those of BAIR robot pushing have 0.7 MiB


def read_records(path: Path) -> Iterator[bytes]:
    """Records of a TFRecord file, one at a time, checksums compared.

    Raises:
        TruncatedError: the file ends within a record.
        ChecksumError: a length or a record is not what was written.
        FormatError: a record is larger than 16 MiB.
    """
    size, number = path.stat().st_size, 0
    with path.open("rb") as stream:
        while stream.tell() < size:
            where = f"{path}: record {number}"
            record = ByteReader(stream, where, truncated=TruncatedError, malformed=FormatError)
            prefix = record.take(8)
            if not _agrees(prefix, record.take(4)):
                raise ChecksumError(f"{where}: the checksum of its length disagrees: damaged, or no TFRecord file")
            length = int.from_bytes(prefix, "little")
            if length > _LARGEST:
                raise FormatError(f"{where} has {length:,} bytes, above {_LARGEST:,}: too large to be read")
            content = record.take(length)
            if not _agrees(content, record.take(4)):
                raise ChecksumError(f"{where}: the checksum of its bytes disagrees: copy the file again")
            yield content
            number += 1


def _agrees(octets: bytes, checksum: bytes) -> bool:
    return masked(crc32c(octets)) == int.from_bytes(checksum, "little")
