"""Protocol buffer messages, and the errors of TensorFlow's file formats."""

from axial_transformers.storage.byte_reader import ByteReader


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
