"""Floats at equal steps, as integers and back, to the last bit; -0.0 comes back as 0."""

from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

MAX_STEPS = 1 << 16
_OF_ONE = (*(10**digits for digits in range(13)), 255, 65_535)
"""How many of the smallest steps make 1."""


class Grid(NamedTuple):
    """The floats offset + step * v, for integers v; where 1 / step is an integer, v is divided by it."""

    step: float
    offset: float

    @classmethod
    def of(cls, values: NDArray[np.floating]) -> Self | None:
        """Return the coarsest grid of decimals, or of 255ths or 65535ths, that holds all values; None if none does.

        `values` are sorted and differ.
        """
        for of_one in _OF_ONE:
            with np.errstate(over="ignore"):
                whole = np.rint(values.astype(np.float64) * of_one)
            if not np.abs(whole).max() < 1 << 53 or not np.array_equal((whole / of_one).astype(values.dtype), values):
                continue
            first = int(whole[0])
            last = int(whole[-1])
            apart = int(np.gcd.reduce(np.diff(whole).astype(np.int64))) or of_one
            for step, offset in (apart, first % apart), (1, 0):
                grid = cls(step / of_one, offset / of_one)
                if last - first < step * MAX_STEPS and grid.holds(values):
                    return grid
        return None

    def __str__(self) -> str:
        return f"steps of {self.step:g} from {self.offset:g}"

    def holds(self, values: NDArray[np.floating]) -> bool:
        """Return True if the integers of all values give back the same values; -0.0 counts as 0."""
        return np.array_equal(self.floats(self.integers(values), values.dtype), values)

    def integers(self, values: NDArray[np.floating]) -> NDArray[np.int64]:
        """Return the nearest v."""
        return np.rint((values.astype(np.float64) - self.offset) / self.step).astype(np.int64)

    def floats(self, integers: NDArray[np.integer], dtype: Any = np.float32) -> NDArray[np.floating]:
        """Return the values of integers, rounded to the type."""
        whole = round(1 / self.step)
        scaled = integers / np.float64(whole) if whole and 1 / whole == self.step else integers * np.float64(self.step)
        return (self.offset + scaled).astype(dtype)
