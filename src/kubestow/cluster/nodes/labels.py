"""Labels of nodes as columns of small numbers.

For each label key that anybody asks about there is one int32 column over the nodes: the number of the label's value in
that key's vocabulary, 0 where the node lacks the label. The numbers index counters per topology domain directly. They
hold for one revision of the node table.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.nodes.columns import Columns, InternedColumn

__all__ = ["MISSING", "LabelColumn"]

#: The number that stands for "this node has no such label".
MISSING = 0


class LabelColumn(InternedColumn[str | None]):
    """The values of one label key: ``ids`` is int32 over the rows, ``values[id]`` the text (None for MISSING)."""

    def __init__(self, key: str, columns: Columns) -> None:
        super().__init__(columns, None)
        self.key = key

    @property
    def ids(self) -> NDArray[np.int32]:
        """Value numbers, int32, one per row."""
        return self._column.readonly

    def id_of(self, value: str) -> int | None:
        """The number of a value, None when no node has it."""
        return self._numbers.get(value)
