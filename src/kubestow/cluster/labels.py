"""Labels of nodes as columns of small numbers.

For each label key that anybody asks about there is one int32 column over the nodes: the number of the label's value in
that key's vocabulary, 0 where the node lacks the label. Values are numbered in order of appearance, so they can index
counters per topology domain directly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.columns import Column, Columns

__all__ = ["MISSING", "LabelColumn"]

#: The number that stands for "this node has no such label".
MISSING = 0


class LabelColumn:
    """The values of one label key: ``ids`` is int32 over the rows, ``values[id]`` the text (None for MISSING)."""

    def __init__(self, key: str, columns: Columns) -> None:
        self.key = key
        self.values: list[str | None] = [None]
        self._ids_by_value: dict[str, int] = {}
        self._column: Column = columns.new(np.int32)

    @property
    def ids(self) -> NDArray[np.int32]:
        """Value numbers, int32, one per row."""
        return self._column.shown

    def set(self, row: int, value: str | None) -> None:
        """Give a row its value, or none."""
        self._column.values[row] = MISSING if value is None else self._intern(value)

    def id_of(self, value: str) -> int | None:
        """The number of a value, None when no node ever had it."""
        return self._ids_by_value.get(value)

    def map(self, of: Callable[[str | None], Any], dtype: Any) -> NDArray[Any]:
        """A function of the label's value for every value number: index it with :attr:`ids`."""
        return np.fromiter((of(value) for value in self.values), dtype, len(self.values))

    def _intern(self, value: str) -> int:
        number = self._ids_by_value.get(value)
        if number is None:
            number = self._ids_by_value[value] = len(self.values)
            self.values.append(value)
        return number
