"""Columns: contiguous NumPy arrays with one entry per row of the node table, which grow and shrink together.

Everything that is kept per node (resources, labels, counters) is a column made by :meth:`Columns.new`. The owner of a
column need not follow nodes being added and removed: a new row starts with the column's fill value, and when a row is
removed the last row takes its place in every column.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar
from weakref import WeakSet

import numpy as np
from numpy.typing import DTypeLike, NDArray

from kubestow.api.core import ContainerImage
from kubestow.api.formats.int64 import ORDINARY, as_int64, saturated

T = TypeVar("T", bound=Hashable)

_FIRST_CAPACITY = 64


class Column:
    """An array over the rows. ``values`` is a writable view of it.

    That and the other views are replaced whenever the number of rows changes.
    """

    def __init__(self, size: int, capacity: int, dtype: DTypeLike, fill: int | float | bool) -> None:
        self._fill = fill
        self._storage: NDArray[Any] = np.full(capacity, fill, dtype)
        self.values: NDArray[Any] = self._storage[:size]

    @cached_property
    def readonly(self) -> NDArray[Any]:
        """A view that cannot be written to."""
        return _read_only(self.values)

    @cached_property
    def entries(self) -> memoryview[Any]:
        """A view for single entries, as Python numbers: they take a sixth of the time of those of an array."""
        return self.values.data

    def add(self, row: int, amount: int) -> None:
        """Add to one entry of an int64 column; a sum beyond 2**63 wraps around as in Go (semantics 7.5)."""
        self.entries[row] = as_int64(self.entries[row] + amount)

    def _resize(self, size: int, capacity: int) -> None:
        if capacity != len(self._storage):
            grown = np.full(capacity, self._fill, self._storage.dtype)
            grown[: len(self._storage)] = self._storage
            self._storage = grown
        self.values = self._storage[:size]
        self.__dict__.pop("readonly", None)
        self.__dict__.pop("entries", None)

    def _move(self, source: int, target: int) -> None:
        self._storage[target] = self._storage[source]
        self._storage[source] = self._fill


def _read_only(values: NDArray[Any]) -> NDArray[Any]:
    view = values.view()
    view.flags.writeable = False
    return view


class SumColumn(Column):
    """A column of sums (int64) that saturate at 2**63 - 1 and its negative, and are exact again when parts leave."""

    def __init__(self, size: int, capacity: int) -> None:
        super().__init__(size, capacity, np.int64, 0)
        #: While any sum is beyond 64 bits, the sums are ``_carries`` * 2**64 + ``_remainders``.
        self._carries: Column | None = None
        self._remainders: Column | None = None

    def exact(self, row: int) -> int:
        """The sum of a row, which may need more than 64 bits."""
        if self._carries is None or self._remainders is None:
            return int(self.entries[row])
        return int(self._carries.entries[row]) * 2**64 + int(self._remainders.entries[row])

    def add_part(self, row: int, amount: int, columns: Columns) -> bool:
        """Add to the sum of a row; whether it is now negative or beyond :data:`ORDINARY`."""
        entries = self.entries
        total = entries[row] + amount
        if 0 <= total <= ORDINARY and self._carries is None:
            entries[row] = total
            return False
        if self._carries is None and total == saturated(total):
            entries[row] = total
        else:
            total = self.exact(row) + amount
            self._set(row, total, columns)
        return not 0 <= total <= ORDINARY

    def _set(self, row: int, total: int, columns: Columns) -> None:
        if self._carries is None or self._remainders is None:
            self._carries, self._remainders = columns.new(np.int64), columns.new(np.int64)
            self._remainders.values[:] = self.values
        remainder, had_carry = as_int64(total), self._carries.entries[row] != 0
        self._remainders.values[row], self._carries.values[row] = remainder, (total - remainder) // 2**64
        self.values[row] = saturated(total)
        if had_carry and not self._carries.values.any() and (self._remainders.values == self.values).all():
            self._carries = self._remainders = None


class Columns:
    """All columns over one set of rows; ``size`` is the number of rows."""

    def __init__(self) -> None:
        self.size = 0
        self._capacity = _FIRST_CAPACITY
        self._columns: WeakSet[Column] = WeakSet()
        self._zeros: NDArray[np.int64] = np.zeros(0, np.int64)

    def __len__(self) -> int:
        """The number of columns that something refers to."""
        return len(self._columns)

    def new(self, dtype: DTypeLike, fill: int | float | bool = 0) -> Column:
        """A new column, filled with its fill value. It is dropped when nothing else refers to it."""
        column = Column(self.size, self._capacity, dtype, fill)
        self._columns.add(column)
        return column

    def new_sums(self) -> SumColumn:
        """A new column of sums, filled with zeros."""
        column = SumColumn(self.size, self._capacity)
        self._columns.add(column)
        return column

    def zeros(self, size: int) -> NDArray[np.int64]:
        """An array of zeros that is not to be changed, int64: all calls return views of the same one."""
        if size > len(self._zeros):
            self._zeros = _read_only(np.zeros(2 * size, np.int64))
        return self._zeros[:size]

    def append_row(self) -> int:
        """Append a row to every column; its number is returned."""
        row, self.size = self.size, self.size + 1
        while self.size > self._capacity:
            self._capacity *= 2
        for column in self._columns:
            column._resize(self.size, self._capacity)
        return row

    def remove_row(self, row: int) -> int:
        """Remove a row by moving the last row into its place; the former number of the last row is returned."""
        last = self.size - 1
        self.size = last
        for column in self._columns:
            column._move(last, row)
            column._resize(last, self._capacity)
        return last


class InternedColumn(Generic[T]):
    """A column of values with few distinct ones, such as lists of taints, stored as numbers.

    ``values[number]`` is a value; number 0 is that of new rows. Setting a value that no row had may renumber the
    others, because values that no row has any more are dropped once they are the majority.
    """

    def __init__(self, columns: Columns, default: T) -> None:
        self.values: list[T] = [default]
        self._numbers: dict[T, int] = {default: 0}
        self._column = columns.new(np.int32)

    def set(self, row: int, value: T) -> None:
        """Set the value of a row."""
        number = self._numbers.get(value)
        if number is None:
            number = self._add(value)
        self._column.values[row] = number

    def map(self, function: Callable[[T], Any], dtype: DTypeLike, rows: slice | NDArray[np.intp]) -> NDArray[Any]:
        """A function of the values of some rows, called once per distinct value; one entry per row."""
        by_number: NDArray[Any] = np.fromiter((function(value) for value in self.values), dtype, len(self.values))
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
        self.values = [value for value, is_used in zip(self.values, used.tolist(), strict=True) if is_used]
        self._numbers = {value: number for number, value in enumerate(self.values)}


#: The id of nodes without the label.
MISSING = 0


class LabelColumn(InternedColumn[str | None]):
    """The values of one label key: ``ids`` are int32, one per row, and ``values[id]`` the text (None for MISSING).

    The ids also index sums per topology domain. They are valid for one revision of the node table
    (:attr:`kubestow.cluster.nodes.table.NodeTable.revision`).
    """

    def __init__(self, key: str, columns: Columns) -> None:
        super().__init__(columns, None)
        self.key = key

    @property
    def ids(self) -> NDArray[np.int32]:
        """Value numbers, int32, one per row; read-only."""
        return self._column.readonly

    def id_of(self, value: str) -> int | None:
        """The number of a value, None when no node has it."""
        return self._numbers.get(value)


def normalized(name: str) -> str:
    """An image name with its tag: ``nginx`` is ``nginx:latest`` (semantics 8.10)."""
    return name if name.rfind(":") > name.rfind("/") else f"{name}:latest"


@dataclass(slots=True)
class Image:
    """An image: its ``size`` in bytes, the number of ``nodes`` that have it, and which (``on``: bool, one per row)."""

    size: int
    on: Column
    nodes: int = 0


class Images:
    """All images by name. The size is that which the first node with an image reports (QUIRK, semantics 7.3)."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._images: dict[str, Image] = {}

    def get(self, name: str) -> Image | None:
        """The image of exactly this name, None when no node has it."""
        return self._images.get(name)

    def add(self, row: int, images: Iterable[ContainerImage]) -> None:
        """Add the images of a row."""
        for image in images:
            for name in image.names:
                known = self._images.get(name)
                if known is None:
                    known = self._images[name] = Image(image.size_bytes, self._columns.new(np.bool_))
                if not known.on.values[row]:
                    known.on.values[row] = True
                    known.nodes += 1

    def remove(self, row: int, images: Iterable[ContainerImage]) -> None:
        """Remove the images of a row."""
        for image in images:
            for name in image.names:
                known = self._images.get(name)
                if known is not None and known.on.values[row]:
                    known.on.values[row] = False
                    known.nodes -= 1
                    if not known.nodes:
                        del self._images[name]
