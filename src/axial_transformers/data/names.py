"""Names of examples, made when they are asked for: a string for each of millions of rows takes more than the rows."""

from collections.abc import Callable, Sequence
from functools import partial
from reprlib import repr as brief
from typing import Any

import numpy as np
from numpy.typing import NDArray


class Names(Sequence[str]):
    """Names [N] of examples.

    Args:
        numbers: [N] of these examples.
        name: returns the name of a number; `pickle` must take it, as workers of a DataLoader need.
    """

    def __init__(self, numbers: range | NDArray[np.integer], name: Callable[[int], str] = str) -> None:
        self._numbers = numbers
        self._name = name

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, index: Any) -> Any:
        """Return one name, or those of a slice, of positions, or where booleans are true."""
        if isinstance(index, int | np.integer):
            return self._name(int(self._numbers[index]))
        if isinstance(index, slice):
            numbers = self._numbers[index]
        else:
            numbers = np.array([self._numbers[i] for i in find_positions(index, len(self))], np.int64)
        return Names(numbers, self._name)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(own == name for own, name in zip(self, other))

    def __repr__(self) -> str:
        return f"{[*self[:3]]}, {len(self):,} in all" if len(self) > 3 else str([*self])


def find_positions(indices: Any, count: int) -> NDArray[np.int64]:
    """Return the positions, from 0, that a slice, positions, or booleans [count] select."""
    if isinstance(indices, slice):
        return np.arange(*indices.indices(count))
    selected = np.asarray(indices)
    if selected.dtype == np.bool_ and selected.shape == (count,):
        return np.flatnonzero(selected)
    if selected.size and selected.dtype.kind not in "iu":
        raise IndexError(f"{brief(indices)} is neither positions of examples nor {count} booleans")
    positions = selected.astype(np.int64)
    if positions.size and not -count <= positions.min() <= positions.max() < count:
        raise IndexError(f"positions {positions.min()}..{positions.max()} of {count} examples")
    return positions % max(count, 1)


def as_names(names: Sequence[str]) -> Names:
    """Return names of which some can be selected as of an array."""
    return names if isinstance(names, Names) else Names(range(len(names)), names.__getitem__)


def joined_names(parts: Sequence[tuple[str, Sequence[str]]]) -> Names:
    """Return the names of several parts, one after the other; before each name of a part stands its prefix."""
    starts = np.cumsum([0, *(len(names) for _, names in parts)])
    return Names(range(starts[-1]), partial(_joined_name, parts, starts))


def _joined_name(parts: Sequence[tuple[str, Sequence[str]]], starts: NDArray[np.int64], number: int) -> str:
    part = int(np.searchsorted(starts, number, side="right")) - 1
    prefix, names = parts[part]
    return prefix + names[number - starts[part]]
