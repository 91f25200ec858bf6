"""The records of a tar file, grouped as by webdataset: consecutive members whose names agree up to the first dot.

`cat/0001.png`, `cat/0001.cls` and `cat/0001.json` are one record: a picture or an array, its class, and a member that
is ignored. Nothing is ever unpacked to disk.
"""

from collections.abc import Iterator
from itertools import groupby, islice
from pathlib import Path
from typing import NamedTuple

from axial_transformers.data import picture_files
from axial_transformers.data.shards.tar_headers import Member, Place, TarError, next_member

ARRAY = ".npy"
LABEL = ".cls"
_PICKLED = (".pyd", ".pkl", ".pickle", ".pth", ".pt")
_MOST_MEMBERS = 100  # of one record


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


def name_at(path: Path, header: int) -> str | None:
    """The name of the member whose header begins there; None if none does."""
    with path.open("rb") as stream:
        try:
            member = next_member(stream, header)
        except TarError:
            return None
        return member and _readable(member.name)


def check_whole(path: Path) -> None:
    """Reads all headers of a file.

    Raises:
        ValueError: no tar file, or one that is cut off or damaged between members.
    """
    for _ in _members(path):
        pass


def _record(path: Path, members: list[Member]) -> Record:
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
        header=example.header,
        example=example.content,
        label=None if label is None else label.content,
        problem=_problem(members, examples, of_suffix),
    )


def _problem(members: list[Member], examples: list[Member], of_suffix: dict[str, Member]) -> str | None:
    if len(of_suffix) < len(members):
        return "has two members of one kind"
    if len(examples) != 1:
        return "comes with another picture or array" if examples else "comes with no picture and no array"
    return "is a sparse file" if examples[0].sparse else None


def _key(name: str) -> str:
    return name.removesuffix(_suffix(name, lower=False))


def _suffix(name: str, lower: bool = True) -> str:
    """The last part of a path from its first dot."""
    _, dot, rest = name.rpartition("/")[2].partition(".")
    return (dot + rest).lower() if lower else dot + rest


def _readable(name: str) -> str:
    """The name, with bytes that are not UTF-8 escaped."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _members(path: Path) -> Iterator[Member]:
    """The regular files of an archive that have a suffix."""
    size, position = path.stat().st_size, 0
    with path.open("rb") as stream:
        try:
            while (member := next_member(stream, position)) is not None:
                position = member.end
                if sum(member.content) > size:
                    raise TarError(f"{_readable(member.name)!r} is said to have {member.content.size:,} bytes")
                if member.regular and _is_named(member.name):
                    yield member
        except TarError as error:
            reason = " ".join(str(error).split())[:200]
            raise ValueError(
                f"{path} is not a whole, uncompressed tar file ({reason}): copy, unzip or pack it again"
            ) from error


def _is_named(name: str) -> bool:
    """Tests for a dot with text before and after it, as webdataset does."""
    stem, dot, suffix = name.rpartition("/")[2].partition(".")
    return bool(stem and dot and suffix)
