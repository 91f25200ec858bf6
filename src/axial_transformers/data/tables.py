"""Tables: .csv and .tsv files, of which the columns of numbers are read, and written back among what is left out."""

import csv
import io
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axial_transformers.data.parsing import parsing, say
from axial_transformers.wording import counted

SUFFIXES = (".csv", ".tsv")
_LOOKED_AT = 20
_GAPS = {"", "na", "n/a", "nan", "null", "none", "-", "?"}
_TIMES = re.compile(r"\b(time|date|timestamp|datetime)\b", re.IGNORECASE)
_NUMBER = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")
_MAX_WHOLE = 1 << 53
_NUMBER_HERE = "\x1a"
"""Marks a cell whose number is among the values."""


@dataclass(frozen=True, eq=False)
class Table:
    """The numbers of a table."""

    values: NDArray[Any]
    """[rows, columns]: int64 if all are whole, else float64."""
    names: tuple[str, ...]
    """Of the columns."""
    whole: tuple[bool, ...]
    """True for columns of integers."""
    rest: bytes
    """The separator, and the table with a mark in place of each number; see `write_table`."""


def read_table(path: Path) -> Table:
    """Do as `_read_table`, once for a file that stays as it is."""
    return _read_table(path, path.stat().st_mtime_ns)


@lru_cache(2)
def _read_table(path: Path, changed: int) -> Table:
    """Return the columns of numbers in the rows without a gap; a warning says what else there is.

    A first row without numbers has the titles. Columns of times are left out: what has such a title, or is no number.

    Raises:
        ValueError: no table, or no such column.
    """
    with parsing(path):
        text = path.read_text(encoding="utf-8-sig")
        separator = "\t" if path.suffix.lower() == ".tsv" else _separator(text)
        rows = [row for row in csv.reader(text.splitlines(keepends=True), delimiter=separator) if row]
        if _NUMBER_HERE in text:
            raise ValueError("it holds control characters")
    width = max(map(len, rows), default=0)
    rows = [row + [""] * (width - len(row)) for row in rows]
    numbers = [[_number(cell, separator) for cell in row] for row in rows]
    titled = bool(rows) and not any(isinstance(number, int | float) for number in numbers[0])
    titles = [rows[0][i] if titled else f"column {i + 1}" for i in range(width)]
    body = range(titled, len(rows))
    chosen = [i for i in range(width) if not _TIMES.search(titles[i]) and _is_of_numbers([numbers[n][i] for n in body])]
    kept = [n for n in body if all(isinstance(numbers[n][i], int | float) for i in chosen)]
    if not chosen or not kept:
        raise ValueError(f"{path} has no column of numbers, or a gap in each row: {width} columns, {len(rows)} rows")
    others = [title for i, title in enumerate(titles) if i not in chosen]
    left_out = [f"columns that are no numbers or times ({', '.join(others)})"] * bool(others)
    left_out += [f"{counted(len(body) - len(kept), 'row')} with a gap"] * (len(kept) < len(body))
    if left_out:
        say(f"{path}: left out, {' and '.join(left_out)}")
    whole = tuple(all(isinstance(numbers[n][i], int) for n in kept) for i in chosen)
    values = np.array([[numbers[n][i] for i in chosen] for n in kept], np.int64 if all(whole) else np.float64)
    for n, row in zip(kept, values.tolist(), strict=True):
        for i, is_whole, number in zip(chosen, whole, row, strict=True):
            rows[n][i] = _mark(rows[n][i].strip(), _text(number, is_whole), separator)
    rest = io.StringIO()
    csv.writer(rest, lineterminator="\n").writerows([[separator], *rows])
    return Table(values, tuple(titles[i] for i in chosen), whole, rest.getvalue().encode())


def write_table(path: Path, values: NDArray[Any], whole: Sequence[bool], rest: bytes) -> None:
    """Write values [rows, columns] into the table that `rest` was made of.

    Raises:
        ValueError: it is not the rest of such a table.
    """
    try:
        (separator,), *rows = csv.reader(io.StringIO(rest.decode()))
        marked = [(row, i) for row in rows for i, cell in enumerate(row) if cell.startswith(_NUMBER_HERE)]
        kinds = (whole[n % len(whole)] for n in range(values.size))
        for (row, i), number, is_whole in zip(marked, values.reshape(-1).tolist(), kinds, strict=True):
            row[i] = row[i].removeprefix(_NUMBER_HERE) or _text(number, is_whole)
        with path.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, delimiter=separator, lineterminator="\n").writerows(rows)
    except (csv.Error, TypeError, ZeroDivisionError, OverflowError) as error:
        raise ValueError(f"no such text: {error}") from error


def _text(number: float, is_whole: bool) -> str:
    return str(int(number) if is_whole else number)


def _mark(cell: str, text: str, separator: str) -> str:
    """Return the mark of a number, behind which the cell stays if the text of the number is not as good."""
    plain = cell if separator == "," else cell.replace(",", ".")
    same = Decimal(plain) == Decimal(text) and not re.match(r"[-+]?0\d", plain)
    return _NUMBER_HERE if same else _NUMBER_HERE + cell


def _separator(text: str) -> str:
    """Return the separator that divides the first lines into equal numbers of cells."""
    lines = text.splitlines()[:_LOOKED_AT]
    for separator in ("\t", ";", "|"):
        counts = {len(row) for row in csv.reader(lines, delimiter=separator) if row}
        if len(counts) == 1 and counts != {1}:
            return separator
    return ","


def _number(cell: str, separator: str) -> int | float | str | None:
    """Return the number in a cell, None for a gap, or another text."""
    text = cell.strip()
    if text.lower() in _GAPS:
        return None
    plain = text if separator == "," else text.replace(",", ".")
    if not _NUMBER.fullmatch(plain):
        return text
    number = float(plain)
    whole = re.fullmatch(r"[-+]?\d+", plain) and abs(number) < _MAX_WHOLE
    return int(plain) if whole else number if math.isfinite(number) else text


def _is_of_numbers(column: Sequence[Any]) -> bool:
    gaps = column.count(None)
    return 2 * gaps < len(column) and all(isinstance(number, int | float | None) for number in column)
