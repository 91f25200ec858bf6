"""Bounds-checked reading of bytes that may be damaged or hostile."""

import os
from typing import BinaryIO


class ByteReader:
    """Reads forward through bytes or a file, and never beyond the end.

    Args:
        where: name of the source in errors.
        truncated: error class for bytes beyond the end.
        malformed: error class for a bad integer.
    """

    def __init__(
        self, source: bytes | BinaryIO, where: str, truncated: type[ValueError], malformed: type[ValueError]
    ) -> None:
        self._where = where
        self._truncated = truncated
        self._malformed = malformed
        # Bytes are indexed, not read as a file is, which takes three times as long for many small parts.
        self._octets = source if isinstance(source, bytes) else b""
        self._file = None if isinstance(source, bytes) else source
        self.position = 0
        self._end = len(self._octets)
        if self._file:
            self.position = self._file.tell()
            self._end = max(self.position, self._file.seek(0, os.SEEK_END))
            self._file.seek(self.position)

    @property
    def left(self) -> int:
        """Bytes that are not yet read."""
        return self._end - self.position

    def take(self, count: int) -> bytes:
        """Return the next `count` bytes."""
        start = self.position
        if count > self._end - start:
            raise self._truncated(
                f"{self._where} ends early: of {count:,} bytes wanted at byte {self.position:,}, {self.left:,} remain:"
                " it is cut off or damaged"
            )
        self.position = start + count
        return self._file.read(count) if self._file else self._octets[start : self.position]

    def varint(self) -> int:
        """Return the next unsigned 64-bit integer (shortest LEB128)."""
        start = self.position
        if start < len(self._octets) and (octet := self._octets[start]) < 0x80:  # most integers are short
            self.position = start + 1
            return octet
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
        return self.take(self.left)
