"""The .axl file: a header with an index, then chunks, each readable without the others. See docs/compression.md."""

import struct
import zlib
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from math import prod
from typing import BinaryIO, NamedTuple

from axial_transformers.compression.errors import DamagedError, OtherVersionError, TruncatedError
from axial_transformers.storage.byte_reader import ByteReader

MAGIC = b"\x89AXL\r\n\x1a\n"  # as in PNG: transfers that convert line ends or drop the top bit change it
VERSIONS = (1, 2)
MOST_AXES = 16
MOST_IMAGES = 256
"""Largest number of images in a chunk; a reader needs memory for them."""
MOST_BYTES = (1 << 32) - 1
"""Largest size of a chunk, and of the metadata."""

_PREFIX = struct.Struct("<8sB")
_IDENTIFIERS = struct.Struct("<BBBBI")
_FIXED = struct.Struct("<32sBBIIIIB")
_ENTRIES = {1: struct.Struct("<IIII"), 2: struct.Struct("<HII")}
"""A line of the index: images, in version 1 symbols, size, checksum."""
_SIZE = struct.Struct("<I")


class Entry(NamedTuple):
    """One line of the index."""

    images: int
    """Number of images in the chunk; 0 if it holds a whole file instead."""
    symbols: int
    """Number of symbols in its stream; in version 2, where none is stated, the number of values of its images."""
    size: int
    """Size of the chunk in bytes."""
    checksum: int
    """CRC-32 of its bytes."""


class Identifiers(NamedTuple):
    """Meaning of the bytes of version 2: for each, this release knows the default only."""

    arithmetic: int = 1
    """1: the float32 operations of `kernels.exact`."""
    coder: int = 1
    """1: one state of 63 bits, 32-bit words, frequencies of 24 bits."""
    value_bits: int = 8
    """Bits of a value; one of more than 8 bits is two symbols, its high byte and its low byte."""
    escape_bytes: int = 1
    """Bytes of a value that the stream leaves out, lowest first."""
    flags: int = 0
    """Sections between metadata and checksum, each with its size (4 bytes) first, in the order of the bits: the model
    (1), headers of the source's format (2)."""


@dataclass(frozen=True, kw_only=True)
class Header:
    """Fields of the header, other than those that follow from these."""

    version: int = 1
    """Version of the format: 1 computes the model in float64, 2 in the arithmetic of `kernels.exact`."""

    fingerprint: bytes
    """Fingerprint of the model: 32 bytes."""
    shape: tuple[int, ...]
    """Axes *A of an image."""
    channels: int
    num_values: int
    precision: int
    """Bits of the grid of frequencies."""
    conditions: int = 0
    """Conditioning that the reader must be given: 1 labels, 2 external conditioning, 3 both."""
    metadata: bytes = b""
    """Description of the files that the images came from: compressed JSON (see `files`)."""
    chunks: tuple[Entry, ...] = ()

    @property
    def images(self) -> int:
        """Number of images in all chunks."""
        return self._before[-1].images

    def pack(self) -> bytes:
        """Bytes before the first chunk."""
        fixed = _FIXED.pack(
            self.fingerprint, self.precision, self.conditions, self.num_values, len(self.chunks), len(self.metadata),
            self.channels, len(self.shape),
        )  # fmt: skip
        sizes = b"".join(map(_SIZE.pack, self.shape))
        line = _ENTRIES[self.version]
        index = b"".join(line.pack(*(chunk if self.version == 1 else _without_symbols(chunk))) for chunk in self.chunks)
        identifiers = _IDENTIFIERS.pack(*Identifiers()) if self.version > 1 else b""
        head = _PREFIX.pack(MAGIC, self.version) + identifiers + fixed + sizes + index + self.metadata
        return head + _SIZE.pack(zlib.crc32(head))

    def start(self, chunk: int) -> int:
        """Offset of a chunk in the file."""
        variable = _SIZE.size * len(self.shape) + _ENTRIES[self.version].size * len(self.chunks) + len(self.metadata)
        identifiers = _IDENTIFIERS.size if self.version > 1 else 0
        return _PREFIX.size + identifiers + _FIXED.size + variable + _SIZE.size + self._before[chunk].size

    def first_image(self, chunk: int) -> int:
        """Number of images in the chunks before one."""
        return self._before[chunk].images

    @cached_property
    def _before(self) -> list["_Before"]:
        """Sums over the chunks before each one, and over all of them."""
        sizes = accumulate((chunk.size for chunk in self.chunks), initial=0)
        return [_Before(*sums) for sums in zip(sizes, accumulate((chunk.images for chunk in self.chunks), initial=0))]


class _Before(NamedTuple):
    """Sums over the chunks before one."""

    size: int
    images: int


def entry(images: int, symbols: int, chunk: bytes) -> Entry:
    """The index entry of a chunk.

    Raises:
        ValueError: it is too large for one.
    """
    if len(chunk) > MOST_BYTES:
        raise ValueError(f"a file or a chunk of {len(chunk):,} bytes: an archive holds at most {MOST_BYTES:,} of each")
    return Entry(images, symbols, len(chunk), zlib.crc32(chunk))


def read_header(file: BinaryIO) -> Header:
    """The header of an archive; its chunks may be damaged or missing.

    Raises:
        OtherVersionError: a version that this release does not read.
        TruncatedError: the header is not whole.
        DamagedError: no archive, a damaged header, or bytes after the last chunk.
    """
    file.seek(0)
    head = _reader(file, "the header of the archive")
    version = _read_version(head)
    if version > 1:  # first of all, as nobody knows what else differs
        _check_identifiers(Identifiers(*_IDENTIFIERS.unpack(head.take(_IDENTIFIERS.size))))
    fingerprint, precision, conditions, num_values, chunks, size, channels, axes = _FIXED.unpack(head.take(_FIXED.size))
    if axes > MOST_AXES:
        raise DamagedError(f"the header is damaged: it claims {axes} axes")
    shape = tuple(size for (size,) in _SIZE.iter_unpack(head.take(_SIZE.size * axes)))
    sites = channels * prod(shape)
    line = _ENTRIES[version]
    index = tuple(
        Entry(*fields) if version == 1 else Entry(fields[0], fields[0] * sites, *fields[1:])
        for fields in line.iter_unpack(head.take(line.size * chunks))
    )
    metadata = head.take(size)
    length = head.position
    (checksum,) = _SIZE.unpack(head.take(_SIZE.size))
    file.seek(0)
    if zlib.crc32(file.read(length)) != checksum:
        raise DamagedError("the header is damaged: its checksum differs")
    if head.left > sum(chunk.size for chunk in index):
        raise DamagedError("there are bytes behind the last chunk")
    for i, chunk in enumerate(index):
        if chunk.images > MOST_IMAGES or chunk.symbols > chunk.images * sites:
            raise DamagedError(f"chunk {i} claims {chunk.images} images of {chunk.symbols} symbols")
    return Header(
        version=version, fingerprint=fingerprint, shape=shape, channels=channels, num_values=num_values,
        precision=precision, conditions=conditions, metadata=metadata, chunks=index,
    )  # fmt: skip


def _read_version(head: ByteReader) -> int:
    """The version that an archive's first bytes state."""
    prefix = head.take(min(_PREFIX.size, head.left))
    if not MAGIC.startswith(prefix[: len(MAGIC)]):
        raise DamagedError("not an archive: an .axl file starts with other bytes")
    if len(prefix) < _PREFIX.size:
        raise TruncatedError("the archive ends within its first bytes")
    if prefix[-1] not in VERSIONS:
        versions = " and ".join(map(str, VERSIONS))
        raise OtherVersionError(f"archive of format version {prefix[-1]}; this release reads versions {versions}")
    return prefix[-1]


def _without_symbols(entry: Entry) -> tuple[int, int, int]:
    return entry.images, entry.size, entry.checksum


def _check_identifiers(identifiers: Identifiers) -> None:
    """Raises OtherVersionError for one that this release does not know."""
    for name, found, known in zip(Identifiers._fields, identifiers, Identifiers()):
        if found != known:
            raise OtherVersionError(
                f"archive with {name.replace('_', ' ')} {found}: a newer version of axial-transformers is needed"
            )


def read_chunk(file: BinaryIO, header: Header, chunk: int) -> bytes:
    """One chunk; nothing else of the file is read.

    Raises:
        TruncatedError: the file ends before it does.
        DamagedError: its checksum differs.
    """
    file.seek(header.start(chunk))
    content = _reader(file, f"chunk {chunk} of {len(header.chunks)}").take(header.chunks[chunk].size)
    if zlib.crc32(content) != header.chunks[chunk].checksum:
        raise DamagedError(f"chunk {chunk} of {len(header.chunks)} is damaged: its checksum differs")
    return content


def _reader(file: BinaryIO, where: str) -> ByteReader:
    return ByteReader(file, where, truncated=TruncatedError, malformed=DamagedError)
