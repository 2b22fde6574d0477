"""Node labels as columns of small numbers.

A label key that is in use has an int32 column: the number of each node's value among the distinct values of that key,
or 0 if the node lacks the label. The numbers also index sums per topology domain. They are valid for one revision of
the node table (:attr:`kubestow.cluster.nodes.table.NodeTable.revision`).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.nodes.columns import Columns, InternedColumn

__all__ = ["MISSING", "LabelColumn"]

#: The number of nodes without the label.
MISSING = 0


class LabelColumn(InternedColumn[str | None]):
    """The values of one label key: ``ids`` are int32, one per row, and ``values[id]`` the text (None for MISSING)."""

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
