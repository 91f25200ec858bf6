"""The bounds of settings, stated in the types of their fields, and one check of them all."""

from collections.abc import Hashable
from functools import cache
from itertools import chain
from math import inf
from reprlib import repr as brief
from types import NoneType
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

MAX_NUMBER = 10**9
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
    """Raise ValueError for a field of a dataclass that is out of its `Bounds`, or none of its `Literal` choices.

    Args:
        part: goes before the name of the field, such as "training.".
    """
    for name, bounds, choices in _checks(config.__class__):
        value = getattr(config, name)
        if bounds and not bounds.allow(value):
            raise ValueError(f"{part}{name} must be {bounds}, not {brief(value)}")
        if choices and value not in choices:
            raise ValueError(f"{part}{name} must be {' or '.join(map(str, choices))}, not {brief(value)}")


@cache
def _checks(config: Hashable) -> list[tuple[str, Bounds | None, tuple[Any, ...]]]:
    """Return name, bounds and choices of each field; no choices: any value of its type."""
    checks = []
    for name, hint in get_type_hints(config, include_extras=True).items():
        bounds = next((mark for mark in getattr(hint, "__metadata__", ()) if isinstance(mark, Bounds)), None)
        types = [hint] if get_origin(hint) is Literal else get_args(hint)
        choices = [OF_TYPES.get(kind, get_args(kind)) for kind in types]
        of_literals = any(get_origin(kind) is Literal for kind in types)
        checks.append((name, bounds, tuple(chain(*choices)) if of_literals else ()))
    return checks
