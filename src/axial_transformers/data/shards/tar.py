"""The records of a tar file as in webdataset: consecutive members whose names agree up to the first dot.

Nothing is unpacked to disk.
"""

import tarfile
from collections.abc import Iterator
from itertools import groupby, islice
from pathlib import Path
from typing import BinaryIO, NamedTuple

from axial_transformers.data import picture_files

ARRAY = ".npy"
LABEL = ".cls"
_PICKLED = (".pyd", ".pkl", ".pickle", ".pth", ".pt")
_MAX_MEMBERS = 100  # of one record
_MAX_HEADER = 1 << 13
"""Bytes. Before Python 3.11.10 and 3.12.6, tarfile is quadratic in lists of values."""
_PLACING = {"path", "size"}
"""Values that a global header must not have."""


class Extent(NamedTuple):
    """Position and number of bytes in a file."""

    start: int
    size: int


class TarRecord(NamedTuple):
    """A record of a shard."""

    name: str
    header: int
    example: Extent
    label: Extent | None
    problem: str | None = None


def records(path: Path) -> Iterator[TarRecord]:
    """Yield the records of a tar file; only headers are read."""
    named = (member for member in members(path) if member.isreg() and _is_named(member.name))
    for _, group in groupby(named, key=lambda member: _key(member.name)):
        record = list(islice(group, _MAX_MEMBERS + 1))
        if len(record) > _MAX_MEMBERS:
            raise ValueError(f"{path}: over {_MAX_MEMBERS} members have the name {record[0].name!r} up to its dot")
        yield _record(path, record)


def members(path: Path, start: int = 0) -> Iterator[tarfile.TarInfo]:
    """Yield the members of a tar file, from the header at `start`."""
    size, position = path.stat().st_size, start
    with path.open("rb") as stream:
        headers = _Headers(stream)
        try:
            headers.begin(position)
            archive = tarfile.TarFile(fileobj=headers, encoding="utf-8", errors="surrogateescape")  # type: ignore[arg-type]
            while headers.begin(position) != bytes(tarfile.BLOCKSIZE):
                archive.pax_headers = {}
                member = tarfile.TarInfo.fromtarfile(archive)
                if not position < archive.offset <= size or member.size < 0:
                    raise tarfile.TarError(f"{readable(member.name)!r} is said to have {member.size:,} bytes")
                if stated := {name for name in archive.pax_headers if name in _PLACING or name.startswith("GNU.")}:
                    raise tarfile.TarError(f"a global header that states the {' and '.join(stated)} of all members")
                position, member.pax_headers = archive.offset, {}  # which may be large
                yield member
        except Exception as error:  # tarfile raises errors of every kind
            reason = " ".join(str(error).split())[:200] or type(error).__name__
            raise ValueError(
                f"{path} is not a whole, uncompressed tar file ({reason}): copy, unzip or pack it again"
            ) from error


class _Headers:
    def __init__(self, stream: BinaryIO) -> None:
        self._stream, self._left = stream, 0
        self.seek, self.tell = stream.seek, stream.tell

    def begin(self, position: int) -> bytes:
        self._stream.seek(position)
        block = self._stream.read(tarfile.BLOCKSIZE)
        self._stream.seek(position)
        self._left = _MAX_HEADER
        return block

    def read(self, size: int) -> bytes:
        if not 0 <= size <= self._left:
            raise tarfile.TarError(f"headers of over {_MAX_HEADER:,} bytes")
        self._left -= size
        return self._stream.read(size)


def _record(path: Path, members: list[tarfile.TarInfo]) -> TarRecord:
    of_suffix = {_suffix(member.name): member for member in members}
    for suffix in _PICKLED:
        if suffix in of_suffix:
            name = readable(of_suffix[suffix].name)
            raise ValueError(f"{path}: {name!r} is pickled, and nothing is ever unpickled: save it as {ARRAY}")
    examples = [member for suffix, member in of_suffix.items() if suffix in (*picture_files.SUFFIXES, ARRAY)]
    label = of_suffix.get(LABEL)
    example = examples[0] if examples else members[0]
    return TarRecord(
        name=readable(example.name),
        header=example.offset,
        example=Extent(example.offset_data, example.size),
        label=None if label is None else Extent(label.offset_data, label.size),
        problem=_problem(members, examples, of_suffix),
    )


def _problem(
    members: list[tarfile.TarInfo], examples: list[tarfile.TarInfo], of_suffix: dict[str, tarfile.TarInfo]
) -> str | None:
    if len(of_suffix) < len(members):
        return "has two members of one kind"
    if len(examples) != 1:
        return "comes with another picture or array" if examples else "comes with no picture and no array"
    return "is a sparse file" if examples[0].issparse() else None


def _key(name: str) -> str:
    return name.removesuffix(_suffix(name, lower=False))


def _suffix(name: str, lower: bool = True) -> str:
    _, dot, rest = name.rpartition("/")[2].partition(".")
    return (dot + rest).lower() if lower else dot + rest


def readable(name: str) -> str:
    """Return the name, with other bytes than UTF-8 escaped."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _is_named(name: str) -> bool:
    stem, dot, suffix = name.rpartition("/")[2].partition(".")
    return bool(stem and dot and suffix)
