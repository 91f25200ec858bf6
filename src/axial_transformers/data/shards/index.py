"""The index of a shard: the form of its records and the position of each whole one.

The first process that opens a shard decodes every record and caches the index. Its checksum finds accidents, not
forgery.
"""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from axial_transformers.data.arrays import example_of
from axial_transformers.data.config import DataConfig
from axial_transformers.data.images import PixelKind, decoded, fitted, kind_of_images
from axial_transformers.data.npy import array_of
from axial_transformers.data.picture_files import Member
from axial_transformers.data.shards.tar import ARRAY, Extent, TarRecord, records
from axial_transformers.data.value_range import ValueRange
from axial_transformers.data.workers import ahead
from axial_transformers.progress import Progress
from axial_transformers.storage.files import cache_folder, folder_written_whole
from axial_transformers.storage.locks import only_one_process
from axial_transformers.storage.typed_json import read_object

MAX_RECORD = 1 << 26  # bytes of a record
MAX_CLASSES = 1 << 16


Medium = Literal["gray", "gray16", "rgb", "rgba", "array"]


class Form(NamedTuple):
    """The form of a record, shared by all of a data set except gray images among those in colour."""

    medium: Medium
    shape: tuple[int, ...]
    """[*A, C]."""
    labelled: bool


def read(stream: IO[bytes], extent: Extent, name: str) -> bytes:
    """Return the bytes at an extent of a shard."""
    if extent.size > MAX_RECORD:
        raise ValueError(f"{name} has {extent.size:,} bytes, above {MAX_RECORD:,}: remove it")
    stream.seek(extent.start)
    content = stream.read(extent.size)
    if len(content) < extent.size:
        raise ValueError(f"{name} ends after {len(content):,} of {extent.size:,} bytes: copy the shard again")
    return content


class Record(NamedTuple):
    """An example, and what all of them must share."""

    values: NDArray[np.integer]
    """[*A, C]."""
    form: Form
    range: ValueRange


def decode_array(content: bytes, name: str, options: DataConfig) -> Record:
    """Return the example in an .npy member."""
    values, found = example_of(array_of(content, name), name, options)
    return Record(values, Form("array", values.shape, labelled=False), found)


def decode_picture(content: bytes, name: str, options: DataConfig, kind: PixelKind | None = None) -> Record:
    """Return the example [H, W, C] in an image."""
    member = Member(content, name)
    kind = kind or kind_of_images([member], options)
    (values,), _ = fitted(member, decoded(member, kind, options.background), options)
    found = ValueRange.of(values) if kind == "gray16" else ValueRange(0, 255)
    return Record(values, Form(kind, values.shape, labelled=False), found)


def decode(content: bytes, name: str, options: DataConfig) -> Record:
    """Decode an array or an image, by the suffix of its name."""
    if name.lower().endswith(ARRAY):
        return decode_array(content, name, options)
    return decode_picture(content, name, options)


def class_of(content: bytes, name: str) -> int:
    """Return the class in a .cls member."""
    digits = content.strip()
    if not (digits.isdigit() and len(digits) < 9 and int(digits) < MAX_CLASSES):
        raise ValueError(f"{name}: its class is {content[:20]!r}, not a number in 0..{MAX_CLASSES - 1}: correct it")
    return int(digits)


def common_form(forms: Mapping[Form, str]) -> Form:
    """Return the form as which such records are read: in colour, or with alpha, if any of them is."""
    medium: Medium = "rgba" if any(form.medium == "rgba" for form in forms) else "rgb"
    in_colour = {
        form._replace(medium=medium, shape=(*form.shape[:-1], len(medium)))
        if form.medium in ("gray", "rgb")
        else form: name
        for form, name in forms.items()
    }
    if len(in_colour) == 1:
        return next(iter(forms if len(forms) == 1 else in_colour))
    (form, name), (other, other_name), *_ = in_colour.items()
    if form.labelled != other.labelled:
        with_class, without = (name, other_name) if form.labelled else (other_name, name)
        raise ValueError(f"{with_class} has a class and {without} has none: add or remove the .cls members")
    if form.shape[:-1] != other.shape[:-1]:
        here, there = ("x".join(map(str, each.shape[:-1])) for each in (form, other))
        sizes = f"{other_name} is {there} where {name} is {here}"
        raise ValueError(f"{sizes}: give data.size, and data.fit=crop or stretch")
    raise ValueError(
        f"{other_name} ({other.medium}, {list(other.shape)}) and {name} ({form.medium}, {list(form.shape)})"
        " do not fit together: convert one kind, or remove it"
    )


ROW = np.dtype([("header", "<i8"), ("start", "<i8"), ("size", "<u4"), ("label", "<i4")])

_VERSION = 6
_ROWS, _ABOUT = "rows.bin", "about.json"
_MAX_ABOUT = 256  # mebibytes
_HASHED_TOGETHER = 1024  # records
_WORTH_WORKERS = 1 << 24  # bytes of shards above which workers are started


@dataclass(frozen=True)
class ShardIndex:
    """The index of a shard."""

    path: Path
    rows: NDArray[np.void]
    """`ROW` [N], mapped from disk."""
    digest: str
    forms: dict[Form, str]
    """The forms of the whole records, with the name of the first of each."""
    range: ValueRange | None
    """Of the values of all whole records; None without one."""
    bad: list[str]
    state: tuple[int, int]


def index(paths: Sequence[Path], options: DataConfig, progress: Progress = iter) -> list[ShardIndex]:
    """Return the indices of shards, from the cache if possible."""
    cache = cache_folder() / "shards"
    folders = {path: cache / _identity(path, options) for path in paths}
    with only_one_process(cache):
        found = {path: _opened(path, folder) for path, folder in folders.items()}
        missing = [path for path, each in found.items() if each is None]
        large = sum(path.stat().st_size for path in missing) > _WORTH_WORKERS
        jobs = [(path, folders[path]) for path in missing]
        written = ahead(partial(_write, options=options), jobs, min(_cores(), len(missing)) if large else 0)
        for path in progress(missing):
            next(written)
            found[path] = _open(path, folders[path])
    indices = [each for path in paths if (each := found[path])]
    _refuse([line for each in indices for line in each.bad], options.skip_bad or 0)
    return indices


def state_of(path: Path) -> tuple[int, int]:
    """Return size and time of change in nanoseconds."""
    found = path.stat()
    return found.st_size, found.st_mtime_ns


def _refuse(bad: Sequence[str], allowed: int) -> None:
    if len(bad) > allowed:
        others = f"{len(bad) - 1} more are damaged; " if len(bad) > 1 else ""
        raise ValueError(f"{bad[0]} ({others}data.skip_bad={len(bad)} would leave out {len(bad)})")


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _identity(path: Path, options: DataConfig) -> str:
    as_picture = [options.size, options.fit, options.mode, options.background]
    as_array: list[object] = [options.num_values, options.frames, options.stride, options.axes]
    identity = [_VERSION, str(path.resolve()), *state_of(path), as_picture, as_array]
    return hashlib.sha256(json.dumps(identity).encode()).hexdigest()


def _write(job: tuple[Path, Path], options: DataConfig) -> None:
    path, folder = job
    digest, hashed, forms, bad = hashlib.sha256(), hashlib.sha256(), dict[Form, str](), list[str]()
    ranges = list[ValueRange]()
    with folder_written_whole(folder, replace=True) as aside:
        with (aside / _ROWS).open("wb") as rows, path.open("rb") as stream:
            for number, record in enumerate(records(path)):
                if number and number % _HASHED_TOGETHER == 0:
                    digest.update(hashed.digest())
                    hashed = hashlib.sha256()
                name = f"{path}: {record.name}"
                try:
                    content, form, found, label = _checked(stream, record, name, options)
                except ValueError as error:
                    bad.append(str(error))
                    _refuse(bad, options.skip_bad or 0)
                    continue
                hashed.update(json.dumps([record.name, len(content), label]).encode() + content)
                if form not in forms:
                    forms[form] = name
                    common_form(forms)
                ranges = [ValueRange.around([*ranges, found])]
                rows.write(np.array((record.header, *record.example, label), ROW).tobytes())
        digest.update(hashed.digest())
        about = {
            "digest": digest.hexdigest(),
            "range": ranges,
            "forms": [[*form, name] for form, name in forms.items()],
            "bad": [" ".join(line.split()) for line in bad],
        }
        checksum = _checksum(about, aside / _ROWS)
        (aside / _ABOUT).write_text(json.dumps({"checksum": checksum, "about": about}), encoding="utf-8")


def _checked(
    stream: IO[bytes], record: TarRecord, name: str, options: DataConfig
) -> tuple[bytes, Form, ValueRange, int]:
    if record.problem:
        raise ValueError(f"{name} {record.problem}: remove it")
    content = read(stream, record.example, name)
    label = class_of(read(stream, record.label, name), name) if record.label else -1
    _, form, found = decode(content, name, options)
    return content, form._replace(labelled=label >= 0), found, label


def _checksum(about: object, rows: Path) -> str:
    with rows.open("rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.sha256(json.dumps(about).encode())).hexdigest()


def _opened(path: Path, folder: Path) -> ShardIndex | None:
    try:
        return _open(path, folder)
    except (ValueError, FileNotFoundError):
        return None


def _open(path: Path, folder: Path) -> ShardIndex:
    rows = folder / _ROWS
    stored = read_object(folder / _ABOUT, "the index of a shard", mebibytes=_MAX_ABOUT)
    about = stored.get("about", {})
    if _checksum(about, rows) != stored.get("checksum"):
        raise ValueError(f"{folder}: not the index that was written for {path}: remove it, it is made again")
    forms = {Form(medium, tuple(shape), label): name for medium, shape, label, name in about["forms"]}
    found = next((ValueRange(*each) for each in about["range"]), None)
    mapped = np.memmap(rows, ROW, "r") if rows.stat().st_size else np.zeros(0, ROW)
    return ShardIndex(path, mapped, about["digest"], forms, found, about["bad"], state_of(path))
