"""Preemption candidates for pods of one shape: the results of dry runs, one per row of the node table.

A row is a candidate if evicting the victims that the dry run found makes the pod fit; otherwise it has a status with
the reason. Results are kept as columns, so that the next pod of the shape needs a dry run only for nodes that have
changed since.

The criteria of kube-scheduler's pickOneNodeForPreemption (semantics 9.5) are columns in which less is better. They
apply in turn, each to the candidates that are equal by all earlier ones. The same columns serve candidates from dry
runs and those that extenders return. An extender may drop candidates and replace their victims (semantics 9.4). It
works on node names and pods, not on rows of the node table, because the table may change while the extender's response
is pending.

The results of a dry run hold for all pods of a shape until an event concerns the node, its nominations or a disruption
budget. The cache tracks that through the cluster's journal: changed rows lose their results, a change that affects all
rows drops all of them. A shape's results go with its last pod; the least recently used ones are evicted when the cache
is full.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import ref

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.changes.events import POD_BITS, Action, ClusterEvent, EventResource
from kubestow.cluster.changes.journal import NEVER, Generation, InvalidationMask
from kubestow.cluster.nodes.table import NodeTable
from kubestow.cluster.pods.caches import BoundedCache
from kubestow.cluster.pods.shapes import PodInfo, Shape
from kubestow.cluster.pods.table import NOT_STARTED, PodChanges
from kubestow.framework.interface import FilterRunner, Handle, PostFilterResult, Victims
from kubestow.framework.status import Code, Status
from kubestow.plugins.default_preemption.dry_run import DryRun

#: Outcomes of a row: no dry run yet, a candidate, or a number from which its status is found.
_UNKNOWN, _CANDIDATE, _FIRST_STATUS = 0, 1, 2
_NO_CANDIDATE = Status.unschedulable("preemption: no candidate node for preemption")
_NO_VICTIMS = Status.unresolvable("No preemption victims found for incoming pod")

Rows = NDArray[np.intp]
Mask = NDArray[np.bool_]
Nominate = Callable[[str, Victims], PostFilterResult]


class Candidates:
    """Dry-run results by row of the node table."""

    def __init__(self, table: NodeTable) -> None:
        size = len(table)
        self._table = table
        self._outcome = np.zeros(size, np.int32)
        self._statuses: list[Status] = []
        self._outcome_of_status: dict[Status, int] = {}
        self._costs = CandidateRanking(size)
        #: The victims of the dry run that covered each row (PodChanges), and the row's position in them. Not the run
        #: itself: the garbage collector sees no reference from an array, and a run's rejections lead to the scheduler.
        self._victims: NDArray[Any] = np.full(size, None, np.object_)
        self._position = np.zeros(size, np.intp)

    # -- results of dry runs -------------------------------------------------------------------------------------

    def invalidate(self, rows: list[int]) -> None:
        """Drop the results of some rows."""
        self._outcome[rows] = _UNKNOWN
        self._victims[rows] = None

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
                reported = status
                if status.code is Code.ERROR:
                    plugin = rejection.plugin
                    reported = Status.error(f'running "{plugin}" filter plugin: {status.message}')
                self._outcome[where] = self._outcome_for(reported)
        for row in rows[(self._outcome[rows] == _CANDIDATE) & np.equal(run.victims.lengths, 0)].tolist():
            status = Status.error(f'expected at least one victim pod on node "{self._table.names[row]}"')
            self._outcome[row] = self._outcome_for(status)
        self._victims[rows] = run.victims
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
        pods = self._victims[row].at(self._position[row])
        return Victims(tuple(pods), int(self._costs.violations(np.array([row], np.intp))[0]))

    def found(self, rows: Rows, nominate: Nominate) -> PreemptionCandidates:
        """Some candidates as they are now, whatever is dropped afterwards."""
        costs = self._costs.select(rows)
        return PreemptionCandidates(self._table, rows, self._victims[rows], self._position[rows], costs, nominate)

    def tally(self, rows: Rows) -> Iterator[tuple[Status, int]]:
        """The statuses of those of some rows that are not candidates, each with its number of rows."""
        counts = np.bincount(self._outcome[rows], minlength=_FIRST_STATUS)[_FIRST_STATUS:]
        return ((self._statuses[number], int(counts[number])) for number in np.flatnonzero(counts).tolist())


@dataclass(frozen=True, slots=True)
class PreemptionCandidates:
    """The candidates of one attempt. They are read from the node table: call no method after the cluster has changed,
    except :meth:`select`.

    Implements :class:`kubestow.framework.interface.ExtenderCandidates`. ``victims`` (PodChanges) and ``positions``
    (intp) say where the victims of each of the ``rows`` (intp) are; ``nominate`` makes the result for a node and its
    victims.
    """

    table: NodeTable
    rows: Rows
    victims: NDArray[Any]
    positions: NDArray[np.intp]
    costs: CandidateRanking
    nominate: Nominate

    def __len__(self) -> int:
        return len(self.rows)

    def victims_by_node(self) -> Mapping[str, Victims]:
        """The victims on each candidate before any extender is called, by node name."""
        return dict(self._at(np.arange(len(self))))

    def select(self, victims_by_node: Mapping[str, Victims]) -> PostFilterResult:
        """The result for the best of the candidates that extenders have left."""
        if not victims_by_node:
            return PostFilterResult(_NO_CANDIDATE)
        name = pick_one_node(victims_by_node)
        return self.nominate(name, victims_by_node[name])

    def better_than(self, node_name: str) -> int | None:
        """The number of candidates with lower costs than a node; None for one that is no candidate (semantics 9.5)."""
        place = np.flatnonzero(self.rows == self.table.rows.get(node_name, -1))
        return self.costs.better_than(int(place[0])) if len(place) else None

    def ranked(self, limit: int) -> list[tuple[str, Victims]]:
        """The candidates with the lowest costs, at most so many, in the order of the criteria (semantics 9.5)."""
        by_name = self.table.name_rank()[self.rows].argsort()
        return list(self._at(by_name[self.costs.select(by_name).order()[:limit]]))

    def _at(self, places: NDArray[np.intp]) -> Iterator[tuple[str, Victims]]:
        violations = self.costs.violations(places)
        found = zip(self.rows[places], self.victims[places], self.positions[places], violations.tolist(), strict=True)
        for row, victims, position, violated in found:
            yield self.table.names[row], Victims(tuple(victims.at(position)), violated)


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

    def better_than(self, row: int) -> int:
        """The number of nodes with lower costs than one of them."""
        columns = self._columns
        better, equal = np.zeros(columns.shape[1], np.bool_), np.ones(columns.shape[1], np.bool_)
        for column in columns:
            better |= equal & (column < column[row])
            equal &= column == column[row]
        return int(np.count_nonzero(better))

    def lowest(self, rows: NDArray[np.intp]) -> NDArray[np.intp]:
        """Those of some candidates with the lowest costs; several if all criteria rate them equal."""
        for column in self._columns:
            if len(rows) == 1:
                break
            values = column[rows]
            rows = rows[values == values.min()]
        return rows


def pick_one_node(victims_by_node: Mapping[str, Victims]) -> str:
    """The node with the lowest costs, the first by name among equals (semantics 9.5)."""
    names = sorted(victims_by_node)
    victims = [victims_by_node[name] for name in names]
    violations = np.array([each.violations for each in victims], np.int64)
    costs = CandidateRanking.of(PodChanges.of([each.pods for each in victims], -1), violations)
    return names[int(costs.lowest(np.arange(len(names)))[0])]


#: A dry run on a node depends on all pods of the node, and on the pods nominated to it.
_DEPENDENCIES = InvalidationMask(row_bits=POD_BITS | ClusterEvent(EventResource.NOMINATION, Action.UPDATE).bits)
#: The size of the cache in bytes, and what one shape takes of it per node.
_MAX_BYTES = 32 * 2**20
_BYTES_PER_NODE = 72
#: The number of shapes that the cache holds however many nodes there are.
_MIN_SHAPES = 8


@dataclass(slots=True)
class _Entry:
    """The candidates of one shape, and what they depend on: the filters that ran, the version of the budgets."""

    candidates: Candidates | None = None
    generation: Generation = NEVER
    #: References, because a filter may know its pod, and with it the shape.
    depends_on: tuple[Sequence[ref[Any]], int] = ((), -1)


class CandidateCache:
    """Candidates by pod shape, for as long as there are pods of it."""

    def __init__(self, handle: Handle) -> None:
        self._cluster = handle.cluster
        self._entries: BoundedCache[ref[Shape], _Entry] = BoundedCache(_MIN_SHAPES)

    def get(self, pod: PodInfo, filters: FilterRunner, budgets_version: int) -> Candidates:
        """The valid candidates for pods of this shape; empty for a new shape."""
        entry = self._entries.get(ref(pod.shape))
        if entry is None:
            self._entries.resize(max(_MIN_SHAPES, _MAX_BYTES // (_BYTES_PER_NODE * len(self._cluster.nodes))))
            entry = self._entries.put(ref(pod.shape, self._entries.discard), _Entry())
        window, mask = self._cluster.change_window, filters.invalidation_mask
        invalid, generation = None, window.begin()
        depends_on = [ref(each) for each in filters.active], budgets_version
        if mask is not None and depends_on == entry.depends_on:
            invalid = window.invalid_rows(entry.generation, mask | _DEPENDENCIES)
        if entry.candidates is None or invalid is None:
            entry.candidates = Candidates(self._cluster.nodes)
        else:
            entry.candidates.invalidate(invalid)
        entry.depends_on, entry.generation = depends_on, generation
        return entry.candidates
