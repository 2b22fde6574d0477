"""Tables of traces: CSV files with or without a header, compressed or not, read row by row with their positions.

Every error names file, line and column and what was expected there.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kubestow.errors import InputError
from kubestow.files import MAX_DUMP, as_utf8, read_file

_OBJECT_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_INTEGER = re.compile(r"[0-9]{1,15}")
_NOT_IN_A_NAME = re.compile(r"[^a-z0-9]+")
#: How traces write that a cell has no value.
_MISSING = frozenset({"", "nan", "na", "none", "null", "unknown"})


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table with its position, for error messages."""

    path: Path
    line: int
    cells: dict[str, str]

    def text(self, column: str) -> str:
        """The text of a cell; empty if the file has no such column."""
        return self.cells.get(column, "").strip()

    def has(self, column: str) -> bool:
        """Whether a cell has a value: NaN, NA, None and NULL are none."""
        return self.text(column).lower() not in _MISSING

    def integer(self, column: str) -> int:
        """The value of a cell as a non-negative integer. Raises InputError."""
        text = self.text(column)
        if not _INTEGER.fullmatch(text):
            raise self.error(column, "an integer")
        return int(text)

    def number(self, column: str, *, default: float | None = None, least: float = 0.0) -> float:
        """The value of a cell as a finite number, at least ``least``. Raises InputError.

        ``default`` stands for a cell without a value; without it there must be one.
        """
        if default is not None and not self.has(column):
            return default
        try:
            value = float(self.text(column))
        except ValueError:
            value = math.nan
        if not (math.isfinite(value) and value >= least):
            raise self.error(column, "a number" if least == -math.inf else f"a number of at least {least:g}")
        return value

    def count(self, column: str, *, default: int | None = None, least: int = 0) -> int:
        """The value of a cell as an integer, which may be written as ``4.0``. Raises InputError."""
        value = self.number(column, default=default, least=least)
        if value != int(value):
            raise self.error(column, "an integer")
        return int(value)

    def moment(self, column: str) -> float:
        """A date and time in seconds since 1970; one without a time zone counts as UTC. Raises InputError."""
        try:
            return parse_moment(self.text(column))
        except ValueError:
            raise self.error(column, "a date and time such as 2020-06-09 18:41:01") from None

    def name(self, column: str) -> str:
        """The value of a cell as a Kubernetes object name. Raises InputError."""
        text = self.text(column)
        if not _OBJECT_NAME.fullmatch(text):
            raise self.error(column, 'a name of lower case letters, digits and "-"')
        return text

    def error(self, column: str, expected: str) -> InputError:
        """The error for an invalid cell."""
        problem = f"expected {expected}, got {self.text(column)!r}"
        return InputError(str(self.path), problem, place=f"line {self.line}, column {column}")


def parse_moment(text: str) -> float:
    """A date and time in seconds since 1970; one without a time zone counts as UTC. Raises ValueError."""
    moment = datetime.fromisoformat(text.strip())
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def object_name(text: str, *, prefix: str = "") -> str:
    """A Kubernetes object name of at most 50 characters that is close to a name in a trace."""
    cleaned = _NOT_IN_A_NAME.sub("-", text.lower()).strip("-")
    return f"{prefix}{cleaned}"[:50].strip("-") or "unnamed"


def rows(path: Path, columns: Sequence[str], *, names: Sequence[str] = (), unique: str = "") -> Iterator[Row]:
    """The rows of a CSV file that has at least these columns, and at least one row. Raises InputError.

    A table that is published without a header has ``names``, its columns in their order; a header that repeats them
    is skipped. ``unique`` is a column whose values may not occur twice.
    """
    with io.StringIO(read_text(path), newline="") as file:
        reader = csv.reader(file, strict=True)
        try:
            yield from _checked(path, reader, columns, list(names), unique)
        except csv.Error as error:
            raise InputError(str(path), f"invalid CSV: {error}", place=f"line {reader.line_num}") from None


def _checked(path: Path, reader: Any, columns: Sequence[str], header: list[str], unique: str) -> Iterator[Row]:
    expected = f"expected the columns {', '.join(columns)}"
    is_published_without = bool(header)
    if not is_published_without:
        header = [name.strip() for name in next(reader, [])]
        if not header:
            raise InputError(str(path), f"is empty, {expected}", place="line 1")
        for missing in (column for column in columns if column not in header):
            raise InputError(str(path), f"missing, {expected}", place=f"line 1, column {missing}")
    is_empty, seen = True, set[str]()
    for cells in reader:
        if not cells or (is_published_without and reader.line_num == 1 and [c.strip() for c in cells] == header):
            continue
        if len(cells) > len(header):
            raise InputError(str(path), "has more values than columns", place=f"line {reader.line_num}")
        row = Row(path, reader.line_num, dict(zip(header, cells, strict=False)))
        if len(cells) < len(header):
            for missing in (column for column in columns if column not in row.cells):
                raise InputError(str(path), "missing value", place=f"line {row.line}, column {missing}")
        if unique:
            if row.text(unique) in seen:
                raise row.error(unique, "a unique name")
            seen.add(row.text(unique))
        is_empty = False
        yield row
    if is_empty:
        raise InputError(str(path), "has a header but no rows", place="line 2")


def read_text(path: Path) -> str:
    """The text of a file of a trace, compressed or not. Raises InputError."""
    try:
        return as_utf8(read_file(path, limit=MAX_DUMP), str(path)).decode("utf-8")
    except UnicodeDecodeError:
        raise InputError(str(path), "not UTF-8 text") from None


def find_table(folder: Path, *patterns: str, is_required: bool = True) -> list[Path]:
    """The files of one table in a folder, in order of their names. Raises InputError if there is none.

    The first pattern that matches counts, of which ``.gz`` is no part.
    """
    if not folder.is_dir():
        raise InputError(str(folder), "no such directory, expected the files of the trace")
    for pattern in patterns:
        found = sorted({*folder.glob(pattern), *folder.glob(f"{pattern}.gz")})
        if found:
            return found
    if is_required:
        raise InputError(str(folder), f"has no file {' or '.join(patterns)}, which the trace should have")
    return []
