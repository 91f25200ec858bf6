"""Contents of one chunk of an archive, and their bytes."""

from collections.abc import Mapping
from dataclasses import dataclass

from axial_transformers.compression.errors import DamagedError
from axial_transformers.storage.byte_reader import ByteReader


@dataclass(frozen=True)
class Chunk:
    """Images of one chunk: a stream of those that the model codes, WebP files of those that WebP makes smaller."""

    webp: Mapping[int, bytes]
    """WebP files, by index among the images of the chunk, ascending."""
    stream: bytes
    """The other images, and a checksum of all."""

    def pack(self) -> bytes:
        """Bytes of the chunk."""
        parts, before = [_varint(len(self.webp))], -1
        for index, file in self.webp.items():
            parts += [_varint(index - before - 1), _varint(len(file)), file]
            before = index
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
        return cls(webp, reader.rest())


def _varint(number: int) -> bytes:
    """Seven bits per byte, lowest first; the top bit is set in all bytes but the last (LEB128)."""
    groups = [number & 127]
    while number := number >> 7:
        groups[-1] |= 128
        groups.append(number & 127)
    return bytes(groups)
