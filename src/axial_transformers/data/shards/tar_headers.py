"""The headers of a tar file (POSIX.1-2008 and GNU), read in time linear in their bytes.

Python's tarfile reads one block here; what extends a block (long names, lists of values) is read by itself, since
tarfile takes time quadratic in such a list, and as much memory as a damaged one claims.
"""

import re
import tarfile
from typing import BinaryIO, NamedTuple

TarError = tarfile.TarError

_BLOCK = tarfile.BLOCKSIZE
_LISTS = (tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE)
_EXTENSIONS = (*_LISTS, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)
_LARGEST_EXTENSION = 1 << 20  # bytes
_LONGEST_NAME = 1 << 16  # bytes
_OF_SPARSE = (b"GNU.sparse.name", b"GNU.sparse.size", b"GNU.sparse.map", b"GNU.sparse.major")
_USED = (b"path", b"size", *_OF_SPARSE)
_VALUE = re.compile(rb"(\d{1,7}) ([^=\n]+)=")


class Place(NamedTuple):
    """Position and number of bytes in a file."""

    start: int
    size: int


class Member(NamedTuple):
    """A member of a tar file."""

    name: str
    """Its name; bytes that are not UTF-8 are surrogates."""
    header: int
    """Position of the first of its headers."""
    content: Place
    end: int
    """Position of the next member's first header."""
    regular: bool
    """False for links, folders and devices."""
    sparse: bool


def next_member(stream: BinaryIO, header: int) -> Member | None:
    """The member whose first header begins at a position; None where the archive ends there.

    Raises:
        TarError: no header there, or a damaged one.
    """
    values, block, position = dict[bytes, bytes](), _read(stream, header, _BLOCK), header + _BLOCK
    if block == bytes(_BLOCK):
        return None
    while (info := tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")).type in _EXTENSIONS:
        if not 0 <= info.size <= _LARGEST_EXTENSION:
            raise TarError(f"a header of {info.size:,} bytes")
        values = _extension(info.type, _read(stream, position, info.size)) | values  # the first ones prevail
        position += _padded(info.size)
        block, position = _read(stream, position, _BLOCK), position + _BLOCK
    sparse = info.type == tarfile.GNUTYPE_SPARSE or any(key in values for key in _OF_SPARSE)
    if info.type == tarfile.GNUTYPE_SPARSE:
        position = _after_sparse_headers(stream, block, position)
    size = _number(values[b"size"]) if b"size" in values else info.size
    if size < 0:
        raise TarError(f"a member of {size:,} bytes")
    has_content = info.isreg() or info.type not in tarfile.SUPPORTED_TYPES
    name = values.get(b"GNU.sparse.name", values.get(b"path"))
    return Member(
        name=info.name if name is None else _name(name),
        header=header,
        content=Place(position, size),
        end=position + (_padded(size) if has_content else 0),
        regular=info.isreg(),
        sparse=sparse,
    )


def _extension(kind: bytes, body: bytes) -> dict[bytes, bytes]:
    """The values for the next member that a header's extension holds, as far as they are used here."""
    if kind == tarfile.GNUTYPE_LONGNAME:
        return {b"path": body.partition(b"\0")[0]}
    if kind == tarfile.GNUTYPE_LONGLINK:
        return {}
    values = _values(body)
    if kind in _LISTS:
        return values
    if values:
        raise TarError(f"a global header that states the {b' and '.join(sorted(values)).decode()} of all members")
    return {}


def _values(body: bytes) -> dict[bytes, bytes]:
    """The list in an extended header: of each value its length with everything, a space, its key, = and itself."""
    values, position = dict[bytes, bytes](), 0
    while position < len(body) and body[position]:
        match = _VALUE.match(body, position)
        position += int(match[1]) if match else 0
        if not match or not match.end() < position <= len(body) or body[position - 1] != ord("\n"):
            raise TarError("an extended header that is no list of values")
        if match[2] in _USED:
            values[match[2]] = body[match.end() : position - 1]
    return values


def _name(path: bytes) -> str:
    if len(path) > _LONGEST_NAME:
        raise TarError(f"a name of {len(path):,} bytes")
    return path.decode("utf-8", "surrogateescape").rstrip("/")


def _number(digits: bytes) -> int:
    if not (digits.isdigit() and len(digits) < 20):
        raise TarError(f"a member of {digits[:20]!r} bytes")
    return int(digits)


def _after_sparse_headers(stream: BinaryIO, block: bytes, position: int) -> int:
    """The position after the headers that continue one of a sparse file, as old GNU tar writes them."""
    more = block[482]
    while more:
        more, position = _read(stream, position, _BLOCK)[504], position + _BLOCK
    return position


def _padded(size: int) -> int:
    return -(-size // _BLOCK) * _BLOCK


def _read(stream: BinaryIO, position: int, size: int) -> bytes:
    stream.seek(position)
    content = stream.read(size)
    if len(content) < size:
        raise TarError(f"it ends at byte {position + len(content):,}, within a header or before its end")
    return content
