"""The index of a shard: the position of each whole record, so that any of them can be read alone.

It is made once, by reading the whole shard and decoding every record, and kept in the cache: 24 bytes a record, which
are mapped into memory. Damaged records are found then, by the first process that opens the shard, and are the same for
all processes: later, no record is skipped or replaced.

An index is of one path, size and time of change of a shard, and of the options of reading it: with others it is made
anew. It has one checksum, compared whenever it is opened, which finds accidents, not forgery: who can write to the
user's cache can also write the checksum.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import groupby, islice
from math import prod
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from axial_transformers.data.config import DataConfig
from axial_transformers.data.picture_files import MOST_PIXELS
from axial_transformers.data.shards.record_decoding import (
    LARGEST_RECORD,
    MOST_CLASSES,
    Form,
    Medium,
    class_of,
    common_form,
    decode,
    read,
)
from axial_transformers.data.shards.tar import Record, records
from axial_transformers.data.workers import ahead
from axial_transformers.progress import Progress
from axial_transformers.storage.files import cache_folder, folder_written_whole
from axial_transformers.storage.locks import only_one_process
from axial_transformers.storage.typed_json import from_json, read_object, to_json

ROW = np.dtype([("header", "<i8"), ("start", "<i8"), ("size", "<u4"), ("label", "<i4")])
"""Positions of a record's header and of its bytes, number of bytes, class or -1."""

_VERSION = 3
_ROWS, _ABOUT = "rows.bin", "about.json"
_LARGEST_ABOUT = 256  # mebibytes
_MOST_NUMBERS = 3 * MOST_PIXELS  # of an example
_ROWS_AT_A_TIME = 1 << 15
_CHUNK = 1024  # records that are checked at a time
_WORTH_WORKERS = 1 << 24  # bytes of shards above which workers are started


@dataclass(frozen=True)
class ShardIndex:
    """The index of a shard."""

    path: Path
    folder: Path
    """The folder of the index."""
    digest: str
    """SHA-256 over names, bytes and classes of the whole records."""
    forms: dict[Form, str]
    """The forms of the whole records, each with the name of the first record that has it."""
    bad: list[str]
    """A line about each damaged record."""
    state: tuple[int, int]
    """`state_of` the shard when it was indexed."""

    @property
    def rows(self) -> NDArray[np.void]:
        """`ROW` [N], mapped from disk."""
        return _rows(self.folder)


@cache
def _rows(folder: Path) -> NDArray[np.void]:
    path = folder / _ROWS
    return np.memmap(path, ROW, "r") if path.stat().st_size else np.zeros(0, ROW)


def index(paths: Sequence[Path], options: DataConfig, progress: Progress = iter) -> list[ShardIndex]:
    """Indices of shards; those that the cache does not hold, or holds damaged, are made.

    Raises:
        ValueError: a file that is no tar file, records that do not fit together, or more damaged ones than
            `options.skip_bad`.
        OSError: something could not be read, or written to the cache.
    """
    folders = {path: _folder(path, options) for path in paths}
    with only_one_process(_cache()):
        found = {path: _opened(path, folder) for path, folder in folders.items()}
        missing = [path for path, each in found.items() if each is None]
        _rows.cache_clear()  # of damaged indices
        for path, chunks in _checked(missing, options, progress):
            _write(path, folders[path], chunks, options.skip_bad or 0)
        found |= {path: _open(path, folders[path]) for path in missing}
    indices = [each for path in paths if (each := found[path])]
    _refuse([line for each in indices for line in each.bad], options.skip_bad or 0)
    return indices


def state_of(path: Path) -> tuple[int, int]:
    """Size and time of change of a file, in bytes and nanoseconds."""
    found = path.stat()
    return found.st_size, found.st_mtime_ns


def _opened(path: Path, folder: Path) -> ShardIndex | None:
    """The index in a folder, None if it is missing or damaged."""
    try:
        return _open(path, folder)
    except (ValueError, FileNotFoundError):
        return None


def _refuse(bad: Sequence[str], allowed: int) -> None:
    if len(bad) > allowed:
        others = f"{len(bad) - 1} more are damaged; " if len(bad) > 1 else ""
        raise ValueError(f"{bad[0]} ({others}--data.skip-bad {len(bad)} would leave out {len(bad)})")


def _cache() -> Path:
    return cache_folder() / "shards"


def _folder(path: Path, options: DataConfig) -> Path:
    """The folder for the index of a shard, another one if the file or the options of reading it change."""
    as_picture = [options.size, options.fit, options.mode]
    as_array: list[object] = [options.num_values, options.frames, options.stride, options.axes]
    identity = [_VERSION, str(path.resolve()), *state_of(path), as_picture, as_array]
    return _cache() / hashlib.sha256(json.dumps(identity).encode()).hexdigest()


class _Checked(NamedTuple):
    """Some records of a shard, checked."""

    rows: NDArray[np.void]
    digest: bytes
    forms: dict[Form, str]
    bad: list[str]


def _checked(
    paths: Sequence[Path], options: DataConfig, progress: Progress
) -> Iterator[tuple[Path, Iterator[_Checked]]]:
    """Yields each shard with its checked records, chunk by chunk."""
    large = sum(path.stat().st_size for path in paths) > _WORTH_WORKERS
    results = ahead(partial(_check, options=options), _chunks(paths), workers=_cores() if large else 0)
    of_shards = groupby(results, key=itemgetter(0))
    for _ in progress(paths):
        path, chunks = next(of_shards)
        yield path, (checked for _, checked in chunks)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _chunks(paths: Iterable[Path]) -> Iterator[tuple[Path, list[Record]]]:
    """Yields the records of each shard in chunks, at least one a shard."""
    for path in paths:
        found = records(path)
        yield path, list(islice(found, _CHUNK))
        while chunk := list(islice(found, _CHUNK)):
            yield path, chunk


def _check(chunk: tuple[Path, list[Record]], options: DataConfig) -> tuple[Path, _Checked]:
    path, found = chunk
    digest, rows, forms, bad = hashlib.sha256(), list[tuple[int, ...]](), dict[Form, str](), list[str]()
    with path.open("rb") as stream:
        for record in found:
            name = f"{path}: {record.name}"
            try:
                if record.problem:
                    raise ValueError(f"{name} {record.problem}: remove it")
                content = read(stream, record.example, name)
                label = read(stream, record.label, name) if record.label else None
                _, form = decode(content, name, options)
                number = -1 if label is None else class_of(label, name)
            except ValueError as error:
                bad.append(" ".join(str(error).split()))
                continue
            digest.update(json.dumps([record.name, len(content), number]).encode() + content)
            forms.setdefault(form._replace(labelled=number >= 0), name)
            rows.append((record.header, *record.example, number))
    return path, _Checked(np.array(rows, ROW), digest.digest(), forms, bad)


def _write(path: Path, folder: Path, chunks: Iterable[_Checked], allowed: int) -> None:
    digest, forms, bad = hashlib.sha256(), dict[Form, str](), list[str]()
    with folder_written_whole(folder, replace=True) as aside:
        with (aside / _ROWS).open("wb") as stream:
            for checked in chunks:
                stream.write(checked.rows.tobytes())
                digest.update(checked.digest)
                forms |= {form: name for form, name in checked.forms.items() if form not in forms}
                bad += checked.bad
                _refuse(bad, allowed)
                if forms:
                    common_form(forms)
        about = _About(
            digest=digest.hexdigest(),
            forms=tuple((*form, name) for form, name in forms.items()),
            bad=tuple(bad),
            size=path.stat().st_size,
        )
        checksum = _checksum(aside / _ROWS, about)
        (aside / _ABOUT).write_text(json.dumps({"checksum": checksum, **to_json(about)}), encoding="utf-8")


@dataclass(frozen=True, kw_only=True)
class _About:
    """Content of an index beside its rows."""

    digest: str
    forms: tuple[tuple[Medium, int, tuple[int, ...], bool, str], ...]
    """Fields of each form, and the name of a record."""
    bad: tuple[str, ...]
    size: int
    """Bytes of the shard."""


def _checksum(rows: Path, about: _About) -> str:
    """SHA-256 over all of an index.

    Raises:
        ValueError: rows that cannot be of that shard.
    """
    digest = hashlib.sha256(json.dumps(to_json(about)).encode())
    with rows.open("rb") as stream:
        while block := stream.read(_ROWS_AT_A_TIME * ROW.itemsize):
            digest.update(block)
            _check_rows(np.frombuffer(block, ROW), about.size)
    return digest.hexdigest()


def _check_rows(rows: NDArray[np.void], size: int) -> None:
    """Raises ValueError where rows are none of a shard of so many bytes: other parts and data rest on their bounds."""
    header, start, length, label = (rows[field].astype(np.int64) for field in ("header", "start", "size", "label"))
    inside = (header >= 0) & (start > header) & (start <= size) & (length <= np.minimum(LARGEST_RECORD, size - start))
    if not (inside & (label >= -1) & (label < MOST_CLASSES)).all():
        raise ValueError("a row with values out of range")


def _open(path: Path, folder: Path) -> ShardIndex:
    """The index in a folder.

    Raises:
        ValueError: it is damaged.
        OSError: it could not be read.
    """
    file = folder / _ABOUT
    stored = read_object(file, "the index of a shard", mebibytes=_LARGEST_ABOUT)
    checksum = stored.pop("checksum", None)
    about = from_json(_About, stored, file)
    whole = about.size == path.stat().st_size and _checksum(folder / _ROWS, about) == checksum
    if not whole or any(prod(shape) > _MOST_NUMBERS for _, _, shape, _, _ in about.forms):
        raise ValueError(f"{folder}: not the index that was written for {path}: remove it, it is made again")
    forms = {Form(medium, values, shape, labelled): name for medium, values, shape, labelled, name in about.forms}
    return ShardIndex(path, folder, about.digest, forms, list(about.bad), state_of(path))
