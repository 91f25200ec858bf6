"""Bounds-checked reading of bytes that may be damaged or hostile."""

import io
import os
from typing import BinaryIO


class ByteReader:
    """Reads forward through bytes, or through an open file from its current position, and never beyond the end.

    Args:
        source: the bytes, or a seekable file.
        where: name of the source in errors.
        truncated: class of the error for bytes beyond the end.
        malformed: class of the error for an integer that no writer encodes so.
    """

    def __init__(
        self, source: bytes | BinaryIO, where: str, truncated: type[ValueError], malformed: type[ValueError]
    ) -> None:
        self._file = io.BytesIO(source) if isinstance(source, bytes) else source
        self._where, self._truncated, self._malformed = where, truncated, malformed
        self.position = self._file.tell()
        self.left = max(0, self._file.seek(0, os.SEEK_END) - self.position)
        """Number of bytes that are not yet read."""
        self._file.seek(self.position)

    def take(self, count: int) -> bytes:
        """The next `count` bytes.

        Raises:
            truncated: fewer are left; nothing was read then.
        """
        if count > self.left:
            raise self._truncated(
                f"{self._where} ends early: of {count:,} bytes wanted at byte {self.position:,}, {self.left:,} remain:"
                " it is cut off or damaged"
            )
        self.position += count
        self.left -= count
        return self._file.read(count)

    def varint(self) -> int:
        """The next unsigned 64-bit integer (LEB128: seven bits a byte, lowest first, in its shortest form).

        Raises:
            truncated: the bytes end within it.
            malformed: it is longer than ten bytes or than its value needs.
        """
        value = 0
        for shift in range(0, 70, 7):
            (octet,) = self.take(1)
            value |= (octet & 0x7F) << shift
            if octet == 0 and shift:
                break
            if octet < 0x80:
                return value
        raise self._malformed(f"{self._where} has a malformed integer before byte {self.position:,}")

    def rest(self) -> bytes:
        """All bytes that are left."""
        return self.take(self.left)
