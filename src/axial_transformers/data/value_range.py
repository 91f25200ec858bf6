"""The range of a data set's values: how many a position can take, and the smallest."""

from typing import Any, NamedTuple, Self, TypedDict

import numpy as np
from numpy.typing import NDArray

from axial_transformers.data.config import MAX_VALUES
from axial_transformers.messages import Message

TYPES: tuple[type[np.integer], ...] = (np.uint8, np.int16, np.uint16, np.int32)
"""The types in which values are kept in memory and written."""


class Counted(TypedDict):
    """Fields of `Examples`."""

    num_values: int
    lowest: int


class ValueRange(NamedTuple):
    """The smallest and the largest value."""

    low: int
    high: int

    @classmethod
    def of(cls, values: NDArray[Any]) -> Self:
        return cls(int(values.min()), int(values.max()))

    @classmethod
    def around(cls, ranges: "list[ValueRange]") -> Self:
        return cls(min(each.low for each in ranges), max(each.high for each in ranges))

    def require_within(self, known: "ValueRange", where: object, advise: bool = False) -> None:
        """Raise ValueError unless a model knows these values too; `advise` what to train it with."""
        if not known.low <= self.low <= self.high <= known.high:
            said, both = f"values {self} of {where}, but the model knows {known}", ValueRange.around([self, known])
            if not advise:
                raise ValueError(said)
            range_of_both = {"lowest": both.low, "num_values": both.high - both.low + 1}
            raise ValueError(Message("{}: give {model.lowest=} and {model.num_values=}", said, **range_of_both))

    def __str__(self) -> str:
        return f"{self.low}..{self.high}"

    @property
    def type(self) -> np.dtype[Any]:
        """Return the smallest of `TYPES` that holds the range."""
        limits = (np.iinfo(each) for each in TYPES)
        return next(each.dtype for each in limits if each.min <= self.low and self.high <= each.max)

    def counted(self, where: object, num_values: int | None = None) -> Counted:
        """Return `num_values` and `lowest` of data in this range.

        Without a given number, bytes of 128 or more are 0..255, smaller ones 0..high, and other values low..high.

        Raises:
            ValueError: more than 65,536 values, or more than the given number.
        """
        if self.high - self.low >= MAX_VALUES:
            hint = "divide and round them, or cut off the outermost"
            raise ValueError(
                f"{where} holds values {self}: at most {MAX_VALUES:,} values in a row are modelled, {hint}"
            )
        if self.low < -(1 << 31) or self.high >= 1 << 31:
            raise ValueError(f"{where} holds values {self}, of more than 32 bits: subtract the smallest one first")
        if num_values is not None:
            allowed = ValueRange(min(self.low, 0), min(self.low, 0) + num_values - 1)
            if self.high > allowed.high:
                raise ValueError(Message("{} holds values {}, not {}: correct {data.num_values}", where, self, allowed))
            return {"num_values": num_values, "lowest": allowed.low}
        if 0 <= self.low <= self.high < 256:
            return {"num_values": 256 if self.high >= 128 else max(2, self.high + 1), "lowest": 0}
        return {"num_values": max(2, self.high - self.low + 1), "lowest": self.low}


def integers(where: object, values: NDArray[Any]) -> NDArray[np.integer]:
    """Return values in the smallest of `TYPES`; ValueError, in one line, for other numbers than integers."""
    if values.dtype.kind == "f":
        raise ValueError(f"{where} holds {_described(values)}")
    if values.dtype.kind not in "bui":
        raise ValueError(f"{where} holds {values.dtype} values: integers are modelled; save uint8, int16 or int32")
    found = ValueRange.of(values)
    found.counted(where)
    return values.astype(found.type, copy=False)


def _described(values: NDArray[np.floating]) -> str:
    finite = values[np.isfinite(values)]
    numbers = f"{values.dtype} values {finite.min():.6g}..{finite.max():.6g}" if finite.size else f"{values.dtype}"
    if finite.size < values.size:
        return f"{numbers} and NaN or infinity: integers are modelled; replace these, then convert to integers"
    if np.array_equal(values, np.rint(values)) and max(abs(finite.min()), abs(finite.max())) < 1 << 31:
        return f"{numbers}: integers are modelled; these are whole, convert them by x.astype(np.int32)"
    advice = "quantise them first, values x of 0..1 as by (x * 255).round().astype(np.uint8)"
    return f"{numbers}: integers are modelled; {advice}"
