"""Data sets that Hugging Face `datasets` reads: of the hub, saved to disk, parquet files and webdataset tars.

Arrow maps them from disk, so they may be larger than memory. Rows are read when they are selected, in any order.
"""

import glob
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from axial_transformers.data.arrays import example_from
from axial_transformers.data.config import HUB, DataConfig, is_hub_dataset
from axial_transformers.data.errors import ParsingError, parsing, say
from axial_transformers.data.examples import Examples, labelled
from axial_transformers.data.images import Member, PixelKind, at_size, choose_kind, decoded
from axial_transformers.data.lazy_array import LazyArray
from axial_transformers.data.names import Names, joined_names
from axial_transformers.data.splits import Part, part_of_file, part_of_folder
from axial_transformers.data.value_range import BYTES, ValueRange, find_range, integers
from axial_transformers.progress import Progress, renamed
from axial_transformers.storage import import_extra
from axial_transformers.wording import engineering

BUILDERS = {".parquet": "parquet", ".tar": "webdataset"}
_AT_ONCE = 64


class PartOfSource(NamedTuple):
    """A part of a data set, and what the names of its rows begin with."""

    dataset: Any
    prefix: str = ""
    """NAME# of the part, if the source has several."""
    files: Sequence[tuple[str, Path]] = ()
    """Names and paths of parquet or tar files, if the source has several."""

    def names(self) -> Sequence[str]:
        """Return the names of rows: their keys, of webdataset, or their numbers, after the name of the file or part."""
        if "__key__" in self.dataset.features:
            keys = self.dataset["__key__"][:]
            if not self.files or "__url__" not in self.dataset.features:
                return [self.prefix + key for key in keys]
            places = {str(path.resolve()): name for name, path in self.files}
            urls = self.dataset["__url__"][:]
            return [f"{places[url]}#{key}" if url in places else self.prefix + key for url, key in zip(urls, keys)]
        counts = [(self.prefix, len(self.dataset))]
        if self.files:
            parquet = import_module("pyarrow.parquet")
            counts = [(f"{name}#", parquet.read_metadata(path).num_rows) for name, path in self.files]
        return joined_names([(prefix, Names(range(count))) for prefix, count in counts])


def is_saved(folder: Path) -> bool:
    """Return True for a folder that `save_to_disk` of `datasets` wrote."""
    return any((folder / name).is_file() for name in ("dataset_dict.json", "state.json"))


def pinned(source: str) -> str:
    """Return the name of a data set of the hub with its commit as the revision."""
    with parsing(source, "is not read by datasets", ""):
        return f"{source.partition('@')[0]}@{_builder(source, ()).hash}"


def open_parts(source: str, files: Sequence[Path]) -> dict[Part, PartOfSource]:
    """Return the parts of a data set that its splits, or the names of its files, state.

    Args:
        files: the parquet or tar files of a local source; none for one of the hub or of `save_to_disk`.

    Raises:
        ValueError: it cannot be read, or no split is for training, validation or test.
    """
    with parsing(source, "is not read by datasets", ""):
        if files or is_hub_dataset(source):
            builder = _builder(source, files)
            if not Path(builder.cache_dir).exists():
                size = builder.info.dataset_size or sum(file.stat().st_size for file in files)
                amount = f"{engineering(size)}B, a minute for each gigabyte" if size else "of unknown size"
                say(f"{source} ({amount}) is copied once to {builder.cache_dir}")
            builder.download_and_prepare()
            splits = builder.as_dataset()
        else:
            splits = import_extra("datasets", "datasets", source).load_from_disk(source)
    named = splits if isinstance(splits, Mapping) else {"train": splits}
    files_by_part = _files_by_part(files) if len(files) > 1 else {}
    parts: dict[Part, PartOfSource] = {}
    for name, dataset in named.items():
        part = part_of_folder(str(name))
        if part and len(dataset):
            below = [(file.relative_to(source).as_posix(), file) for file in files_by_part.get(part, [])]
            parts[part] = PartOfSource(dataset, f"{name}#" if len(named) > 1 else "", below)
    if not parts:
        raise ValueError(f"{source} has no split train, validation or test with rows: there are {', '.join(named)}")
    return parts


def _builder(source: str, files: Sequence[Path]) -> Any:
    """Return the builder of a data set, of no other revision than the source names."""
    datasets = import_extra("datasets", "datasets", source)  # takes seconds
    if match := HUB.fullmatch(source):
        named: dict[str, Any] = match.groupdict()
    else:
        by_part = _files_by_part(files).items()
        patterns = {part: [glob.escape(str(file.resolve())) for file in own] for part, own in by_part}
        named = {"path": BUILDERS[files[0].suffix.lower()], "data_files": patterns}
    builder = datasets.load_dataset_builder(**named)
    name, _, revision = source.partition("@")
    of_cache = type(builder).__module__ == "datasets.packaged_modules.cache.cache"  # the latest there, without the hub
    if of_cache and revision not in ("", builder.hash):
        raise ParsingError(
            f"{source}: the hub does not answer, and the latest copy is {name}@{builder.hash}: name that"
        )
    return builder


def _files_by_part(files: Sequence[Path]) -> dict[Part, list[Path]]:
    by_part: dict[Part, list[Path]] = {}
    for file in files:
        part = part_of_file(file.stem) or part_of_folder(file.parent.name) or "train"
        by_part.setdefault(part, []).append(file)
    return by_part


def load_dataset(parts: Sequence[PartOfSource], source: str, options: DataConfig, progress: Progress) -> Examples:
    """Return all rows of some parts of a data set, which are read when they are selected.

    Raises:
        ValueError: the column is not clear, or what it holds is no example.
    """
    if options.divides:
        raise ValueError(f"{source} is not cut into tiles or blocks: use one data.size, data.cut=crop or stretch")
    from datasets import ClassLabel, Image, concatenate_datasets

    dataset = concatenate_datasets([part.dataset for part in parts])
    features = dataset.features
    pictures: list[str] = []
    arrays: list[str] = []
    labels_may_be: list[str] = []
    classes: list[str] = []
    for name, feature in features.items():
        if isinstance(feature, Image):
            pictures.append(name)
        elif hasattr(feature, "feature") or hasattr(feature, "shape"):
            arrays.append(name)
        elif re.search("int|string", getattr(feature, "dtype", "")):
            labels_may_be.append(name)
        if isinstance(feature, ClassLabel):
            classes.append(name)
    classes = classes or [name for name in labels_may_be if name in ("label", "cls")]

    name = _chosen(source, "data.column", options.column, pictures or arrays, [*pictures, *arrays], features)
    rows = Rows(dataset.select_columns([name]).with_format("arrow"), source, options, progress)
    labels = None
    if classes or options.label_column is not None:
        name = _chosen(source, "data.label_column", options.label_column, classes, labels_may_be, features)
        labels = dataset.select_columns([name]).with_format("arrow")[:].column(0).to_numpy()
        if labels.dtype.kind in "ui" and labels.max() < 0:  # the hub marks classes that are kept secret by -1
            labels = None
    return Examples(
        values=rows,
        names=joined_names([("", part.names()) for part in parts]),
        range=rows.range.modelled(source, None if rows.kind else options.num_values),
        **labelled(labels, len(dataset), f"{source}: {name}", getattr(features[name], "names", None) or ()),
    )


def _chosen(
    source: str, setting: str, asked: str | None, usual: Sequence[str], possible: Sequence[str], features: Any
) -> str:
    """Return the name of a column: the one that is asked for, or the only usual one."""
    if asked in possible or (asked is None and len(usual) == 1):
        return asked or usual[0]
    wrong = "several columns" if usual else "no column"
    if asked:
        wrong = f"no column {asked}"
    columns = ", ".join(f"{name} ({_feature_type(feature)})" for name, feature in features.items())
    advice = f"; set {setting} to one of {', '.join(possible)}" if possible else ""
    raise ValueError(f"{source} has {wrong} that can be it: there are {columns}{advice}")


def _feature_type(feature: Any) -> str:
    kind = type(feature).__name__
    return str(feature.dtype) if kind == "Value" else kind


class Rows(LazyArray):
    """The examples of a column as an array [N, *A, C], read when they are selected.

    Args:
        column: a `datasets.Dataset` of one column, images or arrays, in the format of Arrow.
        source: what errors call it.
        progress: wraps the loop that finds the range of all values, or the kind of all images.
    """

    kind: PixelKind | None = None
    """The channels of images; None for arrays."""

    def __init__(self, column: Any, source: str, options: DataConfig, progress: Progress = iter) -> None:
        self.column = column
        self.source = source
        self.options = options
        (first,) = self._cells([0])
        batches = self._batches(range(len(column)), progress)
        if isinstance(first, Member):
            self.range = BYTES
            self.kind = choose_kind(chain.from_iterable(batches), options)
            if self.kind == "gray16":
                raise ValueError(f"{source} holds pictures of 16 bits: save their values as arrays")
        else:
            self.range = find_range(source, batches, options.grid, rounding=True)
            if first.dtype == np.uint8:  # images in uint8 are 0..255
                self.range = ValueRange.around([self.range, example_from(first, source, options)[1]])
        super().__init__(range(len(column)), self._example(first).shape, self.range.type)

    def read(self, numbers: NDArray[np.int64]) -> NDArray[np.integer]:
        values = np.empty((len(numbers), *self.shape[1:]), self.dtype)
        for value, cell in zip(values, self._cells(numbers.tolist())):
            example = self._example(cell)
            if example.shape != value.shape:
                raise ValueError(
                    f"{cell if isinstance(cell, Member) else self.source} is {list(example.shape)} where the first row"
                    f" is {list(value.shape)}: give data.size and data.cut (crop or stretch)"
                )
            value[...] = example
        return values

    def _example(self, cell: Any) -> NDArray[np.integer]:
        if self.kind is None:
            return example_from(integers(cell, self.range), self.source, self.options)[0]
        return at_size(cell, decoded(cell, self.kind, self.options), self.options)

    def contents(self) -> Iterator[bytes | memoryview]:
        """Yield how the rows are read, and what they hold: images are not decoded."""
        options = self.options
        yield f"{(options.size, options.cut, options.background, options.palette, options.axes)}".encode()
        for batch in self._batches(self.numbers):
            for cell in batch:
                yield cell.getbuffer() if isinstance(cell, Member) else np.ascontiguousarray(cell).data

    def _batches(self, rows: range, progress: Progress = iter) -> Iterator[Any]:
        """Yield what rows hold, some at a time."""
        for start in renamed(progress, "reading rows: batches")(range(0, len(rows), _AT_ONCE)):
            yield self._cells(rows[start : start + _AT_ONCE])

    def _cells(self, rows: Sequence[int]) -> Any:
        """Return the image files of rows, or an array [n, *A]; ValueError for arrays of several shapes."""
        cells = self.column[rows].column(0).combine_chunks()
        if hasattr(cells, "field"):
            return [self._file(cell or {}, row) for row, cell in zip(rows, cells.to_pylist())]
        shape = [len(cells)]
        cells = getattr(cells, "storage", cells)
        while hasattr(cells, "value_lengths"):  # the numpy format of `datasets` takes 700 times as long
            lengths = cells.value_lengths().unique().to_pylist() or [0]
            if len(lengths) > 1 or None in lengths:
                raise ValueError(f"{self.source} holds arrays of different shapes, or a row holds none")
            shape.append(lengths[0])
            cells = cells.flatten()
        return cells.to_numpy(zero_copy_only=False).reshape(shape)

    def _file(self, cell: dict[str, Any], row: int) -> Member:
        """Return the image file in a cell, or the one of its path if `datasets` has downloaded it."""
        content = cell.get("bytes")
        path = cell.get("path") or ""
        name = f"{self.source}: {path or f'row {row}'}"
        if content is None and path:
            from datasets import config
            from huggingface_hub import constants

            folders = [Path(folder).resolve() for folder in (config.HF_DATASETS_CACHE, constants.HF_HUB_CACHE)]
            if not any(Path(path).resolve().is_relative_to(folder) for folder in folders):  # rows may name any file
                raise ValueError(f"{name} is no file of the data set: put its images into it, as save_to_disk does")
            content = Path(path).read_bytes()
        return Member(content or b"", name)
