"""Data sets that Hugging Face `datasets` reads: of the hub, saved to disk, parquet files and webdataset tars.

Arrow maps them from disk, so they may be larger than memory. Rows are read when they are selected, in any order.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from axial_transformers.data.arrays import example_of
from axial_transformers.data.config import DataConfig
from axial_transformers.data.examples import Examples, Indices, OnDemand
from axial_transformers.data.folders import natural_key, say
from axial_transformers.data.images import PixelKind, decoded, fitted, kind_of_images
from axial_transformers.data.picture_files import Member
from axial_transformers.data.splits import Part, part_of_file, part_of_folder
from axial_transformers.data.value_range import ValueRange, integers, range_of
from axial_transformers.progress import Progress
from axial_transformers.storage import require_extra
from axial_transformers.wording import engineering

HUB = "hf:"
BUILDERS = {".parquet": "parquet", ".tar": "webdataset"}
SAVED = ("dataset_dict.json", "state.json")
LABELS = ("label", "cls")
AT_ONCE = 1000


def is_dataset(source: str | Path) -> bool:
    """Return True for hf:OWNER/NAME, a folder of `save_to_disk`, a parquet file or a tar file."""
    path = Path(source)
    return str(source).startswith(HUB) or path.suffix in BUILDERS or any((path / name).is_file() for name in SAVED)


def opened(source: str | Path, files: Sequence[Path] = ()) -> dict[Part, Any]:
    """Return the parts of a data set that its splits, or the names of its files, state.

    Args:
        files: parquet or tar files of a folder `source`; without any, the source says what it is.

    Raises:
        ValueError: it cannot be read, or no part is for training.
    """
    require_extra("datasets", "datasets", str(source))
    import datasets  # slow to import

    try:
        if any((Path(source) / name).is_file() for name in SAVED):
            found = datasets.load_from_disk(str(source))
            return _parts(source, {"train": found} if isinstance(found, datasets.Dataset) else found)
        builder = datasets.load_dataset_builder(**_named(source, files))
        if not Path(builder.cache_dir).exists():
            size = builder.info.dataset_size or sum(file.stat().st_size for file in files or [Path(source)])
            say(f"{source} is copied once, about {engineering(size)}B, to {builder.cache_dir}")
        builder.download_and_prepare()
        return _parts(source, builder.as_dataset())
    except Exception as error:  # of the network, of formats and of the library
        reason = " ".join(str(error).split())[:300]
        raise ValueError(f"{source} is not read by datasets ({type(error).__name__}: {reason})") from error


def pinned(source: str) -> str:
    """Return a source of the hub with the commit that it is at now; others as they are."""
    if not source.startswith(HUB):
        return source
    from huggingface_hub import HfApi

    named = _named(source)
    commit = HfApi().dataset_info(named["path"], revision=named["revision"]).sha
    return f"{source.split('@')[0]}@{commit}"


def _named(source: str | Path, files: Sequence[Path] = ()) -> dict[str, Any]:
    """Return the arguments of `datasets.load_dataset`."""
    if not str(source).startswith(HUB):
        files = files or [Path(source)]
        by_part = dict[str, list[str]]()
        for file in sorted(files, key=natural_key):
            part = part_of_file(file.stem) or part_of_folder(file.parent.name) or "train"
            by_part.setdefault(part, []).append(str(file.resolve()))
        return {"path": BUILDERS[files[0].suffix], "data_files": by_part}
    match = re.fullmatch(r"hf:([^/@]+/[^/@]+)(?:/([^/@]+))?(?:@(.+))?", str(source))
    if match is None:
        raise ValueError(f"{source} is not hf:OWNER/NAME, hf:OWNER/NAME/SUBSET or one of these with @REVISION")
    return dict(zip(("path", "name", "revision"), match.groups(), strict=True))


def _parts(source: str | Path, splits: Mapping[str, Any]) -> dict[Part, Any]:
    parts: dict[Part, Any] = {}
    for name, dataset in splits.items():
        if part := part_of_folder(str(name)):
            parts.setdefault(part, dataset)
    if not parts:
        raise ValueError(f"no split is called train, validation or test: there are {', '.join(map(str, splits))}")
    return parts


@dataclass(frozen=True, eq=False)
class RowExamples(Examples):
    """Examples that are read when they are selected."""

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 in hexadecimal over what the rows hold, their labels, and how they are fitted."""
        rows = cast(Rows, self.values)
        labels = None if self.labels is None else self.labels.tolist()
        about = [self.values.shape, self.num_values, self.lowest, rows.options.size, rows.options.fit, labels]
        digest = hashlib.sha256(json.dumps(about).encode())
        for content, _ in rows.contents():
            digest.update(content if isinstance(content, bytes) else np.ascontiguousarray(content).data)
        return digest.hexdigest()

    def part(self, chosen: slice) -> "RowExamples":
        rows = cast(Rows, self.values)
        labels = None if self.labels is None else self.labels[chosen]
        found = rows.part(range(len(self))[chosen])
        return replace(self, values=found.as_array(), names=self.names[chosen], labels=labels)


def examples_of(dataset: Any, source: str | Path, options: DataConfig, progress: Progress) -> RowExamples:
    """Return the rows of a data set as examples.

    Raises:
        ValueError: the column is not clear, or its first row does not suit the options.
    """
    options.require_one_size()
    if options.fit == "tiles":
        raise ValueError("data.fit=tiles cuts the pictures of folders only: use data.fit=crop or data.fit=stretch")
    from datasets import ClassLabel, Image

    features = dataset.features
    pictures = [name for name, each in features.items() if isinstance(each, Image)]
    arrays = [name for name, each in features.items() if hasattr(each, "feature") or hasattr(each, "shape")]
    column = _chosen(source, "data.column", options.column, pictures or arrays, features)
    classes = [name for name, each in features.items() if isinstance(each, ClassLabel)]
    plain = [name for name in LABELS if "int" in getattr(features.get(name), "dtype", "")]
    label = None
    if options.label_column is not None or classes or plain:
        label = _chosen(source, "data.label_column", options.label_column, classes or plain, features)
    rows = Rows(dataset, column, options, str(source))
    kind: PixelKind | None = None
    found = ValueRange(0, 255)
    if column in pictures:
        rows.dataset = dataset.cast_column(column, Image(decode=False))
        some = rows.part(range(0, len(dataset), max(1, len(dataset) // AT_ONCE)))
        kind = kind_of_images([Member(content, name) for content, name in some.contents()], options)
        if kind == "gray16":
            raise ValueError(f"{source} holds pictures of 16 bits: save their values as arrays")
    else:
        batches = dataset.with_format("numpy").iter(AT_ONCE)
        found = range_of(source, (batch[column] for batch in progress(list(batches))), options.grid)
    rows.describe(kind, found)
    labels = None if label is None else np.asarray(dataset.with_format("numpy")[label][:], np.int64)
    names: tuple[str, ...] | None = None
    if labels is not None and label is not None:
        known = getattr(features[label], "names", None)
        names = tuple(known or map(str, range(int(labels.max()) + 1)))
    return RowExamples(
        values=rows.as_array(),
        names=dataset["__key__"][:] if "__key__" in features else [str(i) for i in range(len(dataset))],
        labels=labels,
        class_names=names,
        **found.counted(source, None if kind else options.num_values),
    )


def _chosen(source: str | Path, setting: str, asked: str | None, fitting: list[str], features: Any) -> str:
    if asked is not None and asked in features:
        return asked
    if asked is None and len(fitting) == 1:
        return fitting[0]
    which = f"has no column {asked}" if asked else f"has {len(fitting)} columns for this: {', '.join(fitting)}"
    raise ValueError(f"{source} {which}: set {setting} to one of {', '.join(features)}")


class Rows(OnDemand):
    """A column as an array [N, *A, C]."""

    def __init__(self, dataset: Any, column: str, options: DataConfig, source: str) -> None:
        self.dataset, self.column, self.options, self.source = dataset, column, options, source
        self.kind: PixelKind | None = None
        self.found = ValueRange(0, 255)

    def describe(self, kind: PixelKind | None, found: ValueRange) -> None:
        """Take the kind of pictures, or None, and the range of values; the first row states the shape."""
        self.kind, self.found, self.dtype = kind, found, found.type
        self.shape = (len(self.dataset), *self._example(*next(self.contents())).shape)

    def part(self, chosen: range) -> "Rows":
        rows = Rows(self.dataset.select(chosen), self.column, self.options, self.source)
        if hasattr(self, "shape"):
            rows.kind, rows.found, rows.dtype, rows.shape = self.kind, self.found, self.dtype, self.shape
            rows.shape = (len(chosen), *self.shape[1:])
        return rows

    def contents(self) -> Iterator[tuple[Any, str]]:
        """Yield the bytes of each picture, or each array, and what it is called in errors."""
        for start in range(0, len(self.dataset), AT_ONCE):
            yield from self._contents(range(start, min(start + AT_ONCE, len(self.dataset))))

    def _contents(self, numbers: Sequence[int]) -> Iterator[tuple[Any, str]]:
        pictures = "bytes" in str(self.dataset.features[self.column])
        column = self.dataset.with_format(None if pictures else "numpy")[list(numbers)][self.column]
        for number, value in zip(numbers, column, strict=True):
            if isinstance(value, dict):
                value = value["bytes"] or Path(value["path"]).read_bytes()
            yield value, f"{self.source}: row {number}"

    def _example(self, content: Any, name: str) -> NDArray[np.integer]:
        if self.kind is None:
            return example_of(integers(np.asarray(content), self.found), name, self.options)[0]
        member = Member(content, name)
        (values,), _ = fitted(member, decoded(member, self.kind, self.options.background), self.options)
        return values

    def __getitem__(self, indices: Indices) -> NDArray[np.integer]:
        numbers = np.arange(len(self))[indices].tolist()
        values = np.empty((len(numbers), *self.shape[1:]), self.dtype)
        for value, (content, name) in zip(values, self._contents(numbers), strict=True):
            example = self._example(content, name)
            if example.shape != value.shape:
                here, there = list(example.shape), list(value.shape)
                raise ValueError(f"{name} is {here}, the first row is {there}: give data.size and data.fit")
            value[...] = example
        return values
