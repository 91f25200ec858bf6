"""The bounds of settings, stated in the types of their fields, and one check of them all."""

from collections.abc import Hashable
from contextlib import suppress
from functools import cache
from itertools import chain
from math import inf
from reprlib import repr as brief
from types import NoneType
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from axial_transformers.storage.typed_json import typed

MAX_NUMBER = 10**9
NUMBERS = {int, float, bool, NoneType, tuple}
OF_TYPES: dict[Any, tuple[Any, ...]] = {NoneType: (None,), bool: (True, False)}


class Bounds(NamedTuple):
    """The range of a number or of each number of a tuple: `steps: Annotated[int, Bounds(least=1)] = 100`."""

    least: float = -inf
    most: float = inf
    above: float = -inf
    below: float = inf

    def allow(self, value: Any) -> bool:
        """Return True for None, and for numbers within the bounds; NaN is within none."""
        if isinstance(value, tuple):
            return all(map(self.allow, value))
        return value is None or (self.least <= value <= self.most and self.above < value < self.below)

    def __str__(self) -> str:
        words = {"at least": self.least, "above": self.above, "at most": self.most, "below": self.below}
        return " and ".join(f"{word} {bound:,}" for word, bound in words.items() if abs(bound) < inf)


COUNT = Bounds(least=1, most=MAX_NUMBER)
POSITIVE = Bounds(above=0)
SHARE = Bounds(least=0, below=1)


def check_settings(config: Any, part: str = "") -> None:
    """Raise ValueError where a field of a dataclass is no number, or out of its `Bounds` or `Literal` choices.

    Numbers of NumPy become those of Python, lists and arrays become tuples.

    Args:
        part: goes before the name of the field, such as "training.".
    """
    for name, hint, bounds, choices in _checks(config.__class__):
        value = _without_numpy(getattr(config, name))
        with suppress(TypeError):  # of what is no number, which `typed` refuses
            if bounds and not bounds.allow(value):
                raise ValueError(f"{part}{name} must be {bounds}, not {brief(value)}")
        if hint is not None:
            object.__setattr__(config, name, typed(hint, value, f"{part}{name}"))  # of a frozen dataclass
        if choices and value not in choices:
            raise ValueError(f"{part}{name} must be {' or '.join(map(str, choices))}, not {brief(value)}")


def _without_numpy(value: Any) -> Any:
    if type(value).__module__ == "numpy":  # which `axial --help` does not import
        value = value.tolist()
    return tuple(map(_without_numpy, value)) if isinstance(value, list | tuple) else value


@cache
def _checks(config: Hashable) -> list[tuple[str, Any, Bounds | None, tuple[Any, ...]]]:
    """Return name, type, bounds and choices of each field; a type of numbers only, otherwise None.

    They are those of the class that states the field first. No choices: any value of the type.
    """
    hints: dict[str, Any] = {}
    for base in config.__mro__:  # type: ignore[attr-defined]
        hints |= get_type_hints(base, include_extras=True)
    checks = []
    for name, marked in hints.items():
        hint, *marks = get_args(marked) if get_origin(marked) is Annotated else [marked]
        bounds = next((mark for mark in marks if isinstance(mark, Bounds)), None)
        types = [hint] if get_origin(hint) is Literal else get_args(hint)
        choices = [OF_TYPES.get(kind, get_args(kind)) for kind in types]
        of_literals = any(get_origin(kind) is Literal for kind in types)
        checked = hint if parts_of(hint) <= NUMBERS else None
        checks.append((name, checked, bounds, tuple(chain(*choices)) if of_literals else ()))
    return checks


def parts_of(hint: Any) -> set[Any]:
    """Return the types of which a type is made."""
    parts = [part for part in get_args(hint) if part is not Ellipsis]
    return set().union(*map(parts_of, parts)) if parts else {hint}
