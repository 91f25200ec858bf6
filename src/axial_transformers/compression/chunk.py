"""Contents of one chunk of an archive, and their bytes."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from axial_transformers.compression.errors import DamagedError
from axial_transformers.storage.byte_reader import ByteReader


@dataclass(frozen=True)
class Chunk:
    """Images of one chunk: a stream of those that the model codes, WebP files of those that WebP makes smaller."""

    webp: Mapping[int, bytes]
    """WebP files, by index among the images of the chunk, ascending."""
    escapes: Mapping[int, int]
    """Values that the stream leaves out, by index among the symbols of the chunk, ascending."""
    stream: bytes
    """All other symbols."""

    def pack(self) -> bytes:
        """Bytes of the chunk."""
        parts = [_varint(len(self.webp))]
        for gap, file in zip(_gaps(self.webp), self.webp.values()):
            parts += [_varint(gap), _varint(len(file)), file]
        parts.append(_varint(len(self.escapes)))
        for gap, value in zip(_gaps(self.escapes), self.escapes.values()):
            parts += [_varint(gap), bytes([value])]
        return b"".join([*parts, self.stream])

    @classmethod
    def unpack(cls, content: bytes) -> "Chunk":
        """The chunk whose `pack` gave these bytes.

        Raises:
            DamagedError: there is none.
        """
        reader = ByteReader(content, "a chunk", truncated=DamagedError, malformed=DamagedError)
        webp, index = dict[int, bytes](), -1
        for _ in range(reader.varint()):
            index += 1 + reader.varint()
            webp[index] = reader.take(reader.varint())
        escapes, index = dict[int, int](), -1
        for _ in range(reader.varint()):
            index += 1 + reader.varint()
            (escapes[index],) = reader.take(1)
        return cls(webp, escapes, reader.rest())


def _gaps(indices: Mapping[int, object]) -> Iterator[int]:
    """Number of indices left out between each and the one before."""
    before = -1
    for index in indices:
        yield index - before - 1
        before = index


def _varint(number: int) -> bytes:
    """Seven bits per byte, lowest first; the top bit is set in all bytes but the last (LEB128)."""
    groups = [number & 127]
    while number := number >> 7:
        groups[-1] |= 128
        groups.append(number & 127)
    return bytes(groups)
