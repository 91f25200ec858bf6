"""Examples: integer values, channels last, with names and labels; also from the user's own data set."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from json.encoder import encode_basestring_ascii
from reprlib import repr as brief
from textwrap import shorten
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axial_transformers.data.errors import say
from axial_transformers.data.lazy_array import LazyArray, Values, joined, read_bytes, take_part
from axial_transformers.data.names import Names, as_names
from axial_transformers.data.value_range import BYTES, TYPES, ValueRange

MAX_CLASSES = 1 << 16
MAX_LISTED = 200
"""Characters of a list of classes in a message."""
COUNTED_AT_ONCE = 1 << 20
Indices = slice | Sequence[int] | NDArray[np.integer | np.bool_]


@dataclass(frozen=True, eq=False)
class Examples:
    """Examples of one split of a source; `examples[indices]` selects some of them, `len(examples)` counts them.

    Raises:
        ValueError: the parts do not fit together.
    """

    values: Values
    """[N, *A, C]; uint8 where they fit, otherwise int16, uint16 or int32. An array of NumPy, or what reads one
    when it is indexed; `np.asarray` reads all."""

    names: Sequence[str]
    """N names: paths within the folder, or positions in the arrays."""

    labels: NDArray[np.int64] | None = None
    """[N] classes, 0 ... num_classes - 1; None if the source has no labels."""

    class_names: tuple[str, ...] | None = None
    """Names of all classes of the source."""

    columns: tuple[str, ...] | None = None
    """Titles of the columns, for the rows of a table; None: there are none."""

    range: ValueRange = BYTES
    """The values that a position can take, and the floats that they are of."""

    def __post_init__(self) -> None:
        if self.values.dtype not in TYPES or self.values.ndim < 3:
            raise ValueError(
                "an array of values must be [N, *A, C] of uint8, int16, uint16 or int32, not"
                f" {self.values.dtype} {list(self.values.shape)}"
            )
        if len(self.names) != len(self.values):
            raise ValueError(f"{len(self.names)} names for {len(self.values)} examples")
        if self.labels is not None and self.labels.shape != (len(self.values),):
            raise ValueError(f"labels of shape {list(self.labels.shape)} for {len(self.values)} examples")

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, indices: Indices) -> "Examples":
        """Return the chosen examples; a slice shares memory.

        Raises:
            TypeError: one position: `examples.values[position]` is its values.
        """
        if not isinstance(indices, slice) and np.ndim(indices) != 1:
            raise TypeError(f"examples[{brief(indices)}]: take a slice or positions; of one, examples.values[i]")
        return self._with_values(self.values[indices], indices)

    def part(self, chosen: slice) -> "Examples":
        """Return consecutive examples; of those in memory, a copy if fewer than half."""
        return self._with_values(take_part(self.values, chosen), chosen)

    def _with_values(self, values: Values, indices: Indices) -> "Examples":
        """Return the chosen examples, of which these are the values."""
        labels = None if self.labels is None else self.labels[indices]
        return replace(self, values=values, names=as_names(self.names)[indices], labels=labels)

    def spread(self, most: int | None) -> "Examples":
        """Return at most `most` examples, evenly spaced; None: all."""
        if most is None or most >= len(self):
            return self
        return self[np.arange(most) * len(self) // most]

    def named(self, words: Sequence[str]) -> "Examples":
        """Return the examples of these names or positions (from 0), in this order.

        Where names are positions in a larger source, words are names only.
        """
        numbers = {name: number for number, name in reversed(list(enumerate(self.names)))}
        there_are = f"names from {self.names[0]} to {self.names[-1]}" if len(self) else "none"
        if not all(map(str.isdecimal, self.names)):
            numbers = {str(number): number for number in range(len(self))} | numbers
            there_are += f", and positions from 0 to {len(self) - 1}"
        if not words:
            raise ValueError(f"name at least one example: there are {there_are}")
        for word in words:
            if word not in numbers:
                raise ValueError(f"no example {word}: there are {there_are}")
        return self[np.array([numbers[word] for word in words], np.int64)]

    def with_columns(self, titles: Sequence[str] | None, where: object) -> "Examples":
        """Return the rows with the columns in the order of these titles; a warning says if they have none.

        Raises:
            ValueError: the titles are others.
        """
        if titles is None or self.columns == tuple(titles):
            return self
        wanted = ", ".join(titles)
        if self.columns is None:
            say(f"{where} has no titles: its columns are taken as {wanted}")
            return self
        if sorted(self.columns) != sorted(titles) or len({*titles}) < len(titles):
            raise ValueError(
                f"{where} has the columns {', '.join(self.columns)}, not {wanted}: rename its titles, or give"
                " other data"
            )
        order = [self.columns.index(title) for title in titles]
        return replace(self, values=self.values[:, order], columns=tuple(titles))

    def classes_among(self, known: Sequence[str], where: object) -> NDArray[np.int64]:
        """Return the labels [N] as positions of their classes among known ones, by name.

        A source that has numbers in place of names has those of the known classes; a warning says so.

        Raises:
            ValueError: there are no labels, or one is of another class.
        """
        if self.labels is None or self.class_names is None:
            raise ValueError(f"{where} has no labels, of which the model needs one for each example")
        names = self.class_names
        numbers = {name: number for number, name in enumerate(known)}
        unknown = [names[number] for number in np.unique(self.labels) if names[number] not in numbers]
        if not unknown:
            return np.array([numbers.get(name, 0) for name in names])[self.labels]
        of_model = shorten(", ".join(known), MAX_LISTED)
        if self.has_numbered_classes and not any(map(str.isdecimal, known)):
            unknown = [name for name in unknown if int(name) >= len(known)]
        if not unknown:
            say(f"{where} has numbers as labels, taken as those of the model's classes, from 0 on: {of_model}")
            return self.labels
        others = shorten(", ".join(unknown), MAX_LISTED)
        raise ValueError(f"{where} has classes that the model does not know, {others}; it knows {of_model}")

    @property
    def has_numbered_classes(self) -> bool:
        """Return True if the classes are called by their numbers."""
        return self.class_names == tuple(map(str, range(self.num_classes or 0)))

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the axes *A of one example, outermost first."""
        return self.values.shape[1:-1]

    @property
    def channels(self) -> int:
        """Number of channels C."""
        return int(self.values.shape[-1])

    @property
    def num_classes(self) -> int | None:
        """Number of classes of the source; None without labels."""
        return None if self.class_names is None else len(self.class_names)

    def value_counts(self, known: ValueRange) -> NDArray[np.int64] | None:
        """Return how often each value of a range occurs [V], also where blocks leave out the ends of their arrays.

        None for values that are read on demand.
        """
        arrays = self.values.whole() if isinstance(self.values, LazyArray) else self.values
        if arrays is None:
            return None
        counts = np.zeros(known.num_values, np.int64)
        for array in arrays:
            numbers = np.ascontiguousarray(array).reshape(-1)
            for start in range(0, len(numbers), COUNTED_AT_ONCE):
                some = numbers[start : start + COUNTED_AT_ONCE].astype(np.int64)
                counts += np.bincount(some - known.low, minlength=known.num_values)
        return counts

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 in hexadecimal over names, labels, shape, type and bytes of these examples."""
        facts: dict[str, Any] = {
            "labels": None if self.labels is None else self.labels.tolist(),
            "shape": self.values.shape,
            "dtype": str(self.values.dtype),
            "num_values": self.range.num_values,
            "uint16": False,  # published fingerprints have it
        }
        if self.range.low:
            facts["lowest"] = self.range.low
        if self.range.grid:
            facts["grid"] = self.range.grid
        digest = hashlib.sha256(b'{"names": [')
        separator = ""
        for name in self.names:
            digest.update((separator + encode_basestring_ascii(name)).encode())
            separator = ", "
        digest.update(b"], " + json.dumps(facts)[1:].encode() + b"\0")
        values = self.values
        for content in values.contents() if isinstance(values, LazyArray) else read_bytes(values):
            digest.update(content)
        return digest.hexdigest()


def labelled(labels: Any, count: int, where: object, names: Sequence[str] = (), first: int = 0) -> dict[str, Any]:
    """Return the labels of examples and the names of all classes, as fields of `Examples`; nothing without labels.

    Args:
        labels: an integer or a name for each example, [N] or [N, 1]; None: there are none.
        count: the number of examples N.
        where: what errors call the source.
        names: of the first classes; class i is else called i.
        first: the number of the first class.

    Raises:
        ValueError: other labels than `first` .. `first` + 65535, or more names; an example without a label.
    """
    if labels is None:
        return {}
    stored = np.asarray(labels)
    kind = stored.dtype.kind
    labels_of_examples = stored.reshape(-1)
    if kind == "O" and all(isinstance(label, str | bytes) for label in labels_of_examples):
        kind = "U"
    wanted = f"{count} integers {first}..{first + MAX_CLASSES - 1} are needed, or names"
    if stored.shape not in ((count,), (count, 1)) or kind not in "uiSU":
        raise ValueError(f"{where} has labels {stored.dtype} {list(stored.shape)}: {wanted}")
    if kind in "SU":
        classes, numbers = np.unique(labels_of_examples.astype(str), return_inverse=True)
        names = classes.tolist()
    else:
        numbers = labels_of_examples.astype(np.int64) - first
    lowest = int(numbers.min())
    highest = int(numbers.max())
    if lowest < 0 or highest >= MAX_CLASSES:
        raise ValueError(f"{where} has labels from {lowest + first} to {highest + first}: {wanted}")
    class_names = map(str, [*names, *range(len(names), highest + 1)])
    return {"labels": numbers, "class_names": tuple(class_names)}


def examples_from(dataset: Any, num_values: int = 256, lowest: int = 0) -> Examples:
    """Read a data set once into memory, to train on it.

    Args:
        dataset: item i, of `len(dataset)`, is x, (x,), or (x, label) with an integer label. x is an array, a tensor or
            a Pillow image of integers from lowest on: [*A, C], or [H, W] of a gray Pillow image. `dataset.classes` may
            name the classes.
        num_values: number of values that a position can take.
        lowest: the smallest value that a position can take.

    Raises:
        TypeError: a data set without a length, or values that are no integers.
        ValueError: no items, values out of range, or items that differ in shape or in having labels.
    """
    if not len(dataset):
        raise ValueError("dataset has no items")
    parts: list[NDArray[Any]] = []
    labels: list[Any] = []
    allowed = ValueRange(lowest, lowest + num_values - 1)
    for i in range(len(dataset)):
        item = dataset[i]
        x, *rest = item if isinstance(item, tuple) else (item,)
        if len(rest) > 1:
            raise ValueError(f"dataset[{i}] has {len(item)} parts: it must be x, or (x, label)")
        array = np.asarray(x)
        if array.ndim == 2 and hasattr(x, "getbands"):
            array = array[..., None]
        if array.dtype.kind not in "bui":
            raise TypeError(
                f"dataset[{i}] holds {array.dtype} values, not integers: leave out transforms such as ToTensor, or"
                " round its values"
            )
        if array.ndim < 2 or (parts and array.shape != parts[0].shape[1:]):
            shape = list(parts[0].shape[1:]) if parts else "[*A, C]"
            raise ValueError(f"dataset[{i}] has shape {list(array.shape)}, not {shape}, channels last")
        if array.size and not allowed.low <= array.min() <= array.max() <= allowed.high:
            raise ValueError(f"dataset[{i}] has values {ValueRange.of(array)}, not {allowed}")
        parts.append(array.astype(allowed.type)[None])
        labels.append(rest[0] if rest else None)
    has_labels = any(label is not None for label in labels)
    return Examples(
        values=joined(parts, allowed.type),
        names=Names(range(len(labels))),
        range=allowed,
        **labelled(labels if has_labels else None, len(labels), "dataset", getattr(dataset, "classes", ())),
    )
