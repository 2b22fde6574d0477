"""Preemption candidates for pods of one shape: the results of dry runs, one per row of the node table.

A row is a candidate if evicting the victims that the dry run found makes the pod fit; otherwise it has a status with
the reason. Results are kept as columns, so that the next pod of the shape needs a dry run only for nodes that have
changed since.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.nodes.table import NodeTable
from kubestow.framework.interface import Victims
from kubestow.framework.status import Code, Status
from kubestow.plugins.default_preemption.candidate_ranking import CandidateRanking
from kubestow.plugins.default_preemption.dry_run import DryRun

__all__ = ["Candidates", "FoundCandidates"]

#: Outcomes of a row: no dry run yet, a candidate, or a number from which its status is found.
_UNKNOWN, _CANDIDATE, _FIRST_STATUS = 0, 1, 2
_NO_VICTIMS = Status.unresolvable("No preemption victims found for incoming pod")

Rows = NDArray[np.intp]
Mask = NDArray[np.bool_]


class Candidates:
    """Dry-run results by row of the node table."""

    def __init__(self, table: NodeTable) -> None:
        size = len(table)
        self._table = table
        self._outcome = np.zeros(size, np.int32)
        self._statuses: list[Status] = []
        self._outcome_of_status: dict[Status, int] = {}
        self._costs = CandidateRanking(size)
        #: The dry run that covered each row, and the row's position in it.
        self._run: NDArray[Any] = np.full(size, None, np.object_)
        self._position = np.zeros(size, np.intp)

    # -- results of dry runs -------------------------------------------------------------------------------------

    def invalidate(self, rows: list[int]) -> None:
        """Drop the results of some rows."""
        self._outcome[rows] = _UNKNOWN
        self._run[rows] = None

    def exclude(self, rows: Rows) -> None:
        """Record that no pod on some rows may be evicted."""
        self._outcome[rows] = self._outcome_for(_NO_VICTIMS)

    def unknown(self, rows: Rows) -> NDArray[np.intp]:
        """The positions of those of some rows that need a dry run."""
        return np.flatnonzero(np.equal(self._outcome[rows], _UNKNOWN))

    def add(self, run: DryRun) -> None:
        """Store the results of a dry run."""
        rows = run.rows
        self._outcome[rows] = _CANDIDATE
        self._outcome[rows[run.no_potential_victims]] = self._outcome_for(_NO_VICTIMS)
        for rejection in run.rejections:
            for status, where in rejection.verdict.by_status(rejection.where):
                reported = _filter_error(rejection.plugin, status) if status.code is Code.ERROR else status
                self._outcome[where] = self._outcome_for(reported)
        for row in rows[(self._outcome[rows] == _CANDIDATE) & np.equal(run.victims.lengths, 0)].tolist():
            status = Status.error(f'expected at least one victim pod on node "{self._table.names[row]}"')
            self._outcome[row] = self._outcome_for(status)
        self._run[rows] = run
        self._position[rows] = np.arange(len(rows))
        self._costs.update(rows, CandidateRanking.of(run.victims, run.violations))

    def _outcome_for(self, status: Status) -> int:
        outcome = self._outcome_of_status.get(status)
        if outcome is None:
            outcome = self._outcome_of_status[status] = _FIRST_STATUS + len(self._statuses)
            self._statuses.append(status)
        return outcome

    # -- selection -----------------------------------------------------------------------------------------------

    def among(self, rows: Rows) -> Mask:
        """Which of some rows are candidates, bool per row."""
        candidates: Mask = np.equal(self._outcome[rows], _CANDIDATE)
        return candidates

    def violating(self, rows: Rows) -> Mask:
        """Which of some candidates have a victim whose eviction violates a disruption budget, bool per row."""
        violating: Mask = np.greater(self._costs.violations(rows), 0)
        return violating

    def best(self, rows: Rows) -> int:
        """The one of some candidates with the lowest costs, the first by name among equals (semantics 9.5)."""
        rows = self._costs.lowest(rows)
        return int(rows[0] if len(rows) == 1 else rows[self._table.name_rank()[rows].argmin()])

    def victims_on(self, row: int) -> Victims:
        """The victims on a candidate."""
        pods = self._run[row].victims.at(self._position[row])
        return Victims(tuple(pods), int(self._costs.violations(np.array([row], np.intp))[0]))

    def found(self, rows: Rows) -> FoundCandidates:
        """Some candidates as they are now, whatever is dropped afterwards."""
        return FoundCandidates(self._table, rows, self._run[rows], self._position[rows], self._costs.select(rows))

    def tally(self, rows: Rows) -> Iterator[tuple[Status, int]]:
        """The statuses of those of some rows that are not candidates, each with its number of rows."""
        counts = np.bincount(self._outcome[rows], minlength=_FIRST_STATUS)[_FIRST_STATUS:]
        return ((self._statuses[number], int(counts[number])) for number in np.flatnonzero(counts).tolist())


def _filter_error(plugin: str, status: Status) -> Status:
    """An error of a filter in kube-scheduler's wording."""
    return Status.error(f'running "{plugin}" filter plugin: {status.message}')


@dataclass(frozen=True, slots=True)
class FoundCandidates:
    """The candidates of one attempt. They are read from the node table: call no method after the cluster has changed.

    ``runs`` (DryRun) and ``positions`` (intp) say where the victims of each of the ``rows`` (intp) are.
    """

    table: NodeTable
    rows: Rows
    runs: NDArray[Any]
    positions: NDArray[np.intp]
    costs: CandidateRanking

    def __len__(self) -> int:
        return len(self.rows)

    def victims_by_node(self) -> Mapping[str, Victims]:
        """The victims on each candidate, by node name."""
        return dict(self._at(np.arange(len(self))))

    def ranked(self, limit: int) -> list[tuple[str, Victims]]:
        """The candidates with the lowest costs, at most so many, in the order of the criteria (semantics 9.5)."""
        by_name = self.table.name_rank()[self.rows].argsort()
        return list(self._at(by_name[self.costs.select(by_name).order()[:limit]]))

    def _at(self, places: NDArray[np.intp]) -> Iterator[tuple[str, Victims]]:
        violations = self.costs.violations(places)
        found = zip(self.rows[places], self.runs[places], self.positions[places], violations.tolist(), strict=True)
        for row, run, position, violated in found:
            yield self.table.names[row], Victims(tuple(run.victims.at(position)), violated)
