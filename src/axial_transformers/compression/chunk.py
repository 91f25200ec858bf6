"""What one chunk of an archive holds, and its bytes."""

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from axial_transformers.compression.errors import DamagedError
from axial_transformers.storage.byte_reader import ByteReader

_CHECKSUM = struct.Struct("<I")


@dataclass(frozen=True)
class Chunk:
    """Some images: those coded by the model in one stream, those that the plain codec does better beside it."""

    checksum: int
    """CRC-32 of the pixels of all images, as they come out."""
    plain: Mapping[int, bytes]
    """Files of the plain codec, by place among the images of the chunk, ascending."""
    recorded: Mapping[int, int]
    """The side list: values that the stream leaves out, by place among the symbols of the chunk, ascending."""
    stream: bytes
    """All other symbols, site by site in `model.order`, and of each site image by image."""

    def pack(self) -> bytes:
        """The bytes."""
        parts = [_CHECKSUM.pack(self.checksum), _varint(len(self.plain))]
        for gap, file in zip(_gaps(self.plain), self.plain.values()):
            parts += [_varint(gap), _varint(len(file)), file]
        parts.append(_varint(len(self.recorded)))
        for gap, value in zip(_gaps(self.recorded), self.recorded.values()):
            parts += [_varint(gap), bytes([value])]
        return b"".join([*parts, self.stream])

    @classmethod
    def unpack(cls, content: bytes) -> "Chunk":
        """What `pack` wrote.

        Raises:
            DamagedError: it did not write this.
        """
        reader = ByteReader(content, "a chunk", truncated=DamagedError, malformed=DamagedError)
        (checksum,) = _CHECKSUM.unpack(reader.take(_CHECKSUM.size))
        plain, place = dict[int, bytes](), -1
        for _ in range(reader.varint()):
            place += 1 + reader.varint()
            plain[place] = reader.take(reader.varint())
        recorded, place = dict[int, int](), -1
        for _ in range(reader.varint()):
            place += 1 + reader.varint()
            (recorded[place],) = reader.take(1)
        return cls(checksum, plain, recorded, reader.rest())


def _gaps(places: Mapping[int, object]) -> Iterator[int]:
    """How many places lie between each and the one before."""
    before = -1
    for place in places:
        yield place - before - 1
        before = place


def _varint(number: int) -> bytes:
    """Seven bits a byte, lowest first; the highest bit says that more follow (LEB128)."""
    groups = [number & 127]
    while number := number >> 7:
        groups[-1] |= 128
        groups.append(number & 127)
    return bytes(groups)
