"""Floats at equal steps, as integers and back, to the last bit; -0.0 comes back as 0."""

from fractions import Fraction
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from axial_transformers.data.config import MIN_STEP

MAX_STEPS = 1 << 16


class Grid(NamedTuple):
    """The floats offset + step * v, for integers v; where 1 / step is an integer, v is divided by it."""

    step: float
    offset: float

    @classmethod
    def of(cls, values: NDArray[np.floating]) -> Self | None:
        """Return the coarsest grid found on which all values lie, or None; `values` are sorted and differ."""
        exact = values.astype(np.float64)
        if len(exact) < 2:
            return cls(1.0, float(exact[0] % 1)) if abs(exact[0]) < 1 << 31 else None
        if not MIN_STEP < np.abs(exact[exact != 0]).min() <= np.abs(exact).max() < 1 / MIN_STEP:
            return None
        rounding = float(np.finfo(values.dtype).eps * np.abs(exact).max())
        apart = np.unique(np.diff(exact))
        distances = np.unique(np.abs(exact - exact[np.abs(exact).argmin()]))[1:]  # floats are the most exact near 0
        for numbers in (np.union1d(apart, abs(exact[exact != 0][:1])), apart):  # from 0, or from anywhere
            divisor = _common_divisor(numbers, rounding)
            for step in _round(_refined(distances, divisor)) if divisor > MIN_STEP else ():
                phase = float(exact[0] - step * round(exact[0] / step))
                for offset in (0.0, float(f"{phase:.6g}"), phase, float(exact[0])):
                    if (grid := cls(step, offset)).holds(values):
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


def _common_divisor(numbers: NDArray[np.float64], rounding: float) -> float:
    """Return about the largest number of which all these, above 0 and ascending, are multiples; 0 if too small.

    It is Euclid's algorithm with the error of each number, which `rounding` bounds at first.
    """
    divisor, error = float(numbers[0]), rounding
    for number in numbers.tolist():
        larger, of_larger = number, rounding
        while True:
            times = round(larger / divisor)
            rest, of_rest = abs(larger - divisor * times), of_larger + times * error
            if rest <= of_rest:
                break
            larger, of_larger, divisor, error = divisor, error, rest, of_rest
        if divisor * 2 * MAX_STEPS < numbers[-1]:
            return 0.0
        times = round(number / divisor)
        if rounding / times < error < divisor / 4 / times:
            divisor, error = number / times, rounding / times
    return divisor


def _refined(distances: NDArray[np.float64], step: float) -> float:
    """Return the step of a grid with these distances from one value, better known the farther they reach."""
    reach = step
    while reach < 2 * distances[-1]:
        reach *= 2
        for farthest in distances[distances <= reach][-1:]:
            step = float(farthest) / (round(farthest / step) or 1)
    return step


def _round(step: float) -> list[float]:
    """Return round numbers near a step, and the step itself; for q / p also 1 / p, by which division is exact."""
    part = Fraction(1 / step).limit_denominator(64)
    decimals = [float(f"{step:.{digits}g}") for digits in range(1, 8)]
    near = [each for each in (*decimals, float(1 / (part or 1))) if abs(each / step - 1) < 1e-5]
    return [*dict.fromkeys([*near, step, 1 / (part.numerator or 1)])]
