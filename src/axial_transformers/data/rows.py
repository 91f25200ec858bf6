"""Rows of a column of a data set, read by Arrow when they are selected."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axial_transformers.data.arrays import example_of
from axial_transformers.data.config import DataConfig
from axial_transformers.data.examples import Indices, OnDemand
from axial_transformers.data.images import PixelKind, decoded, fitted
from axial_transformers.data.picture_files import Member
from axial_transformers.data.value_range import ValueRange, integers

AT_ONCE = 64


class Column:
    """What the rows of one column hold: files of images, or arrays.

    Args:
        dataset: a `datasets.Dataset` of one column, in the format of Arrow.
        source: what errors call it.
    """

    def __init__(self, dataset: Any, source: str) -> None:
        self.dataset, self.source = dataset, source

    def __len__(self) -> int:
        return len(self.dataset)

    def batches(self) -> list[range]:
        """Return all rows, some at a time."""
        return [range(len(self))[start : start + AT_ONCE] for start in range(0, len(self), AT_ONCE)]

    def read(self, rows: Sequence[int]) -> Any:
        """Return a list of files, or an array [n, *A]; ValueError for arrays of several shapes."""
        cells = self.dataset[rows].column(0).combine_chunks()
        return self._files(rows, cells) if hasattr(cells, "field") else self._array(cells)

    def _files(self, rows: Sequence[int], cells: Any) -> list[Member]:
        files = []
        for row, cell in zip(rows, cells.to_pylist(), strict=True):
            content, path = (cell["bytes"], cell["path"]) if cell else (b"", "")
            name = f"{self.source}: {path or f'row {row}'}"
            files.append(Member(_downloaded(path or "", name) if content is None else content, name))
        return files

    def _array(self, cells: Any) -> NDArray[Any]:
        shape, cells = [len(cells)], getattr(cells, "storage", cells)
        while hasattr(cells, "value_lengths"):
            lengths = cells.value_lengths().unique().to_pylist() or [0]
            if len(lengths) > 1 or None in lengths:
                raise ValueError(f"{self.source} holds arrays of different shapes, or a row holds none")
            shape.append(lengths[0])
            cells = cells.flatten()
        array: NDArray[Any] = cells.to_numpy(zero_copy_only=False)
        return array.reshape(shape)


def _downloaded(path: str, name: str) -> bytes:
    """Return a file that `datasets` has downloaded: the data sets of others may name any file of this machine."""
    from datasets import config
    from huggingface_hub import constants

    folders = [Path(folder).resolve() for folder in (config.HF_DATASETS_CACHE, constants.HF_HUB_CACHE)]
    if not any(Path(path).resolve().is_relative_to(folder) for folder in folders):
        raise ValueError(f"{name} is no file of the data set: put its images into it, as save_to_disk does")
    return Path(path).read_bytes()


class Rows(OnDemand):
    """The examples of a column as an array [N, *A, C].

    Args:
        kind: of images; None for arrays.
        found: the range of all values.
    """

    def __init__(self, column: Column, options: DataConfig, kind: PixelKind | None, found: ValueRange) -> None:
        self.column, self.options, self.kind, self.found, self.dtype = column, options, kind, found, found.type
        self.shape = (len(column), *self._example(column.read([0])[0]).shape)

    def __getitem__(self, indices: Indices) -> NDArray[np.integer]:
        rows = np.arange(len(self))[indices].tolist()
        values = np.empty((len(rows), *self.shape[1:]), self.dtype)
        for value, cell in zip(values, self.column.read(rows), strict=True):
            example = self._example(cell)
            if example.shape != value.shape:
                where = cell if isinstance(cell, Member) else self.column.source
                sizes = f"is {list(example.shape)} where the first row is {list(value.shape)}"
                raise ValueError(f"{where} {sizes}: give data.size and data.fit (crop or stretch)")
            value[...] = example
        return values

    def _example(self, cell: Any) -> NDArray[np.integer]:
        if self.kind is None:
            return example_of(integers(cell, self.found), self.column.source, self.options)[0]
        image = decoded(cell, self.kind, self.options.background, self.options.palette)
        (example,), _ = fitted(cell, image, self.options)
        return example

    def consecutive(self, chosen: slice) -> NDArray[np.integer]:
        dataset = self.column.dataset.select(range(len(self))[chosen])
        return Rows(Column(dataset, self.column.source), self.options, self.kind, self.found).as_array()

    def contents(self) -> Iterator[bytes | memoryview]:
        """Yield how the rows are read, and what they hold: images are not decoded."""
        options = self.options
        of_images = options.size, options.fit, options.background, options.palette
        yield f"{(*of_images, options.axes, options.frames, options.stride)}".encode()
        for rows in self.column.batches():
            for cell in self.column.read(rows):
                yield cell.getbuffer() if isinstance(cell, Member) else np.ascontiguousarray(cell).data
