"""Sources of examples that read numbers, categories and a target from CSV files.

A column is numeric if all its entries are numbers. Any other column contains categories, which are
numbered in sorted order. If `like` is given, the columns and codes of an earlier table are used, so
that both files have the same codes.
"""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from toile.engine.file_reader import guarded, unreadable
from toile.engine.source import here
from toile.engine.suggestions import did_you_mean
from toile.training.array_files import StrPath, check_file
from toile.training.loader import ArraySource

__all__ = ["Column", "CsvTable", "csv_table"]

MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "?"})
_LARGEST = float(np.finfo(np.float32).max)
_POLICIES = ("error", "mean", "nan", "drop")


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Args:
        name: the name of the column in the header.
        categories: the names of the categories, in the order of their codes; None for a numeric
            column. The name "" stands for missing values.
        mean: the mean of a numeric column, ignoring missing values.

    >>> Column("city", ("Bern", "Oslo")).categories[1]
    'Oslo'
    """

    name: str
    categories: tuple[str, ...] | None = None
    mean: float = math.nan


class CsvTable(ArraySource):
    """The source of examples that `csv_table` returns.

    Args:
        arrays: a dict of the arrays `numbers`, `categories` and, if there is a target, `target`.
        columns: the input columns, in the order of the file.
        target: the column to predict; None if there is no such column.

    >>> import pathlib, tempfile
    >>> from toile.training import datasets
    >>> file = pathlib.Path(tempfile.mkdtemp(), "plants.csv")
    >>> _ = file.write_text("height,kind\\n1.5,fern\\n0.5,moss\\n")
    >>> table = datasets.csv_table(file, target="kind")
    >>> table.numbers, table.target.categories
    (('height',), ('fern', 'moss'))
    """

    def __init__(
        self, arrays: dict[str, np.ndarray], columns: tuple[Column, ...], target: Column | None
    ):
        super().__init__(arrays)
        self.columns, self.target = columns, target

    @property
    def numbers(self) -> tuple[str, ...]:
        """The names of the numeric columns, in the order of the array `numbers`."""
        return tuple(c.name for c in self.columns if c.categories is None)

    @property
    def categories(self) -> dict[str, tuple[str, ...]]:
        """The names of each column's categories, in the order of their codes."""
        return {c.name: c.categories for c in self.columns if c.categories is not None}

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays `numbers`, `categories` and `target`, with all rows."""
        return self.take(np.arange(len(self)))


def csv_table(
    path: StrPath, *, target: str | None = None, ignore: Sequence[str] = (),
    categories: Sequence[str] = (), missing: Literal["error", "mean", "nan", "drop"] = "error",
    delimiter: str = ",", like: CsvTable | None = None,
) -> CsvTable:
    """Read a CSV file with a header as a source of examples.

    A column whose entries are all numbers is numeric. The entries of all other columns, and of the
    columns listed in `categories`, are converted to integer codes. An entry is missing if it is
    empty or is NA, N/A, NaN, null, None or ?, in upper or lower case. In a column of categories,
    missing values form a separate category named "".

    Args:
        path: path of the file, which must be encoded in UTF-8.
        target: the column to predict. It must have a value in every row, unless `missing` is
            `"drop"`.
        ignore: columns to leave out, such as names and identifiers.
        categories: numeric columns to treat as categories, such as postal codes.
        missing: how to treat missing numbers. `"error"` raises an error that names the first line
            with a missing number. `"mean"` replaces missing numbers with the mean of the column.
            `"nan"` replaces them with NaN. `"drop"` leaves out the rows in which they occur.
        delimiter: the character between fields.
        like: a table, such as the training data, whose columns, codes and means are also used for
            this file. If `like` is given, it replaces `target`, `ignore` and `categories`.

    Returns:
        A source for a Loader. Its batches contain `numbers` (float32 [batch, n]), `categories`
        (int32 [batch, m]) and `target` (float32 or int32 [batch]). The names of columns and
        categories are in the attributes `numbers`, `categories` and `target` of the source.

    Raises:
        FileNotFoundError: the file does not exist.
        UnreadableFileError: a row has more or fewer fields than the header, or the file is not
            text.
        ValueError: a named column does not exist, or values are missing.

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "houses.csv")
    >>> _ = path.write_text("area,city,price\\n50,Oslo,300\\n80,Bern,550\\n62,Oslo,340\\n")
    >>> table = csv_table(path, target="price")
    >>> table.numbers, table.categories
    (('area',), {'city': ('Bern', 'Oslo')})
    >>> batch = table.take(np.array([0, 1]))
    >>> batch["categories"].tolist(), batch["target"].tolist()
    ([[1], [0]], [300.0, 550.0])
    """
    if missing not in _POLICIES:
        raise ValueError(f"csv_table: needed missing in {_POLICIES}, got {missing!r}{here()}")
    file = _read(path, delimiter)
    if like is not None:
        columns, goal = like.columns, like.target
        file.check([c.name for c in (*columns, *([goal] if goal else []))])
    else:
        columns, goal = file.columns(target, ignore, categories)
    if goal is not None:
        file.check_target(goal.name, missing)
    kept = file.kept(columns, goal) if missing == "drop" else np.arange(len(file.rows))
    if not len(kept):
        raise ValueError(f"csv_table: needed rows, got none in {path}{here()}")

    def values(column: Column) -> np.ndarray:
        is_number = column.categories is None
        return file.numbers(column, kept, missing) if is_number else file.codes(column, kept)

    numbers = [values(c) for c in columns if c.categories is None]
    codes = [values(c) for c in columns if c.categories is not None]
    arrays = {
        "numbers": _stacked(numbers, len(kept), np.float32),
        "categories": _stacked(codes, len(kept), np.int32),
    }
    if goal is not None:
        arrays["target"] = values(goal)
    return CsvTable(arrays, columns, goal)


def _stacked(columns: list[np.ndarray], rows: int, dtype: Any) -> np.ndarray:
    return np.stack(columns, axis=1) if columns else np.zeros((rows, 0), dtype)


@dataclass(frozen=True)
class _File:
    """The fields of a file by row, with the line on which each row ends."""

    path: str
    names: list[str]
    rows: list[list[str]]
    lines: list[int]

    def check(self, wanted: Collection[str]) -> None:
        """Raise ValueError unless all of these columns exist."""
        for name in wanted:
            if name not in self.names:
                raise ValueError(
                    f"csv_table: needed one of the columns of {self.path}, "
                    f"{', '.join(self.names)}, got {name!r}{did_you_mean(name, self.names)}{here()}"
                )

    def fields(self, name: str) -> list[str]:
        """The entries of a column; "" for missing entries."""
        at = self.names.index(name)
        return ["" if row[at].lower() in MISSING else row[at] for row in self.rows]

    def columns(
        self, target: str | None, ignore: Sequence[str], categories: Sequence[str]
    ) -> tuple[tuple[Column, ...], Column | None]:
        """The input columns, and the column to predict."""
        self.check([*ignore, *categories, *([] if target is None else [target])])
        wanted = [name for name in self.names if name not in ignore and name != target]
        goal = None if target is None else self.column(target, target in categories)
        return tuple(self.column(name, name in categories) for name in wanted), goal

    def column(self, name: str, as_categories: bool) -> Column:
        """Describe a column, which has numbers or categories."""
        fields = self.fields(name)
        values = [_number(x) for x in fields if x]
        if not as_categories and None not in values:
            finite = [x for x in values if x is not None and abs(x) <= _LARGEST]
            return Column(name, mean=math.fsum(finite) / len(finite) if finite else math.nan)
        is_numeric = None not in values
        order = (lambda x: (x != "", _number(x) or 0.0, x)) if is_numeric else None
        return Column(name, tuple(sorted(set(fields), key=order)))

    def check_target(self, name: str, missing: str) -> None:
        """Raise ValueError if a target is missing: it cannot be filled in."""
        absent = [i for i, x in enumerate(self.fields(name)) if not x]
        if absent and missing != "drop":
            raise ValueError(
                f"csv_table: needed a value of the target {name!r} in every row, got none in line "
                f"{self.lines[absent[0]]} of {self.path} (missing='drop' leaves out the "
                f"{len(absent)} rows without one){here()}"
            )

    def kept(self, columns: tuple[Column, ...], goal: Column | None) -> np.ndarray:
        """The rows in which no number and no target is missing."""
        needed = [c.name for c in columns if c.categories is None] + ([goal.name] if goal else [])
        present = np.ones(len(self.rows), bool)
        for name in needed:
            present &= np.array([bool(x) for x in self.fields(name)], bool)
        return np.flatnonzero(present)

    def numbers(self, column: Column, kept: np.ndarray, missing: str) -> np.ndarray:
        """A column of numbers, with missing values filled in."""
        fields = self.fields(column.name)
        filling = column.mean if missing == "mean" else math.nan
        values = np.empty(len(kept), np.float32)
        for place, i in enumerate(kept.tolist()):
            value = _number(fields[i]) if fields[i] else filling
            if value is None:
                raise self._wrong(f"a number in the column {column.name!r}", fields[i], i)
            if _LARGEST < abs(value) < math.inf:
                needed = f"numbers that fit float32 in the column {column.name!r}"
                raise self._wrong(needed, fields[i], i)
            if not fields[i] and missing == "error":
                count = fields.count("")
                raise ValueError(
                    f"csv_table: needed a number in every row of the column {column.name!r}, got "
                    f"none in line {self.lines[i]} of {self.path}, the first of {count} "
                    f"(missing='mean', 'nan' or 'drop' accepts them){here()}"
                )
            values[place] = value
        if missing == "mean" and math.isnan(filling) and np.isnan(values).any():
            raise ValueError(
                f"csv_table: needed a number in the column {column.name!r} for its mean, got none "
                f"in {self.path} (ignore=[{column.name!r}] leaves it out){here()}"
            )
        return values

    def codes(self, column: Column, kept: np.ndarray) -> np.ndarray:
        """The integer codes of a column of categories."""
        fields, names = self.fields(column.name), column.categories or ()
        places = {name: code for code, name in enumerate(names)}
        codes = np.empty(len(kept), np.int32)
        for place, i in enumerate(kept.tolist()):
            code = places.get(fields[i])
            if code is None:
                needed = f"one of the {len(names)} categories of the column {column.name!r}"
                raise self._wrong(needed, fields[i], i)
            codes[place] = code
        return codes

    def _wrong(self, needed: str, field: str, row: int) -> ValueError:
        where = f"in line {self.lines[row]} of {self.path}"
        return ValueError(f"csv_table: needed {needed}, got {field[:60]!r} {where}{here()}")


def _number(text: str) -> float | None:
    """The number in a field; None if the field is not a number."""
    try:
        return None if "_" in text else float(text)
    except ValueError:
        return None


def _read(path: StrPath, delimiter: str) -> _File:
    """The fields of a CSV file, stripped; blank lines are left out."""
    check_file(path, "csv_table", "a CSV file")
    place = os.fspath(path)
    rows: list[list[str]] = []
    lines: list[int] = []
    with guarded("csv_table", "a CSV file in UTF-8", f" ({place})", also=(csv.Error,)):
        with open(path, newline="", encoding="utf-8-sig") as file:
            for row, line in _rows(file, delimiter):
                if rows and len(row) != len(rows[0]):
                    raise unreadable(
                        "csv_table", f"{len(rows[0])} fields, as the header has",
                        f"{len(row)} in line {line} of {place}",
                    )
                rows.append(row)
                lines.append(line)
    names = rows[0] if rows else []
    if not names or "" in names or len(set(names)) < len(names):
        raise unreadable(
            "csv_table", f"a header with different names in the first line of {place}",
            f"{', '.join(map(repr, names))[:200] or 'nothing'}",
        )
    return _File(place, names, rows[1:], lines[1:])


def _rows(file: Any, delimiter: str) -> Iterator[tuple[list[str], int]]:
    reader = csv.reader(file, delimiter=delimiter, strict=True)
    for row in reader:
        if row:
            yield [field.strip() for field in row], reader.line_num
