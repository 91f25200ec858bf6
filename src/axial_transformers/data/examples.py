"""Examples: integer values, channels last, with names and labels; also from the user's own data set."""

import hashlib
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

Indices = slice | Sequence[int] | NDArray[np.integer | np.bool_]


@dataclass(frozen=True, eq=False)
class Examples:
    """Examples of one split of a source; `examples[indices]` selects some of them, `len(examples)` counts them.

    Raises:
        ValueError: the parts do not fit together.
    """

    values: NDArray[np.uint8]
    """[N, *A, C], each value below `num_values`."""

    names: Sequence[str]
    """N names: paths within the folder, or positions in the arrays."""

    labels: NDArray[np.int64] | None = None
    """[N] classes, 0 ... num_classes - 1; None if the source has no labels."""

    class_names: tuple[str, ...] | None = None
    """Names of all classes of the source."""

    num_values: int = 256
    """Number of values that a position can take."""

    uint16: bool = False
    """True if the channels are the bytes of 16-bit ones: high and low byte of the first, of the second, ..."""

    skipped: tuple[str, ...] = ()
    """A line about each record or file that was left out."""

    def __post_init__(self) -> None:
        if self.values.dtype != np.uint8 or self.values.ndim < 3:
            raise ValueError(f"values must be uint8 [N, *A, C], not {self.values.dtype} {list(self.values.shape)}")
        if len(self.names) != len(self.values):
            raise ValueError(f"{len(self.names)} names for {len(self.values)} examples")
        if self.labels is not None and self.labels.shape != (len(self.values),):
            raise ValueError(f"labels of shape {list(self.labels.shape)} for {len(self.values)} examples")

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, indices: Indices) -> "Examples":
        """Return the chosen examples; a slice shares memory."""
        chosen = np.arange(len(self))[indices]
        return Examples(
            values=self.values[indices],
            names=[self.names[i] for i in chosen],
            labels=None if self.labels is None else self.labels[indices],
            class_names=self.class_names,
            num_values=self.num_values,
            uint16=self.uint16,
            skipped=self.skipped,
        )

    def part(self, chosen: slice) -> "Examples":
        """Return consecutive examples, copied if fewer than half."""
        numbers = range(len(self))[chosen]
        return self[chosen if 2 * len(numbers) >= len(self) else numbers]

    def spread(self, most: int | None) -> "Examples":
        """Return at most `most` examples, evenly spaced; None: all."""
        if most is None or most >= len(self):
            return self
        return self[np.arange(most) * len(self) // most]

    def named(self, words: Sequence[str]) -> "Examples":
        """Return the examples of these names or positions (from 0), in this order."""
        numbers = {name: number for number, name in reversed(list(enumerate(self.names)))}
        found = [numbers.get(word, int(word) if word.isdecimal() and len(word) < 19 else -1) for word in words]
        for word, number in zip(words, found, strict=True):
            if not 0 <= number < len(self):
                raise ValueError(
                    f"no example {word}: there are positions 0 to {len(self) - 1:,}, and names such as {self.names[0]}"
                )
        return self[np.array(found)]

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

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 in hexadecimal over names, labels, shape, type and bytes of these examples."""
        head = {
            "names": list(self.names),
            "labels": None if self.labels is None else self.labels.tolist(),
            "shape": self.values.shape,
            "dtype": "uint8",
            "num_values": self.num_values,
            "uint16": self.uint16,
        }
        digest = hashlib.sha256(json.dumps(head).encode() + b"\0")
        for start in range(0, len(self), 1024):
            digest.update(np.ascontiguousarray(self.values[start : start + 1024]).data)
        return digest.hexdigest()


class OnDemand(ABC):
    """Values uint8 [N, *A, C], made when they are selected."""

    dtype = np.dtype(np.uint8)

    shape: tuple[int, ...]
    """[N, *A, C]."""

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @abstractmethod
    def __getitem__(self, indices: Indices) -> NDArray[np.uint8]: ...

    def as_array(self) -> NDArray[np.uint8]:
        return cast(NDArray[np.uint8], self)


class GrowingArray:
    """Values [N, ...] collected without a second copy."""

    def __init__(self) -> None:
        self.shape: tuple[int, ...] | None = None
        self._bytes = bytearray()

    def add(self, part: NDArray[np.uint8]) -> None:
        assert self.shape in (None, part.shape[1:])
        self.shape = part.shape[1:]
        self._bytes.extend(np.ascontiguousarray(part).data.cast("B"))

    def cut(self, count: int) -> None:
        if count == 0:
            self.shape = None
        del self._bytes[count * math.prod(self.shape or (0,)) :]

    def values(self) -> NDArray[np.uint8]:
        assert self.shape is not None
        return np.frombuffer(self._bytes, np.uint8).reshape(-1, *self.shape)


def split_uint16(values: NDArray[np.uint16]) -> NDArray[np.uint8]:
    """Convert uint16 [..., C] to uint8 [..., 2 C]: high and low byte of each channel.

    Raises:
        ValueError: another type than uint16.
    """
    if values.dtype.kind != "u" or values.dtype.itemsize != 2:
        raise ValueError(f"uint16 values are needed, not {values.dtype}")
    return np.ascontiguousarray(values, ">u2").view(np.uint8)


def join_uint16(values: NDArray[np.uint8]) -> NDArray[np.uint16]:
    """Convert uint8 [..., 2 C] to uint16 [..., C], the inverse of `split_uint16`.

    Raises:
        ValueError: another type than uint8, or an odd number of channels.
    """
    if values.dtype != np.uint8 or values.shape[-1] % 2:
        raise ValueError(f"uint8 pairs of channels are needed, not {values.dtype} {list(values.shape)}")
    return np.ascontiguousarray(values).view(">u2").astype(np.uint16)


class Dataset(Protocol):
    """A data set with a length, such as a torch Dataset or a list."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> Any: ...


def examples_from(dataset: Dataset, num_values: int = 256) -> Examples:
    """Read a data set once into memory, to train on it.

    Args:
        dataset: item i is x, or (x, label) with an integer label. x is an array, a tensor or a Pillow image of integers
            0 ... num_values - 1: [*A, C], or [H, W] of a gray Pillow image. `dataset.classes` may name the classes.
        num_values: number of values that a position can take, at most 256.

    Raises:
        TypeError: a data set without a length, or values that are no integers.
        ValueError: no items, values out of range, or items that differ in shape or in having labels.
    """
    if not hasattr(dataset, "__len__"):
        raise TypeError(f"dataset must have a length, as a torch Dataset has, not be a {type(dataset).__name__}")
    if not len(dataset):
        raise ValueError("dataset has no items")
    stack, labels = GrowingArray(), []
    for i in range(len(dataset)):
        item = dataset[i]
        x, label = item if isinstance(item, tuple) else (item, None)
        stack.add(_example(x, i, num_values, stack.shape)[None])
        labels.append(label)
    classes = _classes(labels)
    names = None
    if classes is not None:
        given = [str(name) for name in getattr(dataset, "classes", ())]
        names = tuple(given + [str(i) for i in range(len(given), int(classes.max()) + 1)])
    return Examples(
        values=stack.values(),
        names=[str(i) for i in range(len(labels))],
        labels=classes,
        class_names=names,
        num_values=num_values,
    )


def _example(x: Any, index: int, num_values: int, shape: tuple[int, ...] | None) -> NDArray[np.uint8]:
    array = np.asarray(x)
    if array.ndim == 2 and hasattr(x, "getbands"):
        array = array[..., None]
    if array.dtype.kind not in "bui":
        raise TypeError(
            f"dataset[{index}] holds {array.dtype} values, not integers 0..{num_values - 1}: leave out transforms such "
            "as ToTensor, or round its values"
        )
    if array.ndim < 2 or array.shape != (shape or array.shape):
        wanted = "[*A, C], channels last" if shape is None else f"{list(shape)} as dataset[0]"
        raise ValueError(f"dataset[{index}] has shape {list(array.shape)}, not {wanted}")
    if array.size and not 0 <= array.min() <= array.max() < min(num_values, 256):
        raise ValueError(f"dataset[{index}] has values {array.min()}..{array.max()}, not 0..{num_values - 1}")
    return array.astype(np.uint8)


def _classes(labels: list[Any]) -> NDArray[np.int64] | None:
    if all(label is None for label in labels):
        return None
    for i, label in enumerate(labels):
        if label is None or np.asarray(label).dtype.kind not in "ui" or np.size(label) != 1 or label < 0:
            raise ValueError(f"dataset[{i}] has the label {label!r}: all items need one, an integer from 0, or none")
    return np.array([int(label) for label in labels], np.int64)
