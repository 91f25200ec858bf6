"""Values of examples: in memory, or read when they are selected."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from copy import copy
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from axial_transformers.data.names import find_positions

_AT_A_TIME = 1024
Values: TypeAlias = "NDArray[np.integer] | LazyArray"
"""Integers [N, *A, C], channels last."""


class LazyArray(ABC):
    """Integers [N, *A, C] that are read when they are selected.

    Args:
        numbers: of these examples among all of a source.
        form: the axes *A and C of one example.
    """

    in_memory = False
    """True if a selection takes no longer than one of an array."""
    at_random = False
    """True if training takes examples by `cut`."""

    def __init__(self, numbers: range, form: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.numbers = numbers
        self.shape = (len(numbers), *form)
        self.dtype = dtype
        self.ndim = 1 + len(form)

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, indices: Any) -> NDArray[np.integer]:
        """Return examples [n, *A, C], or of one position [*A, C]; of a tuple, what its others select of these."""
        if isinstance(indices, tuple):
            first, *others = indices or (...,)
            if first is Ellipsis:
                return self[:][indices]
            of_one = isinstance(first, int | np.integer)
            return self[first][tuple(others) if of_one else (slice(None), *others)]
        if isinstance(indices, int | np.integer):
            return self[[indices]][0]
        return self.read(find_positions(indices, len(self)) + self.numbers.start)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[np.integer]:
        return self[:].astype(dtype or self.dtype, copy=False)

    @abstractmethod
    def read(self, numbers: NDArray[np.int64]) -> NDArray[np.integer]:
        """Return the examples of these numbers."""

    def part(self, chosen: slice) -> Self:
        """Return consecutive examples, still to be read."""
        part = copy(self)
        part.numbers = self.numbers[chosen]
        part.shape = (len(part.numbers), *self.shape[1:])
        return part

    def whole(self) -> Iterator[NDArray[np.integer]] | None:
        """Return all values of the source, also those of other parts; None if they would have to be read."""
        return None

    def contents(self) -> Iterator[bytes | memoryview]:
        """Yield what a fingerprint covers."""
        return read_bytes(self)


def take_part(values: Values, chosen: slice) -> Values:
    """Return consecutive examples; of those in memory, a copy if fewer than half, so that the others can be freed."""
    if isinstance(values, LazyArray):
        return values.part(chosen)
    part: Values = values[chosen]
    return part if 2 * len(part) >= len(values) else np.array(part)


def read_bytes(values: Values) -> Iterator[memoryview]:
    """Yield the bytes of values, some examples at a time."""
    for start in range(0, len(values), _AT_A_TIME):
        yield np.ascontiguousarray(values[start : start + _AT_A_TIME]).data


def joined(parts: list[NDArray[np.integer]], dtype: np.dtype[Any]) -> NDArray[np.integer]:
    """Return parts [n, ...] as one array; takes each off the list when it has copied it, to free its memory."""
    end = sum(map(len, parts))
    values = np.empty((end, *parts[0].shape[1:]), dtype)
    while parts:
        part = parts.pop()
        values[end - len(part) : end] = part
        end -= len(part)
    return values
