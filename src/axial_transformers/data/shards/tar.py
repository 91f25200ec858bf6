"""The records of a tar file, grouped as by webdataset: consecutive members whose names agree up to the first dot.

`cat/0001.png`, `cat/0001.cls` and `cat/0001.json` are one record: a picture or an array, its class, and a member that
is ignored. Nothing is ever unpacked to disk.
"""

import io
import tarfile
from collections.abc import Iterator
from itertools import groupby, islice
from pathlib import Path
from typing import NamedTuple

from axial_transformers.data import picture_files

ARRAY = ".npy"
LABEL = ".cls"
_PICKLED = (".pyd", ".pkl", ".pickle", ".pth", ".pt")
_MOST_MEMBERS = 100  # of one record
_LARGEST_HEADER = 1 << 20  # bytes of an extended header: names are all that these hold


class Place(NamedTuple):
    """Position and number of bytes in a file."""

    start: int
    size: int


class Record(NamedTuple):
    """A record of a shard."""

    name: str
    """Name of the member that holds the example."""
    header: int
    """Position of that member's header, in bytes from the start of the file."""
    example: Place
    label: Place | None
    problem: str | None = None
    """The reason for which it is no example, if the headers show one."""


def records(path: Path) -> Iterator[Record]:
    """Yields the records of an uncompressed tar file, in order; only headers are read.

    Raises:
        ValueError: no tar file, one that is cut off or damaged between members, or one that holds pickles.
    """
    for _, members in groupby(_members(path), key=lambda member: _key(member.name)):
        record = list(islice(members, _MOST_MEMBERS + 1))
        if len(record) > _MOST_MEMBERS:
            raise ValueError(f"{path}: over {_MOST_MEMBERS} members have the name {record[0].name!r} up to its dot")
        yield _record(path, record)


def name_at(path: Path, header: int) -> str:
    """The name of the member whose header begins there."""
    with path.open("rb") as stream:
        stream.seek(header)
        with tarfile.TarFile(fileobj=stream) as tar:
            member = tar.next()
            assert member is not None
            return _readable(member.name)


def _record(path: Path, members: list[tarfile.TarInfo]) -> Record:
    of_suffix = {_suffix(member.name): member for member in members}
    for suffix in _PICKLED:
        if suffix in of_suffix:
            name = _readable(of_suffix[suffix].name)
            raise ValueError(f"{path}: {name!r} is pickled, and nothing is ever unpickled: save it as {ARRAY}")
    examples = [member for suffix, member in of_suffix.items() if suffix in (*picture_files.SUFFIXES, ARRAY)]
    label = of_suffix.get(LABEL)
    example = examples[0] if examples else members[0]
    return Record(
        name=_readable(example.name),
        header=example.offset,
        example=Place(example.offset_data, example.size),
        label=None if label is None else Place(label.offset_data, label.size),
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
    """The last part of a path from its first dot."""
    _, dot, rest = name.rpartition("/")[2].partition(".")
    return (dot + rest).lower() if lower else dot + rest


def _readable(name: str) -> str:
    """The name, with bytes that are not UTF-8 escaped."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _members(path: Path) -> Iterator[tarfile.TarInfo]:
    """The regular files of an archive that have a suffix."""
    size = path.stat().st_size
    with _Headers(io.FileIO(path)) as stream:
        try:
            with tarfile.TarFile(fileobj=stream) as tar:
                end = 0
                while (member := tar.next()) is not None:
                    tar.members.clear()  # type: ignore[attr-defined]  # which would grow with the archive
                    if tar.offset <= end or member.size < 0 or member.offset_data + member.size > size:
                        raise tarfile.ReadError(f"{_readable(member.name)!r} is said to have {member.size:,} bytes")
                    end = tar.offset
                    if member.isreg() and _is_named(member.name):
                        yield member
                stream.seek(end)
                if stream.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
                    raise tarfile.ReadError(f"no member and no end of an archive at byte {end:,}")
        except Exception as error:  # parsers of damaged files raise errors of every kind
            if isinstance(error, OSError) and error.filename:
                raise
            reason = " ".join(str(error).split())[:200] or type(error).__name__
            raise ValueError(
                f"{path} is not a whole, uncompressed tar file ({reason}): copy, unzip or pack it again"
            ) from error


def _is_named(name: str) -> bool:
    """Tests for a dot with text before and after it, as webdataset does."""
    stem, dot, suffix = name.rpartition("/")[2].partition(".")
    return bool(stem and dot and suffix)


class _Headers(io.BufferedReader):
    """A file of which tarfile reads headers only, so that it never allocates as much as a damaged one claims."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or not 0 <= size <= _LARGEST_HEADER:
            raise tarfile.ReadError(f"a header of {size} bytes")
        return super().read(size)
