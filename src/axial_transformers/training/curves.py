"""Curves of a run, read from metrics.jsonl: a bounded number of points, however long the run is."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from axial_transformers.training.metrics import VALIDATION, lines_of

MOST_POINTS = 500

Curve = list[tuple[float, float]]
"""Step and value, in order of the steps."""


class Thinned:
    """Lines of which each, then every second, every fourth, ... is kept: at most twice MOST_POINTS, and the last."""

    def __init__(self) -> None:
        self._kept: list[str] = []
        self._last: str | None = None
        self._count, self._stride = 0, 1

    def add(self, line: str) -> None:
        """Adds a line."""
        self._last = line
        if self._count % self._stride == 0:
            self._kept.append(line)
        self._count += 1
        if len(self._kept) > 2 * MOST_POINTS:
            self._kept, self._stride = self._kept[::2], 2 * self._stride

    def __iter__(self) -> Iterator[str]:
        yield from self._kept
        if self._last is not None and (self._count - 1) % self._stride:
            yield self._last


def read_curves(path: Path) -> dict[str, Curve]:
    """The curve of every figure by its name; lines that are none of a log are left out.

    Of the figures of steps there are at most twice MOST_POINTS; those of evaluations are all there.

    Raises:
        OSError: the file cannot be read.
    """
    steps, evaluations = Thinned(), list[str]()
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in lines_of(file):
            (evaluations.append if f'"{VALIDATION}' in line else steps.add)(line)
    curves: dict[str, Curve] = {}
    for line in (*steps, *evaluations):
        figures = _figures(line)
        step = figures.pop("step", math.nan)
        if not math.isnan(step):
            for name, value in figures.items():
                curves.setdefault(name, []).append((step, value))
    return {name: sorted(points) for name, points in curves.items()}


def _figures(line: str) -> dict[str, float]:
    """The finite numbers of a line by name."""
    try:
        found: Any = json.loads(line)
    except (ValueError, RecursionError):  # cut off, or not of this log
        return {}
    numbers = found.items() if isinstance(found, dict) else ()
    return {name: float(value) for name, value in numbers if _is_number(value)}


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) < 1e300 and math.isfinite(value)


def thinned(points: Curve) -> Curve:
    """At most MOST_POINTS + 1 points of a curve, evenly spaced, and its last."""
    stride = -(-len(points) // MOST_POINTS) or 1
    return points[::stride] + points[-1:] * ((len(points) - 1) % stride > 0)
