"""Dry runs of a pod's preemption that may evict whole pod groups (Behaviour.POD_GROUPS_ARE_VICTIMS, semantics 9.3).

Every pod of a Kubernetes group counts with the priority of its group. The pods of a group with ``disruptionMode`` all
are one unit: they are removed, put back and evicted together. For the filters only the unit's pods on the candidate
node are gone; those on other nodes are victims too, and count for disruption budgets and for the choice of the node.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.nodes.table import NodeTable
from kubestow.cluster.nodes.views import HypotheticalNodes
from kubestow.cluster.pods.placed_groups import PlacedGroups
from kubestow.cluster.pods.table import PodChanges, offsets_of
from kubestow.framework.interface import FilterRunner
from kubestow.plugins.default_preemption.dry_run import (
    DisruptionBudgets,
    DryRun,
    MayEvict,
    Rows,
)


def dry_run_with_groups(
    filters: FilterRunner,
    table: NodeTable,
    rows: Rows,
    *,
    may_evict: MayEvict,
    budgets: DisruptionBudgets,
    groups: PlacedGroups,
) -> DryRun:
    """Select victims on each row for the pod that ``filters`` belong to, in units."""
    potential = _potential_victims(table, rows, may_evict, groups)
    none = np.equal(potential.lengths, 0)
    some = np.flatnonzero(~none)
    if not len(some):
        return DryRun(rows, potential, np.zeros(len(rows), np.int64), none, ())
    rejections = filters.rejections(HypotheticalNodes(table, rows[some], pod_changes=(potential.select(some),)))
    fits = ~none
    for rejection in rejections:
        fits &= ~rejection.where[rows]
    local = potential.among(fits[potential.row_of])
    units = _Units.of(local, groups)
    everything = units.expanded(local, groups)
    violations = np.bincount(everything.row_of[budgets.violated(everything.pods)], minlength=units.count)
    removed = units.not_reprieved(filters, table, rows, local, violating=violations > 0)
    victims = everything.among(removed, units.row_of, len(rows))
    per_row = np.bincount(units.row_of[removed], weights=violations[removed], minlength=len(rows))
    return DryRun(rows, victims, per_row.astype(np.int64), none, rejections)


def _potential_victims(table: NodeTable, rows: Rows, may_evict: MayEvict, groups: PlacedGroups) -> PodChanges:
    """The pods of each row that may be evicted, as removed: higher priority, then earlier start; a unit in one run."""
    pods = table.pod_table
    all_pods = PodChanges(pods, *pods.slots_on(rows.tolist()), -1)
    evictable = all_pods.among(may_evict(all_pods))
    slots = evictable.slots
    unit_of, start_time = groups.unit_of(slots), pods.start_time[slots].copy()
    in_unit = np.flatnonzero(unit_of >= 0)
    units, of_unit = np.unique(unit_of[in_unit], return_inverse=True)
    earliest = [pods.start_time[groups.slots_of(unit)].min() for unit in units.tolist()]
    start_time[in_unit] = np.array(earliest, np.int64)[of_unit]
    order = np.lexsort((unit_of, start_time, -groups.priority_of(slots), evictable.row_of))
    return PodChanges(pods, slots[order], evictable.offsets, evictable.sign)


@dataclass(frozen=True, slots=True)
class _Expanded:
    """Pods by unit of some rows: all of the cluster. ``row_of`` (intp, one per pod) is the position of its unit."""

    pods: PodChanges
    row_of: NDArray[np.intp]

    def among(self, kept: NDArray[np.bool_], row_of_unit: NDArray[np.intp], count: int) -> PodChanges:
        """The pods of some units (bool), in a run for each of ``count`` rows."""
        pods = kept[self.row_of]
        lengths = np.bincount(row_of_unit[self.row_of[pods]], minlength=count)
        return PodChanges(self.pods.table, self.pods.slots[pods], offsets_of(lengths), self.pods.sign)


@dataclass(frozen=True, slots=True)
class _Units:
    """The units on some rows, row by row and the most important first.

    ``of_pod`` (intp, one per pod) is the unit of each pod, ``row_of`` (intp, one per unit) its row.
    """

    of_pod: NDArray[np.intp]
    row_of: NDArray[np.intp]
    firsts: NDArray[np.intp]

    @property
    def count(self) -> int:
        return len(self.row_of)

    @classmethod
    def of(cls, pods: PodChanges, groups: PlacedGroups) -> _Units:
        unit_of, row_of = groups.unit_of(pods.slots), pods.row_of
        is_first = np.ones(len(unit_of), np.bool_)
        same = (unit_of[1:] == unit_of[:-1]) & (unit_of[1:] >= 0) & (row_of[1:] == row_of[:-1])
        is_first[1:] = ~same
        firsts = np.flatnonzero(is_first)
        return cls(np.cumsum(is_first) - 1, row_of[firsts], firsts)

    def expanded(self, pods: PodChanges, groups: PlacedGroups) -> _Expanded:
        """All pods of the units, those on other nodes included."""
        members = [
            groups.slots_of(unit) if unit >= 0 else pods.slots[first : first + 1]
            for first, unit in zip(self.firsts, groups.unit_of(pods.slots[self.firsts]).tolist(), strict=True)
        ]
        slots = np.fromiter(chain.from_iterable(members), np.intp)
        lengths = np.fromiter(map(len, members), np.intp, len(members))
        unit_of = np.repeat(np.arange(len(members)), lengths)
        per_row = np.bincount(self.row_of[unit_of], minlength=len(pods.lengths))
        return _Expanded(PodChanges(pods.table, slots, offsets_of(per_row), pods.sign), unit_of)

    def not_reprieved(
        self, filters: FilterRunner, table: NodeTable, rows: Rows, pods: PodChanges, violating: NDArray[np.bool_]
    ) -> NDArray[np.bool_]:
        """Which units the preemptor does not fit beside, bool per unit; one per row and step is put back."""
        order = np.lexsort((~violating, self.row_of))
        before = offsets_of(np.bincount(self.row_of, minlength=len(rows)))
        step_of = np.empty(len(order), np.intp)
        step_of[order] = np.arange(len(order)) - before[self.row_of]
        removed = np.ones(self.count, np.bool_)
        for step in range(int(step_of.max(initial=-1)) + 1):
            tried = np.flatnonzero(step_of == step)
            removed[tried] = False
            nodes = HypotheticalNodes(table, rows, pod_changes=(pods.without(~removed[self.of_pod]),))
            removed[tried] = ~filters.still_pass(nodes.select(self.row_of[tried]))
        return removed
