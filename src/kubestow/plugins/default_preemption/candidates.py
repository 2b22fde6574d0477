"""Candidates: the nodes on which a preemption would help, and which of them is the best to preempt on.

What dry runs found out is kept as columns over the node table, so that the next pod of the same shape asks only about
nodes that have changed since. A candidate is judged by five criteria in turn (semantics 9.5), each a column in which
less is better; equals go by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.nodes.table import NodeTable
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.interface import Victims
from kubestow.framework.status import Code, Status
from kubestow.plugins.default_preemption.dry_run import DryRun

__all__ = ["Candidates"]

_UNKNOWN, _CANDIDATE, _FIRST_STATUS = 0, 1, 2
_NOBODY = Status.unresolvable("No preemption victims found for incoming pod")
#: Makes every int32 priority positive, so that evicting fewer pods of negative priority counts for something.
_PRIORITY_SHIFT = 2**31

Rows = NDArray[np.intp]
Mask = NDArray[np.bool_]


class Candidates:
    """What is known about each row of the node table."""

    def __init__(self, table: NodeTable) -> None:
        size = len(table)
        self._table = table
        #: Per row: nothing known, a candidate, or the number of a status.
        self._outcome = np.zeros(size, np.int32)
        self._statuses: list[Status] = []
        self._number: dict[Status, int] = {}
        self._violations = np.zeros(size, np.int64)
        self._highest_priority = np.zeros(size, np.int64)
        self._priorities = np.zeros(size, np.int64)
        self._victims = np.zeros(size, np.int64)
        self._ran_since = np.zeros(size, np.int64)
        #: The dry run that knows the victims of each row, and the row's position in it.
        self._source: NDArray[Any] = np.full(size, None, np.object_)
        self._position = np.zeros(size, np.intp)

    # -- learning ------------------------------------------------------------------------------------------------

    def forget(self, rows: list[int]) -> None:
        """What was known about some rows does not hold any more."""
        self._outcome[rows] = _UNKNOWN
        self._source[rows] = None

    def unknown(self, rows: Rows) -> Rows:
        """Those of some rows that need a dry run."""
        return rows[np.equal(self._outcome[rows], _UNKNOWN)]

    def learn(self, run: DryRun) -> None:
        """Take in what a dry run found."""
        rows = run.rows
        self._outcome[rows] = _CANDIDATE
        self._outcome[rows[run.nobody]] = self._number_of(_NOBODY)
        for refusal in run.refusals:
            for status, where in refusal.verdict.by_status(refusal.where):
                said = _failure(refusal.plugin, status) if status.code is Code.ERROR else status
                self._outcome[where] = self._number_of(said)
        self._judge(run)
        for row in rows[(self._outcome[rows] == _CANDIDATE) & np.equal(run.victims.lengths, 0)].tolist():
            status = Status.error(f'expected at least one victim pod on node "{self._table.names[row]}"')
            self._outcome[row] = self._number_of(status)

    def _judge(self, run: DryRun) -> None:
        victims, rows = run.victims, run.rows
        has_some = victims.lengths > 0
        self._source[rows] = run
        self._position[rows] = np.arange(len(rows))
        self._violations[rows] = run.violations
        self._victims[rows] = victims.lengths
        self._priorities[rows] = -victims.sums(victims.table.priority) + _PRIORITY_SHIFT * victims.lengths
        first = victims.slots[victims.offsets[:-1][has_some]]
        self._highest_priority[rows[has_some]] = victims.table.priority[first]
        self._ran_since[rows[has_some]] = victims.table.started[first]

    def _number_of(self, status: Status) -> int:
        number = self._number.get(status)
        if number is None:
            number = self._number[status] = _FIRST_STATUS + len(self._statuses)
            self._statuses.append(status)
        return number

    # -- choosing ------------------------------------------------------------------------------------------------

    def among(self, rows: Rows) -> Mask:
        """Which of some rows are candidates, bool."""
        candidates: Mask = np.equal(self._outcome[rows], _CANDIDATE)
        return candidates

    def violating(self, rows: Rows) -> Mask:
        """Which of some candidates cost a violated budget, bool."""
        violating: Mask = np.greater(self._violations[rows], 0)
        return violating

    def best(self, rows: Rows) -> int:
        """The best of some candidates: the least harm by each criterion in turn, then the first by name."""
        for harm in (
            self._violations,
            self._highest_priority,
            self._priorities,
            self._victims,
            -self._ran_since,
            self._table.name_rank(),
        ):
            if len(rows) > 1:
                values = harm[rows]
                rows = rows[values == values.min()]
        return int(rows[0])

    def victims_on(self, row: int) -> tuple[PodInfo, ...]:
        """Whom to evict from a candidate, the most important first."""
        return tuple(self._source[row].victims.at(self._position[row]))

    def victims_by_node(self, rows: Rows) -> Callable[[], Mapping[str, Victims]]:
        """What a preemption on some candidates would cost, by node; to be worked out before anything changes."""
        names = [self._table.names[row] for row in rows.tolist()]
        sources, positions, violations = self._source[rows], self._position[rows], self._violations[rows]

        def work_out() -> Mapping[str, Victims]:
            known = zip(names, sources.tolist(), positions.tolist(), violations.tolist(), strict=True)
            return {name: Victims(tuple(run.victims.at(at)), violated) for name, run, at, violated in known}

        return work_out

    def tally(self, rows: Rows) -> Iterator[tuple[Status, int]]:
        """What was said of rows that are no candidates, with the number of rows."""
        counts = np.bincount(self._outcome[rows], minlength=_FIRST_STATUS)[_FIRST_STATUS:]
        return ((self._statuses[number], int(counts[number])) for number in np.flatnonzero(counts).tolist())


def _failure(plugin: str, status: Status) -> Status:
    """A filter's failure in the reference's words."""
    return Status.error(f'running "{plugin}" filter plugin: {status.message}')
