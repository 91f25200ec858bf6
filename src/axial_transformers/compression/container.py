"""The .axl file: a line of text, a header with an index, then chunks, each readable alone.

docs/reference/archive_format.md has the format.
"""

import re
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import BinaryIO, NamedTuple

from axial_transformers.storage.byte_reader import ByteReader
from axial_transformers.storage.files import source_path

VERSION = 8
"""The version of the format that this release writes. Later releases read it, too."""
START, END = b"axial-transformers archive, format ", b"\r\n\x1a\n"
"""Of the first line. As in PNG, transfers that convert line ends change its end, and it ends what a terminal shows."""
MAX_LINE = 300
"""Bytes of the first line."""
MAX_IMAGES = 256
"""Largest number of images in a chunk: a reader needs memory for all of them."""
MAX_BYTES = (1 << 32) - 1
"""Largest size of a chunk, and of the metadata."""

_FIXED = struct.Struct("<32sBIIIIB")
_ENTRY = struct.Struct("<HII")
_SIZE = struct.Struct("<I")
_LABELS, _MODEL = 1, 4
"""Bits of the byte of conditions."""
_HOLDS_MODEL = "holds its model"
_NEEDS = re.compile(r"(needs|holds changes of) (?:a model|(\w+) of version (\S+) or later), SHA-256 ([0-9a-f]{64})")
"""What the first line says of the model, if the archive needs one."""


class ArchiveError(ValueError):
    """An archive cannot be read."""


class WrongModelError(ArchiveError):
    """The archive was written with another model: other weights or another configuration."""


class WrongConditionsError(ArchiveError):
    """Labels do not match those of the archive."""


class OtherVersionError(ArchiveError):
    """This release does not read the archive's format version."""


class TruncatedError(ArchiveError):
    """The file ends before the archive does."""


class DamagedError(ArchiveError):
    """The archive has changed since it was written, or it is none."""


@contextmanager
def opened(path: str | Path) -> Iterator[BinaryIO]:
    """Open an archive file; errors about what it holds begin with its name."""
    with source_path(path).open("rb") as file:
        try:
            yield file
        except ArchiveError as error:
            raise type(error)(f"{path}: {error}") from error


class ChunkEntry(NamedTuple):
    """One line of the index."""

    images: int
    """Images in the chunk; 0: it holds the model, labels, or stored files."""
    size: int
    """Bytes of the chunk."""
    checksum: int
    """CRC-32 of the chunk."""


class NeededModel(NamedTuple):
    """A model that an archive needs, and does not hold."""

    fingerprint: bytes
    """Its SHA-256: 32 bytes."""
    name: str = ""
    """Of a model in the package, or empty."""
    version: str = ""
    """The version of the package that has it, as have all later ones."""

    def __str__(self) -> str:
        named = f"{self.name} of version {self.version} or later" if self.name else "a model"
        return f"{named}, SHA-256 {self.fingerprint.hex()}"


@dataclass(frozen=True, kw_only=True)
class Header:
    """Fields of the header, except those that follow from these."""

    fingerprint: bytes
    """SHA-256 of the model: 32 bytes."""
    shape: tuple[int, ...]
    """*A of an image."""
    channels: int
    num_values: int
    labels: bool = False
    """The model was given labels: the second chunk with `carries_model`, otherwise what the reader must know."""
    carries_model: bool = False
    """The first chunk is the model, or changes of the model that is needed."""
    needs: NeededModel | None = None
    """The model that a reader must have; None if the archive holds its own."""
    metadata: bytes = b""
    """Describes the files that the images came from: compressed JSON (see `description`)."""
    chunks: tuple[ChunkEntry, ...] = ()

    @property
    def model_chunks(self) -> int:
        """Number of chunks with the model and its labels, which come first."""
        return self.carries_model * (1 + self.labels)

    @property
    def stored_chunk(self) -> int | None:
        """Index of the chunk that holds stored files, the last one; None without."""
        last = len(self.chunks) - 1
        return last if last >= self.model_chunks and not self.chunks[last].images else None

    @property
    def image_chunks(self) -> range:
        """Indices of the chunks of images."""
        return range(self.model_chunks, len(self.chunks) - (self.stored_chunk is not None))

    @property
    def images(self) -> int:
        """Images in all chunks."""
        return self.first_images[-1]

    def pack(self) -> bytes:
        conditions = _LABELS * self.labels | _MODEL * self.carries_model
        fixed = _FIXED.pack(
            self.fingerprint, conditions, self.num_values, len(self.chunks), len(self.metadata),
            self.channels, len(self.shape),
        )  # fmt: skip
        sizes = b"".join(map(_SIZE.pack, self.shape))
        index = b"".join(_ENTRY.pack(*chunk) for chunk in self.chunks)
        head = self._first_line() + fixed + sizes + index + self.metadata
        return head + _SIZE.pack(zlib.crc32(head))

    def _first_line(self) -> bytes:
        of_model = _HOLDS_MODEL
        if self.needs:
            of_model = f"{'holds changes of' if self.carries_model else 'needs'} {self.needs}"
        return START + f"{VERSION}, {of_model}".encode() + END

    @cached_property
    def starts(self) -> list[int]:
        """Offsets of the chunks in the file, and the size of the file."""
        return [*accumulate((chunk.size for chunk in self.chunks), initial=len(self.pack()))]

    @cached_property
    def first_images(self) -> list[int]:
        """Numbers of the images before each chunk, and of all images."""
        return [*accumulate((chunk.images for chunk in self.chunks), initial=0)]


def entry(images: int, chunk: bytes) -> ChunkEntry:
    """Return the index entry of a chunk; ValueError if it is too large for one."""
    if len(chunk) > MAX_BYTES:
        raise ValueError(f"a chunk of {len(chunk):,} bytes: an archive holds at most {MAX_BYTES:,} in each")
    return ChunkEntry(images, len(chunk), zlib.crc32(chunk))


def read_header(file: BinaryIO) -> Header:
    """Return the header of an archive. Its chunks may still be damaged or missing.

    Raises:
        OtherVersionError: a version that this release does not read.
        TruncatedError: the header is not whole.
        DamagedError: no archive, a damaged header, or bytes behind the last chunk.
    """
    of_model = _read_first_line(file)
    head = _reader(file, "the header of the archive")
    fingerprint, conditions, num_values, chunks, size, channels, axes = _FIXED.unpack(head.take(_FIXED.size))
    shape = tuple(size for (size,) in _SIZE.iter_unpack(head.take(_SIZE.size * axes)))
    index = tuple(ChunkEntry(*fields) for fields in _ENTRY.iter_unpack(head.take(_ENTRY.size * chunks)))
    metadata = head.take(size)
    length = head.position
    (checksum,) = _SIZE.unpack(head.take(_SIZE.size))
    file.seek(0)
    if zlib.crc32(file.read(length)) != checksum:
        raise DamagedError("the header is damaged: its checksum differs")
    if head.left > sum(chunk.size for chunk in index):
        raise DamagedError("there are bytes behind the last chunk")
    verb, needs = _read_needed(of_model)
    header = Header(
        fingerprint=fingerprint, shape=shape, channels=channels, num_values=num_values, needs=needs,
        labels=bool(conditions & _LABELS), carries_model=bool(conditions & _MODEL), metadata=metadata, chunks=index,
    )  # fmt: skip
    without_images = index[: header.model_chunks]
    claims = {
        f"conditions {conditions}": conditions & ~(_LABELS | _MODEL),
        f"that it {verb}, but not in its fields": header.carries_model != verb.startswith("holds"),
        "another model than it names": verb == "needs" and needs and needs.fingerprint != fingerprint,
        "a model that is not there": len(without_images) < header.model_chunks,
        "images in the chunks of the model": any(chunk.images for chunk in without_images),
        "a chunk without images among those of images": not all(index[i].images for i in header.image_chunks),
        f"a chunk of more than {MAX_IMAGES} images": any(chunk.images > MAX_IMAGES for chunk in index),
    }
    for claim, is_damage in claims.items():
        if is_damage:
            raise DamagedError(f"the header is damaged: it claims {claim}")
    return header


def _read_first_line(file: BinaryIO) -> str:
    """Return what the first line says of the model, and leave the file behind the line.

    Raises:
        OtherVersionError, TruncatedError, DamagedError: see `read_header`.
    """
    file.seek(0)
    start = file.read(MAX_LINE)
    if not start.startswith(START):
        if START.startswith(start):
            raise TruncatedError("the archive ends within its first line: it is cut off")
        raise DamagedError("not an archive: an .axl file starts with other bytes")
    line, end, _ = start.partition(END)
    version, _, of_model = line.removeprefix(START).decode("ascii", "replace").partition(", ")
    if version.isdecimal() and int(version) != VERSION:
        raise OtherVersionError(f"archive of format version {version}; this release reads version {VERSION}")
    is_short = len(start) < MAX_LINE
    if is_short and not end and (b"\n" not in start or start.endswith((END[:2], END[:3]))):
        raise TruncatedError("the archive ends within its first line: it is cut off")
    if not end or version != str(VERSION):
        raise DamagedError("the first line of the archive is damaged: a transfer as text may have changed it")
    file.seek(len(line) + len(END))
    return of_model


def _read_needed(of_model: str) -> tuple[str, NeededModel | None]:
    """Return what the first line says that an archive does with a model, and the model that it needs."""
    if of_model == _HOLDS_MODEL:
        return of_model, None
    match = _NEEDS.fullmatch(of_model)
    if match is None:
        raise DamagedError("the first line of the archive is damaged: it does not say which model it needs")
    verb, name, version, digest = match.groups(default="")
    return verb, NeededModel(bytes.fromhex(digest), name, version)


def read_chunk(file: BinaryIO, header: Header, chunk: int) -> bytes:
    """Return the bytes of one chunk; nothing else of the file is read.

    Raises:
        TruncatedError: the file ends before the chunk does.
        DamagedError: its checksum differs.
    """
    where = f"chunk {chunk} of {len(header.chunks)}"
    _, size, checksum = header.chunks[chunk]
    file.seek(header.starts[chunk])
    content = _reader(file, where).take(size)
    if zlib.crc32(content) != checksum:
        raise DamagedError(f"{where} is damaged: its checksum differs")
    return content


def _reader(file: BinaryIO, where: str) -> ByteReader:
    return ByteReader(file, where, truncated=TruncatedError, malformed=DamagedError)


def varint(number: int) -> bytes:
    """Return a number in seven bits a byte, lowest first; the top bit is set in all bytes but the last (LEB128)."""
    groups = []
    while number > 127:
        groups.append(number & 127 | 128)
        number >>= 7
    return bytes([*groups, number])
