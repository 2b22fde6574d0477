"""The totals of all rows for a pod, and which of them are the highest, kept while single rows change."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

BestRows: TypeAlias = "NDArray[np.intp] | array[int]"
"""The rows with the highest total, in order, as 64-bit integers."""

INFEASIBLE = int(np.iinfo(np.int64).min)
"""The total of rows that are not feasible. Weights may be negative, and so may totals."""


class RowTotals:
    """The total of each row, int64."""

    def __init__(self) -> None:
        self.values: NDArray[np.int64] = np.zeros(0, np.int64)
        self._entries = self.values.data
        #: The highest total and the rows that have it; None when they have to be searched for.
        self._highest = INFEASIBLE
        self._best: BestRows | None = None

    def replace(self, values: NDArray[np.int64]) -> None:
        """Take other totals of all rows, int64, which belong to this object from now on."""
        self.values, self._entries, self._best = values, values.data, None

    def update(self, rows: Sequence[int], totals: Sequence[int]) -> None:
        """Replace the totals of some rows."""
        entries = self._entries
        for row, total in zip(rows, totals, strict=True):
            earlier = entries[row]
            if total != earlier:
                entries[row] = total
                if self._best is not None and (total >= self._highest or earlier == self._highest):
                    self._best = self._best_after(self._best, row, total)

    def find_best(self) -> BestRows:
        """The rows with the highest total, in order; valid until the next change."""
        if self._best is None:
            self._highest = self.values.item(self.values.argmax())
            self._best = np.equal(self.values, self._highest).nonzero()[0]
        return self._best

    @property
    def has_feasible(self) -> bool:
        """Whether any row is feasible, after :meth:`find_best`."""
        return self._highest != INFEASIBLE

    def _best_after(self, best: BestRows, row: int, total: int) -> BestRows | None:
        """The best rows after the total of a row has changed: it was the highest one, or is now."""
        if total > self._highest:
            self._highest = total
            return array("q", (row,))
        if total < self._highest and len(best) == 1:
            return None
        if not isinstance(best, array):  # which takes less time to change
            best = array("q", best.tobytes())
        position = bisect_left(best, row)
        if total == self._highest:
            best.insert(position, row)
        else:
            del best[position]
        return best
