"""Data sets that Hugging Face `datasets` reads: of the hub, saved to disk, parquet files and webdataset tars.

Arrow maps them from disk, so they may be larger than memory. Rows are read when they are selected, in any order.
"""

import glob
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axial_transformers.data.arrays import MAX_CLASSES, example_of
from axial_transformers.data.config import HUB, DataConfig, is_hub_dataset
from axial_transformers.data.examples import Examples
from axial_transformers.data.images import PixelKind, kind_of_images
from axial_transformers.data.parsing import say
from axial_transformers.data.rows import Column, Rows
from axial_transformers.data.splits import Part, part_of_file, part_of_folder
from axial_transformers.data.value_range import ValueRange, range_of
from axial_transformers.progress import Progress
from axial_transformers.storage import require_extra
from axial_transformers.wording import engineering

BUILDERS = {".parquet": "parquet", ".tar": "webdataset"}
_KINDS: tuple[PixelKind, ...] = ("rgba", "rgb", "gray")


def is_saved(folder: Path) -> bool:
    """Return True for a folder that `save_to_disk` of `datasets` wrote."""
    return any((folder / name).is_file() for name in ("dataset_dict.json", "state.json"))


def pinned(source: str) -> str:
    """Return the name of a data set of the hub with its commit as the revision."""
    with _library(source) as datasets:
        return f"{source.partition('@')[0]}@{datasets.load_dataset_builder(**_named(source, ())).hash}"


def open_parts(source: str, files: Sequence[Path] = ()) -> dict[Part, Any]:
    """Return the parts of a data set that its splits, or the names of its files, state.

    Args:
        files: the parquet or tar files of a local source; none for one of the hub or of `save_to_disk`.

    Raises:
        ValueError: it cannot be read, or no split is for training, validation or test.
    """
    with _library(source) as datasets:
        if files or is_hub_dataset(source):
            builder = datasets.load_dataset_builder(**_named(source, files))
            if not Path(builder.cache_dir).exists():
                size = builder.info.dataset_size or sum(file.stat().st_size for file in files)
                amount = f"{engineering(size)}B, a minute for each gigabyte" if size else "of unknown size"
                say(f"{source} ({amount}) is copied once to {builder.cache_dir}")
            builder.download_and_prepare()
            splits = builder.as_dataset()
        else:
            splits = datasets.load_from_disk(source)
    named = splits if isinstance(splits, Mapping) else {"train": splits}
    parts = {part: dataset for name, dataset in named.items() if (part := part_of_folder(str(name))) and len(dataset)}
    if not parts:
        raise ValueError(f"{source} has no split train, validation or test with rows: there are {', '.join(named)}")
    return parts


def _named(source: str, files: Sequence[Path]) -> dict[str, Any]:
    """Return the arguments of `load_dataset_builder`."""
    if match := HUB.fullmatch(source):
        return match.groupdict()
    by_part = dict[str, list[str]]()
    for file in files:
        part = part_of_file(file.stem) or part_of_folder(file.parent.name) or "train"
        by_part.setdefault(part, []).append(glob.escape(str(file.resolve())))
    return {"path": BUILDERS[files[0].suffix.lower()], "data_files": by_part}


@contextmanager
def _library(source: str) -> Iterator[Any]:
    """Yield `datasets`, whose errors become one line."""
    require_extra("datasets", "datasets", source)
    import datasets  # takes seconds

    try:
        yield datasets
    except Exception as error:  # of the network, of formats and of the library
        reason = " ".join(str(error.__cause__ or error).split())[:300]
        raise ValueError(f"{source} is not read by datasets ({type(error).__name__}: {reason})") from error


def load_dataset(parts: Sequence[Any], source: str, options: DataConfig, progress: Progress = iter) -> Examples:
    """Return all rows of some parts of a data set, which are read when they are selected.

    Raises:
        ValueError: the column is not clear, or what it holds is no example.
    """
    options.require_one_size()
    if options.fit == "tiles":
        raise ValueError("data.fit=tiles cuts the pictures of folders only: use data.fit=crop or data.fit=stretch")
    from datasets import ClassLabel, Image, concatenate_datasets

    dataset = concatenate_datasets(list(parts))
    features = dataset.features
    pictures = [name for name, each in features.items() if isinstance(each, Image)]
    arrays = [name for name, each in features.items() if hasattr(each, "feature") or hasattr(each, "shape")]
    numbers = [name for name, each in features.items() if "int" in getattr(each, "dtype", "")]
    classes = [name for name in numbers if isinstance(features[name], ClassLabel)]
    classes = classes or [name for name in numbers if name in ("label", "cls")]

    name = _chosen(source, "data.column", options.column, pictures or arrays, [*pictures, *arrays])
    column, kind = Column(dataset.select_columns([name]).with_format("arrow"), source), None
    batches = map(column.read, progress(column.batches()))
    if name in pictures:
        kinds, found = {kind_of_images(batch, options) for batch in batches}, ValueRange(0, 255)
        if "gray16" in kinds:
            raise ValueError(f"{source} holds pictures of 16 bits: save their values as arrays")
        kind = next(each for each in _KINDS if each in kinds)
    else:
        found, first = range_of(source, batches, options.grid, rounding=True), column.read([0])
        if first.dtype == np.uint8:  # images in uint8 are 0..255
            found = ValueRange.around([found, example_of(first[0], source, options)[1]])
    labels = class_names = None
    if classes or options.label_column is not None:
        name = _chosen(source, "data.label_column", options.label_column, classes, numbers)
        labels = _labels(dataset, name, source)
        if labels is not None:
            class_names = tuple(getattr(features[name], "names", None) or map(str, range(labels.max() + 1)))
    return Examples(
        values=Rows(column, options, kind, found).as_array(),
        names=dataset["__key__"][:] if "__key__" in features else [str(i) for i in range(len(dataset))],
        labels=labels,
        class_names=class_names,
        **found.counted(source, None if kind else options.num_values),
    )


def _chosen(source: str, setting: str, asked: str | None, usual: list[str], possible: list[str]) -> str:
    """Return the name of a column: the one that is asked for, or the only usual one."""
    if asked in possible or (asked is None and len(usual) == 1):
        return asked or usual[0]
    wrong = f"no column {asked}" if asked else "several columns" if usual else "no column"
    raise ValueError(f"{source} has {wrong} that can be it: set {setting} to one of {', '.join(possible)}")


def _labels(dataset: Any, name: str, source: str) -> NDArray[np.int64] | None:
    """Return the class of each row; None if all are below 0, as the hub marks those that are kept secret."""
    labels: NDArray[Any] = dataset.select_columns([name]).with_format("arrow")[:].column(0).to_numpy()
    if labels.dtype.kind in "ui" and labels.max() < 0:
        return None
    if labels.dtype.kind not in "ui" or labels.min() < 0 or labels.max() >= MAX_CLASSES:
        raise ValueError(f"{source}: {name} holds no class, or one beyond 0..{MAX_CLASSES - 1}: set data.label_column")
    return labels.astype(np.int64)
