"""The range of a data set's values: how many a position can take, and the smallest."""

import math
from collections.abc import Iterable
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from axial_transformers.data.config import MAX_VALUES, MIN_STEP
from axial_transformers.data.errors import say
from axial_transformers.data.grid import MAX_STEPS, Grid

TYPES: tuple[type[np.integer], ...] = (np.uint8, np.int16, np.uint16, np.int32)
"""The types in which values are kept in memory and written."""


class ValueRange(NamedTuple):
    """The smallest and the largest value."""

    low: int
    high: int
    grid: Grid | None = None
    """The floats that values are of; None for integers, and for whole floats."""

    @classmethod
    def of(cls, values: NDArray[Any]) -> Self:
        return cls(int(values.min()), int(values.max()))

    @classmethod
    def around(cls, ranges: "list[ValueRange]") -> Self:
        if len({own.grid for own in ranges}) > 1:
            raise ValueError("integers and floats, or floats at other steps, do not mix: convert them to one kind")
        return cls(min(own.low for own in ranges), max(own.high for own in ranges), ranges[0].grid)

    def require_within(self, known: "ValueRange", where: object, advise: bool = False) -> None:
        """Raise ValueError unless a model knows these values too; `advise` what to train it with."""
        if self.grid != known.grid:
            raise ValueError(f"{where} holds {self.grid or 'integers'}, but the model knows {known.grid or 'integers'}")
        if not known.low <= self.low <= self.high <= known.high:
            both = ValueRange.around([self, known])
            advice = f": give model.lowest={both.low} and model.num_values={both.num_values}" if advise else ""
            raise ValueError(f"values {self} of {where}, but the model knows {known}{advice}")

    def __str__(self) -> str:
        return f"{self.low}..{self.high}"

    @property
    def num_values(self) -> int:
        """Return how many values there are."""
        return self.high - self.low + 1

    @property
    def type(self) -> np.dtype[Any]:
        """Return the smallest of `TYPES` that holds the range."""
        limits = map(np.iinfo, TYPES)
        return next(limit.dtype for limit in limits if limit.min <= self.low and self.high <= limit.max)

    def modelled(self, where: object, num_values: int | None = None) -> Self:
        """Return the range that a model of such data knows.

        Without a given number, bytes of 128 or more are 0..255, smaller ones 0..high, and other values low..high.

        Raises:
            ValueError: more than 65,536 values, or more than the given number.
        """
        if self.high - self.low >= MAX_VALUES:
            raise ValueError(
                f"{where} holds values {self}: at most {MAX_VALUES:,} values in a row are modelled, divide and round"
                " them, or cut off the outermost"
            )
        if self.low < -(1 << 31) or self.high >= 1 << 31:
            raise ValueError(f"{where} holds values {self}, of more than 32 bits: subtract the smallest one first")
        if num_values is not None:
            low = min(self.low, 0)
            allowed = self._replace(low=low, high=low + num_values - 1)
            if self.high > allowed.high:
                raise ValueError(f"{where} holds values {self}, not {allowed}: correct data.num_values")
            return allowed
        low = 0 if 0 <= self.low <= self.high < 256 else self.low
        high = 255 if low == 0 and 128 <= self.high < 256 else self.high
        return self._replace(low=low, high=max(low + 1, high))


BYTES = ValueRange(0, 255)


def find_range(
    where: object, parts: Iterable[NDArray[Any]], known: tuple[float, float] | None = None, rounding: bool = False
) -> ValueRange:
    """Return the range of an array's parts; of floats, that of their integers on the `known` grid, or on their own.

    Args:
        rounding: let floats lie beside the `known` grid, to which `integers` rounds them; a warning says so.

    Raises:
        ValueError: in one line, for floats on no grid, and for other numbers than integers.
    """
    grid = Grid(*known) if known else None
    different = np.zeros(0)
    ranges: list[ValueRange] = []
    loss = 0.0
    for values in parts:
        if values.dtype.kind in "bui":
            ranges.append(ValueRange.of(values))
            continue
        if values.dtype.kind != "f":
            raise ValueError(f"{where} holds {values.dtype} values: numbers are modelled; save uint8, int16 or int32")
        if not np.isfinite(values).all():
            raise ValueError(
                f"{where} holds {values.dtype} values with NaN or infinity: replace these, or cut them off"
            )
        if rounding and grid:
            rounded = grid.floats(grid.integers(values), values.dtype)
            loss = max(loss, float(np.abs(rounded.astype(np.float64) - values).max(initial=0)))
            values = rounded
        different = np.unique(np.concatenate([different.astype(values.dtype), np.unique(values)]))
        if len(different) > MAX_STEPS:
            break
    if loss:
        say(f"{where} is rounded to {grid}, as data.grid says, by at most {loss:.3g}")
    if different.size:
        ranges = [_find_float_range(where, different, grid)]
    whole = ValueRange.around(ranges)
    whole.modelled(where)
    return whole


def _find_float_range(where: object, different: NDArray[np.floating], known: Grid | None) -> ValueRange:
    """Return the range of the integers of floats, which are sorted and differ."""
    grid = known
    if grid is None and len(different) <= MAX_STEPS:
        grid = Grid.of(different)
    if not grid or not grid.holds(different):
        raise ValueError(f"{where} holds {_described(different, known)}")
    values_range = ValueRange.of(grid.integers(different))
    return values_range._replace(grid=None if grid == (1, 0) else grid)


def integers(values: NDArray[Any], values_range: ValueRange) -> NDArray[np.integer]:
    """Return values of a range in its type: of floats, their integers on the grid."""
    if values.dtype.kind == "f":
        values = (values_range.grid or Grid(1.0, 0.0)).integers(values)
    whole: NDArray[np.integer] = values.astype(values_range.type, copy=False)
    return whole


def _described(values: NDArray[np.floating], known: Grid | None) -> str:
    low = float(values[0])
    high = float(values[-1])
    numbers = f"{values.dtype} values {low:.6g}..{high:.6g}"
    if known:
        return f"{numbers}, not all at {known}, as the model knows them: round them to it"
    step = 10.0 ** math.ceil(math.log10(max((high - low) / MAX_VALUES, MIN_STEP)))
    return (
        f"{numbers} that are not at equal steps: data.grid=({step:g}, 0) rounds them, by at most {step / 2:g}, and"
        " keeps their unit"
    )
