"""TFRecord files: [length: 8 bytes, its masked CRC-32C: 4, the record, its masked CRC-32C: 4]..."""

from collections.abc import Iterator
from pathlib import Path

from axial_transformers.storage.byte_reader import ByteReader
from axial_transformers.storage.tensorflow.crc32c import crc32c, masked
from axial_transformers.storage.tensorflow.protobuf import ChecksumError, FormatError, TruncatedError

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
