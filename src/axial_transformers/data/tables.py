"""Tables: .csv and .tsv files, whose columns of numbers are read, by the extra `tables`."""

import csv
import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from axial_transformers.data.errors import ParsingError, parsing, say
from axial_transformers.storage import import_extra
from axial_transformers.wording import counted

SUFFIXES = (".csv", ".tsv")
_GAPS = {"", "na", "n/a", "nan", "null", "none", "-", "?"}
_TIMES = re.compile(r"\b(time|date|timestamp|datetime)\b", re.IGNORECASE)
_NUMBER = re.compile(r"[-+]?(?!0[0-9])([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")
_THOUSANDS = re.compile(r"[-+]?[1-9][0-9]{0,2}(,[0-9]{3})+")


class Table(NamedTuple):
    """The numbers of a table."""

    values: NDArray[Any]
    """[rows, columns]: int64 if all are whole, else float64."""
    columns: tuple[tuple[str, str], ...]
    """Title and type of each, int or float; the titles are empty where the first row has none."""
    numbers: NDArray[np.int64]
    """The number of each row in the file, from 0, without the titles and empty lines."""
    classes: NDArray[Any] | None
    """The class of each row, an integer if all are, else a name; None: no column is named for them."""

    @property
    def titles(self) -> tuple[str, ...] | None:
        """Return the titles of the columns; None without a first row of them."""
        titles = tuple(title for title, _ in self.columns)
        return titles if any(titles) else None


def read_table(path: Path, label_column: str | None = None, decimal: str | None = None) -> Table:
    """Return the columns of numbers in the rows without a gap; a warning says what else there is.

    A first row without numbers, or with `label_column`, has the titles. Columns of times are left out, by their titles,
    and those with text. Text is also what float64 might not give back: leading zeros, and integers from 2^53 on.

    Args:
        label_column: title of the column with the classes; a warning says if there is none.
        decimal: what stands before the decimals, a point or a comma. None: a point; or a comma in whole columns, where
            the separator is another one.

    Raises:
        ValueError: no table, or no column of numbers; and a column whose commas may stand before decimals or thousands.
    """
    with parsing(path):
        marks, cells = _read_cells(path, decimal)
    first = cells[0].tolist()
    has_numbers = any(_NUMBER.fullmatch(_with_point(cell, mark)) for cell in first for mark in marks)
    titled = not has_numbers or label_column in first
    if not titled:
        say(f"{path}: the first row holds numbers, so it is taken as data, and columns have no titles")
    titles = first if titled else [f"column {i + 1}" for i in range(cells.shape[1])]
    classes: NDArray[Any] | None = None
    columns: list[_Column] = []
    with_decimals: dict[str, str] = {}  # the title of a column, by the mark before its decimals
    others: list[str] = []
    for title, column in zip(titles, cells[titled:].T):
        if title == label_column:
            classes = column
            continue
        numbers = None if _TIMES.search(title) else _read_numbers(f"{path}: column {title}", column, marks)
        if numbers is None:
            others.append(title)
        else:
            columns.append(_Column(title if titled else "", *numbers[:2]))
            with_decimals[numbers[2]] = title
    _require_one_mark(path, with_decimals)
    if label_column is not None and classes is None:
        say(f"{path} has no column {label_column}, which data.label_column names: its rows have no classes")
    kept = _rows_without_gap(columns, classes)
    if not kept.any():
        raise ParsingError(f"{path} has no column of numbers, or a gap in each row: its shape is {list(cells.shape)}")
    if others:
        say(f"{path}: left out, since they hold text or times: {', '.join(others)}")
    if not kept.all():
        say(f"{path}: left out, {counted(int((~kept).sum()), 'row')} with a gap")
    return _join_columns(columns, classes, kept)


def _require_one_mark(path: Path, titles: Mapping[str, str]) -> None:
    """Raise ParsingError if one column has a comma before its decimals, and another a point.

    Args:
        titles: of a column for each mark.
    """
    if {".", ","} <= titles.keys():
        raise ParsingError(
            f"{path} has numbers with a comma in {titles[',']}, with a point in {titles['.']}: set data.decimal to what"
            " stands before decimals; the columns with the other are left out"
        )


class _Column(NamedTuple):
    title: str
    kind: str
    """int or float."""
    numbers: NDArray[np.float64]
    """NaN for gaps."""


def _rows_without_gap(columns: Sequence[_Column], classes: NDArray[Any] | None) -> NDArray[np.bool_]:
    """Return which rows have a number in each column, and a class if there are classes; of no column, none."""
    if not columns:
        return np.zeros(1, np.bool_)
    kept = np.asarray(np.isfinite([column.numbers for column in columns]).all(axis=0))
    return kept if classes is None else kept & _is_known(classes)


def _join_columns(columns: Sequence[_Column], classes: NDArray[Any] | None, kept: NDArray[np.bool_]) -> Table:
    """Return the table of some rows; classes are numbers if all are."""
    if classes is not None:
        are_numbers = all(map(str.isdecimal, classes[kept]))
        classes = classes[kept].astype(np.int64 if are_numbers else str)
    is_whole = all(column.kind == "int" for column in columns)
    values = np.stack([column.numbers for column in columns], axis=1)[kept]
    return Table(
        values=values.astype(np.int64 if is_whole else np.float64),
        columns=tuple((column.title, column.kind) for column in columns),
        numbers=np.flatnonzero(kept),
        classes=classes,
    )


def write_table(path: Path, values: NDArray[Any], columns: Sequence[tuple[str, str]]) -> None:
    """Write values [rows, columns] and the titles of the columns, if there are any; separators are those of the suffix.

    Raises:
        ValueError: values of another shape.
    """
    titles = [title for title, _ in columns]
    if values.shape[1:] != (len(columns),):
        raise ValueError(f"values of shape {list(values.shape)}, not of {len(columns)} columns")
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter="\t" if path.suffix.lower() == ".tsv" else ",", lineterminator="\n")
        if any(titles):
            writer.writerow(titles)
        for row in values.tolist():
            writer.writerow(f"{number:.0f}" if kind == "int" else number for number, (_, kind) in zip(row, columns))


def _read_cells(path: Path, decimal: str | None) -> tuple[str, NDArray[Any]]:
    """Return the marks that may stand before decimals, and the text of all cells [rows, columns]."""
    pandas = import_extra("tables", "pandas", path)
    text = path.read_bytes().decode("utf-8-sig").replace("\r\n", "\n")
    end = "\n" if "\n" in text else "\r"
    lines = text.strip("\r\n").split(end)
    separator = _find_separator(path, lines[0], lines[-1])
    cells = pandas.read_csv(
        io.StringIO(text),
        sep=separator,
        lineterminator=end,
        header=None,
        dtype=object,  # pandas would guess types by parts
        keep_default_na=False,
    )
    marks = decimal or ("." if separator == "," else ".,")
    return marks, np.vectorize(str.strip, otypes=[object])(cells.to_numpy())


def _find_separator(path: Path, first: str, last: str) -> str:
    """Return a tab for .tsv, else what the first and the last line have equally often, else a comma."""
    if path.suffix.lower() == ".tsv":
        return "\t"
    for candidate in "\t;|":
        if 0 < first.count(candidate) == last.count(candidate):
            return candidate
    return ","


def _read_numbers(where: str, column: NDArray[Any], marks: str) -> tuple[str, NDArray[np.float64], str] | None:
    """Return int or float, the numbers of cells, NaN for gaps, and the mark before decimals, "" where there are none.

    None for text, or where half of the cells are gaps.
    """
    known = _is_known(column)
    cells = column[known].tolist()
    if 2 * len(cells) <= len(column):
        return None
    for mark in marks:
        plain = [_with_point(cell, mark) for cell in cells]
        if not all(map(_NUMBER.fullmatch, plain)):
            continue
        with_comma = [cell for cell in cells if "," in cell]
        if len(marks) > 1 and with_comma and all(map(_THOUSANDS.fullmatch, with_comma)):
            cell = with_comma[0]
            raise ParsingError(
                f"{where} holds {cell}, {cell.replace(',', '.')} or {cell.replace(',', '')}: set data.decimal to , for"
                " the first; . leaves the column out"
            )
        numbers = np.full(len(column), np.nan)
        numbers[known] = list(map(float, plain))
        whole = np.array([cell.lstrip("+-").isdecimal() for cell in plain])
        if (np.abs(numbers[known][whole]) >= 1 << 53).any():
            continue
        used = mark if any(mark in cell for cell in cells) else ""
        return "int" if whole.all() else "float", numbers, used
    return None


def _is_known(column: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which cells are no gaps."""
    return np.array([cell.lower() not in _GAPS for cell in column], np.bool_)


def _with_point(cell: str, mark: str) -> str:
    """Return a cell with a point before its decimals; no number where it has another mark."""
    return cell if mark == "." else cell.replace(".", "text").replace(mark, ".")
