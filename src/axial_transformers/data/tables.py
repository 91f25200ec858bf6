"""Tables: .csv and .tsv files, of which the columns of numbers are read, and written back among what is left out."""

import csv
import io
import math
import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from axial_transformers.data.errors import parsing, say
from axial_transformers.wording import counted

SUFFIXES = (".csv", ".tsv")
_GAPS = {"", "na", "n/a", "nan", "null", "none", "-", "?"}
_TIMES = re.compile(r"\b(time|date|timestamp|datetime)\b", re.IGNORECASE)
_NUMBER = re.compile(r"[-+]?(?!0[0-9])([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")
_NUMBER_HERE = "\x1a"
"""Stands for a cell whose number is among the values."""


class Table(NamedTuple):
    """The numbers of a table."""

    values: NDArray[Any]
    """[rows, columns]: int64 if all are whole, else float64."""
    columns: tuple[tuple[str, str], ...]
    """Name and type of each, int or float."""
    rest: bytes
    """The text of the table, with a mark in place of each number; see `write_table`."""
    numbers: tuple[int, ...]
    """The number of each row in the file, from 0, without the titles and empty lines."""
    titled: bool
    """True if the first row has the titles; columns are else called by their numbers."""
    labels: tuple[str, ...] | None
    """The class of each row, if a column is named for it."""

    @property
    def titles(self) -> tuple[str, ...] | None:
        """Return the titles of the columns; None without a first row of them."""
        return tuple(name for name, _ in self.columns) if self.titled else None

    @property
    def classes(self) -> NDArray[Any] | None:
        """Return the class of each row: integers if all are, else names."""
        if self.labels is None:
            return None
        are_numbers = all(map(str.isdecimal, self.labels))
        return np.array(self.labels, np.int64 if are_numbers else str)


def read_table(path: Path, label_column: str | None = None) -> Table:
    """Return the columns of numbers in the rows without a gap; a warning says what else there is.

    A first row without numbers has the titles. Columns of times are left out, by their titles, and those with text.
    Text is also what float64 might not give back: leading zeros, and integers from 2^53 on.

    Args:
        label_column: title of the column with the classes; a warning says if there is none.

    Raises:
        ValueError: no table, or no column of numbers.
    """
    return _read_table(path, label_column, path.stat().st_mtime_ns)


@lru_cache(2)
def _read_table(path: Path, label_column: str | None, changed: int) -> Table:
    with parsing(path):
        text = path.read_text(encoding="utf-8-sig")
        lines = text.strip("\r\n").splitlines(keepends=True) or [""]
        often = (each for each in "\t;|" if lines[0].count(each) == lines[-1].count(each) > 0)
        separator = "\t" if path.suffix.lower() == ".tsv" else next(often, ",")
        rows = [row for row in csv.reader(lines, delimiter=separator) if row]
        if _NUMBER_HERE in text or not rows:
            raise ValueError("it holds control characters, or nothing")
    width = max(map(len, rows))
    rows = [row + [""] * (width - len(row)) for row in rows]
    numbers = np.array([[_number(cell, separator) for cell in row] for row in rows])
    titled = not np.isfinite(numbers[0]).any()
    titles = rows[0] if titled else [f"column {i + 1}" for i in range(width)]
    body, numbers = rows[titled:], numbers[titled:]
    classes = titles.index(label_column) if label_column in titles else None
    if label_column is not None and classes is None:
        say(f"{path} has no column {label_column}, which data.label_column names: its rows have no classes")
    of_numbers = ~np.isinf(numbers).any(0) & (2 * np.isnan(numbers).sum(0) < len(body))
    chosen = [i for i, title in enumerate(titles) if of_numbers[i] and i != classes and not _TIMES.search(title)]
    whole_rows = np.isfinite(numbers[:, chosen]).all(1)
    if classes is not None:
        whole_rows &= ~np.isnan(numbers[:, classes])
    kept = np.flatnonzero(whole_rows)
    if not chosen or not len(kept):
        raise ValueError(f"{path} has no column of numbers, or a gap in each row: {width} columns, {len(rows)} rows")
    labels = None if classes is None else tuple(body[n][classes].strip() for n in kept)
    others = [title for i, title in enumerate(titles) if i not in (*chosen, classes)]
    if others:
        say(f"{path}: left out, since they hold text or times: {', '.join(others)}")
    if len(kept) < len(body):
        say(f"{path}: left out, {counted(len(body) - len(kept), 'row')} with a gap")
    values = numbers[kept][:, chosen]
    whole = (all(body[n][i].strip().lstrip("+-").isdecimal() for n in kept) for i in chosen)
    kinds = ["int" if each else "float" for each in whole]
    for n, i in product(kept, chosen):
        body[n][i] = _NUMBER_HERE
    rest = io.StringIO()
    csv.writer(rest, delimiter=separator, lineterminator="\n").writerows(rows)
    columns = tuple((titles[i], kind) for i, kind in zip(chosen, kinds, strict=True))
    values = values.astype(np.float64 if "float" in kinds else np.int64)
    return Table(values, columns, rest.getvalue().encode(), tuple(kept.tolist()), bool(titled), labels)


def write_table(path: Path, values: NDArray[Any], columns: Sequence[tuple[str, str]], rest: bytes) -> None:
    """Write values [rows, columns] into the table that `rest` was made of.

    Raises:
        ValueError: it is not the rest of such a table.
    """
    rows = values.reshape(-1, len(columns)).tolist()
    numbers = [f"{each:.0f}" if kind == "int" else str(each) for row in rows for each, (_, kind) in zip(row, columns)]
    parts = rest.decode().split(_NUMBER_HERE)
    if len(parts) != len(numbers) + 1:
        raise ValueError(f"a table of {len(parts) - 1} numbers, not of {len(numbers)}")
    text = "".join(part + number for part, number in zip(parts, [*numbers, ""]))
    path.write_text(text, encoding="utf-8", newline="")


def _number(cell: str, separator: str) -> float:
    """Return the number in a cell, NaN for a gap, and infinity for text."""
    text = cell.strip()
    if text.lower() in _GAPS:
        return math.nan
    plain = text if separator == "," else text.replace(",", ".")
    number = float(plain) if _NUMBER.fullmatch(plain) else math.inf
    return math.inf if plain.lstrip("+-").isdecimal() and abs(number) >= 1 << 53 else number
