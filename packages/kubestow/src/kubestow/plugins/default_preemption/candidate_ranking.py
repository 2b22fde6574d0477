"""The order of preemption candidates: what a preemption costs on each node (semantics 9.5).

The criteria of kube-scheduler's pickOneNodeForPreemption are columns in which less is better. They apply in turn, each
to the candidates that are equal by all earlier ones. The same columns serve candidates from dry runs and candidates
that extenders return.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.pods.table import NOT_STARTED, PodChanges

__all__ = ["CandidateRanking"]

#: Makes every int32 priority positive, so that fewer victims cost less even if their priorities are negative.
_PRIORITY_OFFSET = 2**31
_VIOLATIONS, _HIGHEST_PRIORITY, _PRIORITY_SUM, _VICTIMS, _LATEST_START = range(5)
_CRITERIA = 5


class CandidateRanking:
    """The costs of preempting on each of ``size`` nodes; int64, shape (criteria, size)."""

    def __init__(self, size: int) -> None:
        self._columns = np.zeros((_CRITERIA, size), np.int64)

    @classmethod
    def of(cls, victims: PodChanges, violations: NDArray[np.int64]) -> CandidateRanking:
        """``victims`` has a run of pods per node; ``violations`` (int64) is how many of each violate a budget."""
        costs = cls(len(violations))
        columns, lengths = costs._columns, victims.lengths
        columns[_VIOLATIONS] = violations
        columns[_VICTIMS] = lengths
        columns[_PRIORITY_SUM] = victims.sums(victims.table.priority) * victims.sign + _PRIORITY_OFFSET * lengths
        nonempty = lengths > 0
        runs = victims.offsets[:-1][nonempty]
        if len(runs):
            priority, start_time = victims.table.priority[victims.slots], victims.table.start_time[victims.slots]
            highest = np.repeat(np.maximum.reduceat(priority, runs), lengths[nonempty])
            start_time = np.where(priority == highest, start_time, NOT_STARTED)
            columns[_HIGHEST_PRIORITY, nonempty] = priority[runs]
            columns[_LATEST_START, nonempty] = -np.minimum.reduceat(start_time, runs)
        return costs

    def update(self, rows: NDArray[np.intp], costs: CandidateRanking) -> None:
        """Replace the costs of some nodes."""
        self._columns[:, rows] = costs._columns

    def select(self, rows: NDArray[np.intp]) -> CandidateRanking:
        """The costs of some nodes (intp), in this order."""
        selected = CandidateRanking(0)
        selected._columns = self._columns[:, rows]
        return selected

    def violations(self, rows: NDArray[np.intp]) -> NDArray[np.int64]:
        """The number of victims on each of some nodes whose eviction violates a disruption budget, int64."""
        violations: NDArray[np.int64] = self._columns[_VIOLATIONS, rows]
        return violations

    def order(self) -> NDArray[np.intp]:
        """All nodes by their costs, the lowest first; equal ones keep their order (intp)."""
        return np.lexsort(self._columns[::-1])

    def lowest(self, rows: NDArray[np.intp]) -> NDArray[np.intp]:
        """Those of some candidates with the lowest costs; several if all criteria rate them equal."""
        for column in self._columns:
            if len(rows) == 1:
                break
            values = column[rows]
            rows = rows[values == values.min()]
        return rows
