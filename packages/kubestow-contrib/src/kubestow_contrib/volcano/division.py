"""The division of a cluster among queues, kept as arrays, so that a new request costs little.

As long as there is enough for all, a queue deserves what it requests within its limits, whatever the others do.
Otherwise all are filled anew (:func:`.fair_share.water_fill`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from kubestow_contrib.volcano.fair_share import water_fill
from kubestow_contrib.volcano.queues import Amounts, QueueRules

__all__ = ["Division"]


class Division:
    """The division of ``total`` among queues, given their rules and what each may use at most (``capabilities``)."""

    def __init__(
        self, total: Amounts, rules: Sequence[QueueRules], capabilities: Sequence[Mapping[str, float]]
    ) -> None:
        self._names = list(total)
        self._rows = {each.name: row for row, each in enumerate(rules)}
        self._queues = [each.name for each in rules]
        self._total = np.array(list(total.values()), np.float64)
        self._weights = np.array([each.weight for each in rules], np.float64)
        self._guarantee = self._table([each.guarantee for each in rules])
        self._capability = np.maximum(self._table(capabilities), self._guarantee)
        self._upper = self._guarantee.copy()
        self._deserved = np.full_like(self._upper, -1.0)

    def request(self, queue: str, amounts: Amounts) -> None:
        """Replace what a queue requests."""
        row = self._rows[queue]
        requested = np.array([amounts.get(name, 0) for name in self._names], np.float64)
        self._upper[row] = np.maximum(np.minimum(requested, self._capability[row]), self._guarantee[row])

    def changes(self) -> Iterable[tuple[str, dict[str, float]]]:
        """What each queue deserves, for those where that has changed since the last call."""
        deserved = self._upper.copy()
        if (self._upper.sum(axis=0) > self._total).any():
            deserved = water_fill(self._total, self._weights, self._guarantee, self._upper)
        changed = np.flatnonzero((deserved != self._deserved).any(axis=1))
        self._deserved = deserved
        for row, amounts in zip(changed.tolist(), deserved[changed].tolist(), strict=True):
            yield self._queues[row], dict(zip(self._names, amounts, strict=True))

    def _table(self, rows: Sequence[Mapping[str, float]]) -> NDArray[np.float64]:
        values = [row.get(name, 0) for row in rows for name in self._names]
        return np.array(values, np.float64).reshape(len(rows), len(self._names))
