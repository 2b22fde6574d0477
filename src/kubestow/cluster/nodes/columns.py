"""Columns: contiguous NumPy arrays, one entry per row of the node table, that grow and shrink together.

A :class:`Columns` owns them. Whoever keeps something per node (resources, labels, counters) asks it for a column and
never has to think of nodes coming and going: new rows start with the column's fill value, and when a row leaves, the
last one moves into the hole in every column at once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar
from weakref import WeakSet

import numpy as np
from numpy.typing import DTypeLike, NDArray

__all__ = ["Column", "Columns", "InternedColumn"]

T = TypeVar("T", bound=Hashable)

_FIRST_CAPACITY = 64


class Column:
    """One array over the rows. ``values`` is the live part, ``readonly`` the same for those who must not write to it.

    Both are new views after every change of size.
    """

    __slots__ = ("__weakref__", "_fill", "_storage", "readonly", "values")

    def __init__(self, size: int, capacity: int, dtype: DTypeLike, fill: int | float | bool) -> None:
        self._fill = fill
        self._storage: NDArray[Any] = np.full(capacity, fill, dtype)
        self.values: NDArray[Any] = self._storage[:size]
        self.readonly: NDArray[Any] = _read_only(self.values)

    def _resize(self, size: int, capacity: int) -> None:
        if capacity != len(self._storage):
            grown = np.full(capacity, self._fill, self._storage.dtype)
            grown[: len(self._storage)] = self._storage
            self._storage = grown
        self.values = self._storage[:size]
        self.readonly = _read_only(self.values)

    def _move(self, source: int, target: int) -> None:
        self._storage[target] = self._storage[source]
        self._storage[source] = self._fill


def _read_only(values: NDArray[Any]) -> NDArray[Any]:
    view = values.view()
    view.flags.writeable = False
    return view


class Columns:
    """All columns over one set of rows, and the number of rows they have."""

    def __init__(self) -> None:
        self.size = 0
        self._capacity = _FIRST_CAPACITY
        self._columns: WeakSet[Column] = WeakSet()

    def new(self, dtype: DTypeLike, fill: int | float | bool = 0) -> Column:
        """A column of the given type, every row at its fill value. It lives as long as somebody holds it."""
        column = Column(self.size, self._capacity, dtype, fill)
        self._columns.add(column)
        return column

    def append_row(self) -> int:
        """Add a row at the end of every column; its number is returned."""
        row, self.size = self.size, self.size + 1
        while self.size > self._capacity:
            self._capacity *= 2
        for column in self._columns:
            column._resize(self.size, self._capacity)
        return row

    def remove_row(self, row: int) -> int:
        """Take a row out by moving the last one into its place; the number that the last one had is returned."""
        last = self.size - 1
        self.size = last
        for column in self._columns:
            column._move(last, row)
            column._resize(last, self._capacity)
        return last


class InternedColumn(Generic[T]):
    """A column of values of which there are few distinct ones, such as lists of taints; held as their numbers.

    ``values[number]`` is a value; number 0 is the one that new rows have. A new value may renumber all others, because
    those that no row has any more are dropped once they are most: numbers hold until a row gets a value that none had.
    """

    def __init__(self, columns: Columns, nothing: T) -> None:
        self.values: list[T] = [nothing]
        self._numbers: dict[T, int] = {nothing: 0}
        self._column = columns.new(np.int32)

    def set(self, row: int, value: T) -> None:
        """Give a row its value."""
        number = self._numbers.get(value)
        if number is None:
            number = self._add(value)
        self._column.values[row] = number

    def map(self, of: Callable[[T], Any], dtype: DTypeLike, rows: slice | NDArray[np.intp]) -> NDArray[Any]:
        """A function of the value for some rows; called once per distinct value."""
        by_number: NDArray[Any] = np.fromiter((of(value) for value in self.values), dtype, len(self.values))
        return np.take(by_number, self._column.values[rows])

    def _add(self, value: T) -> int:
        if len(self.values) > _FIRST_CAPACITY + 2 * len(self._column.values):
            self._drop_unused()
        number = self._numbers[value] = len(self.values)
        self.values.append(value)
        return number

    def _drop_unused(self) -> None:
        used = np.zeros(len(self.values), np.bool_)
        used[0] = True
        used[self._column.values] = True
        self._column.values[:] = (np.cumsum(used, dtype=np.int32) - 1)[self._column.values]
        self.values = [value for value, stays in zip(self.values, used.tolist(), strict=True) if stays]
        self._numbers = {value: number for number, value in enumerate(self.values)}
