"""Examples that are read from their shards on demand."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast, overload

import numpy as np
from numpy.typing import NDArray

from axial_transformers.data.config import DataConfig
from axial_transformers.data.examples import Examples, Indices, OnDemand
from axial_transformers.data.folders import say
from axial_transformers.data.shards.index import (
    Form,
    ShardIndex,
    common_form,
    decode_array,
    decode_picture,
    index,
    read,
    state_of,
)
from axial_transformers.data.shards.tar import Extent, members, readable
from axial_transformers.data.value_range import ValueRange
from axial_transformers.progress import Progress


@dataclass(frozen=True, eq=False)
class ShardExamples(Examples):
    """Examples that are read when they are selected."""

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 in hexadecimal over records, form, fitting and range."""
        return self._records.fingerprint

    def part(self, chosen: slice) -> "ShardExamples":
        records = self._records.part(chosen)
        return replace(
            self,
            values=records.as_array(),
            names=_Names(records),
            labels=None if self.labels is None else self.labels[chosen],
        )

    @property
    def _records(self) -> "Records":
        return cast(Records, self.values)


def load_shards(paths: Sequence[Path], options: DataConfig, progress: Progress = iter) -> ShardExamples:
    """Return all whole records of tar files, named SHARD.tar/MEMBER."""
    options.require_one_size()
    if options.fit == "tiles":
        raise ValueError(
            "data.fit=tiles cuts the pictures of folders only, not of shards: use data.fit=crop or data.fit=stretch"
        )
    shards = index(paths, options, progress)
    forms = dict[Form, str]()
    for shard in shards:
        forms |= {form: name for form, name in shard.forms.items() if form not in forms}
    if not forms:
        raise ValueError(f"{paths[0]} holds no records: pictures (.png, .jpg, ...) or arrays (.npy) are needed")
    skipped = [line for shard in shards for line in shard.bad]
    for line in skipped:
        say(f"skipped: {line}")
    form = common_form(forms)
    found = ValueRange.around([shard.range for shard in shards if shard.range])
    records = Records(shards, form, found, options, 0, sum(len(shard.rows) for shard in shards))
    labels = np.concatenate([shard.rows["label"] for shard in shards]).astype(np.int64) if form.labelled else None
    return ShardExamples(
        values=records.as_array(),
        names=_Names(records),
        labels=labels,
        class_names=None if labels is None else tuple(str(i) for i in range(int(labels.max()) + 1)),
        **found.counted(paths[0], options.num_values if form.medium in ("array", "gray16") else None),
        skipped=tuple(skipped),
    )


class Records(OnDemand):
    """Indexed records as an array [N, *A, C]; ValueError if a shard has changed."""

    def __init__(
        self, shards: Sequence[ShardIndex], form: Form, found: ValueRange, options: DataConfig, start: int, stop: int
    ) -> None:
        self.shards, self.form, self.range, self.options = shards, form, found, options
        self.dtype = found.type
        self._start = start
        self._starts = np.cumsum([0, *(len(shard.rows) for shard in shards)])
        self.shape = (stop - start, *form.shape)

    def __getitem__(self, indices: Indices) -> NDArray[np.integer]:
        found = [self.locate(number) for number in _numbers(indices, len(self))]
        values = np.empty((len(found), *self.form.shape), self.dtype)
        for value, (shard, row) in zip(values, found, strict=True):
            value[...] = self._read(shard, row)
        return values

    def part(self, chosen: slice) -> "Records":
        start, stop, step = chosen.indices(len(self))
        assert step == 1
        first, last = self._start + start, self._start + max(start, stop)
        return Records(self.shards, self.form, self.range, self.options, first, last)

    def locate(self, i: int) -> tuple[ShardIndex, int]:
        """Return the shard of a record, and the row in its index."""
        number = self._start + i
        shard = int(np.searchsorted(self._starts, number, side="right")) - 1
        return self.shards[shard], number - int(self._starts[shard])

    @property
    def fingerprint(self) -> str:
        medium, shape, labelled = self.form
        counted = self.range.counted("", self.options.num_values if medium in ("array", "gray16") else None)
        about: dict[str, Any] = {
            "shards": [shard.digest for shard in self.shards],
            "form": [medium, counted["num_values"], shape, labelled, *filter(None, [counted["lowest"]])],
            "fit": [self.options.size, self.options.fit],
            "records": [self._start, self._start + len(self)],
        }
        return hashlib.sha256(json.dumps(about).encode()).hexdigest()

    def _read(self, shard: ShardIndex, row: int) -> NDArray[np.integer]:
        _, start, size, _ = shard.rows[row].item()
        name = f"{shard.path}: record {row}"
        with shard.path.open("rb") as stream:
            content = read(stream, Extent(start, size), name)
        _check_same(shard)
        medium = self.form.medium
        if medium == "array":
            return decode_array(content, name, self.options).values
        return decode_picture(content, name, self.options, medium).values


def _check_same(shard: ShardIndex) -> None:
    if state_of(shard.path) != shard.state:
        raise _changed(shard)


def _changed(shard: ShardIndex) -> ValueError:
    return ValueError(f"{shard.path} has changed since it was indexed: begin again, and it is indexed anew")


class _Names(Sequence[str]):
    def __init__(self, records: Records) -> None:
        self._records = records

    def __len__(self) -> int:
        return len(self._records)

    @overload
    def __getitem__(self, i: int) -> str: ...
    @overload
    def __getitem__(self, i: slice) -> list[str]: ...
    def __getitem__(self, i: int | slice) -> str | list[str]:
        if isinstance(i, slice):
            return [self[j] for j in range(*i.indices(len(self)))]
        shard, row = self._records.locate(range(len(self))[i])
        _check_same(shard)
        member = next(members(shard.path, shard.rows[row]["header"].item()), None)
        if member is None:
            raise _changed(shard)
        return f"{shard.path.name}/{readable(member.name)}"


def _numbers(indices: Indices, count: int) -> Sequence[int]:
    if isinstance(indices, slice):
        return range(count)[indices]
    numbers = np.asarray(indices, None if len(indices) else np.int64)
    if numbers.dtype == np.bool_:
        numbers = np.flatnonzero(numbers)
    return [range(count)[number] for number in numbers]
