"""Dry runs of a preemption: which pods to evict so that a pod fits, for many nodes at once (semantics 9.3).

This is kube-scheduler's DryRunPreemption with SelectVictimsOnNode for each node, except that the nodes proceed
together. First, all pods that may be evicted, such as those of lower priority, are removed from every node in
simulation; nodes where the pod still does not fit are not candidates. Then pods are reprieved one by one: step k adds
the k-th pod of each node back, pods that violate a disruption budget first, and the more important before the less
important. A pod beside which the preemptor does not fit is a victim. The filters run once per step, so the number of
calls depends on the fullest node, not on the number of nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.nodes.table import NodeTable
from kubestow.cluster.nodes.views import HypotheticalNodes
from kubestow.cluster.pods.table import PodChanges, PodTable, offsets_of
from kubestow.framework.diagnosis import Rejection
from kubestow.framework.interface import FilterRunner
from kubestow.plugins.default_preemption.disruption_budgets import DisruptionBudgets

__all__ = ["DryRun", "MayEvict", "below", "dry_run"]

Rows = NDArray[np.intp]
Mask = NDArray[np.bool_]
MayEvict = Callable[[PodChanges], Mask]
"""Which of the pods of some rows may be evicted, bool per pod; they are given as if all were removed."""


@dataclass(frozen=True, slots=True)
class DryRun:
    """The results for ``rows`` (intp) of the node table.

    ``victims`` has a run of pods per row, the most important first. A run is empty where the pod fits without
    evictions, where evictions do not help (see ``rejections``), and where no pod may be evicted
    (``no_potential_victims``, bool per row). ``violations`` (int64 per row) counts the victims whose eviction violates
    a disruption budget.
    """

    rows: Rows
    victims: PodChanges
    violations: NDArray[np.int64]
    no_potential_victims: Mask
    rejections: Sequence[Rejection]


def below(priority: int) -> MayEvict:
    """All pods below a priority may be evicted."""
    return lambda pods: pods.table.priority[pods.slots] < priority


def dry_run(
    filters: FilterRunner, table: NodeTable, rows: Rows, *, may_evict: MayEvict, budgets: DisruptionBudgets
) -> DryRun:
    """Select victims on each row for the pod that ``filters`` belong to, among the pods that it may evict."""
    potential_victims = _potential_victims(table.pod_table, rows, may_evict)
    none: Mask = np.equal(potential_victims.lengths, 0)
    some = np.flatnonzero(~none)
    if not len(some):
        return DryRun(rows, potential_victims, np.zeros(len(rows), np.int64), none, ())
    rejections = filters.rejections(HypotheticalNodes(table, rows[some], pod_changes=(potential_victims.select(some),)))
    fits = ~none
    for rejection in rejections:
        fits &= ~rejection.where[rows]
    reprieve = _Reprieve(table, rows, potential_victims.among(fits[potential_victims.row_of]), budgets)
    reprieve.run(filters)
    return DryRun(rows, reprieve.victims(), reprieve.violations(), none, rejections)


def _potential_victims(pods: PodTable, rows: Rows, may_evict: MayEvict) -> PodChanges:
    """The pods of each row that may be evicted, as removed.

    A row's pods are sorted by importance: higher priority, then earlier start, then their order on the node.
    """
    all_pods = PodChanges(pods, *pods.slots_on(rows.tolist()), -1)
    evictable = all_pods.among(may_evict(all_pods))
    slots = evictable.slots
    order = np.lexsort((pods.start_time[slots], -pods.priority[slots], evictable.row_of))
    return PodChanges(pods, slots[order], evictable.offsets, evictable.sign)


class _Reprieve:
    """Adds potential victims back to their rows, one per row and step, where the preemptor still fits beside them."""

    def __init__(self, table: NodeTable, rows: Rows, potential_victims: PodChanges, budgets: DisruptionBudgets) -> None:
        self._table = table
        self._rows = rows
        self._potential_victims = potential_victims
        #: Bool per potential victim.
        self._violating = budgets.violated(potential_victims)
        #: Bool per potential victim: not reprieved (yet).
        self._removed = np.ones(len(potential_victims.slots), np.bool_)

    def run(self, filters: FilterRunner) -> None:
        step_of = self._steps()
        by_step = np.argsort(step_of, kind="stable")
        steps = offsets_of(np.bincount(step_of, minlength=1))
        for k in range(len(steps) - 1):
            reprieved = by_step[steps[k] : steps[k + 1]]
            self._removed[reprieved] = False
            self._removed[reprieved] = ~self._fits(filters, self._potential_victims.row_of[reprieved])

    def _steps(self) -> NDArray[np.intp]:
        """The step in which each pod is reprieved: the number of pods of its row before it, intp per pod."""
        row_of = self._potential_victims.row_of
        order = np.lexsort((~self._violating, row_of))
        step_of = np.empty(len(order), np.intp)
        step_of[order] = np.arange(len(order)) - self._potential_victims.offsets[row_of]
        return step_of

    def _fits(self, filters: FilterRunner, positions: Rows) -> Mask:
        """Whether the preemptor fits the rows at some positions without the pods that are removed now."""
        nodes = HypotheticalNodes(
            self._table, self._rows, pod_changes=(self._potential_victims.without(~self._removed),)
        )
        return filters.still_pass(nodes if len(positions) == len(self._rows) else nodes.select(positions))

    def victims(self) -> PodChanges:
        """The pods that are not reprieved."""
        found = self._potential_victims.among(self._removed)
        return PodChanges(found.table, found.slots, found.offsets, found.sign)  # without what was computed of shapes

    def violations(self) -> NDArray[np.int64]:
        """The number of victims of each row that violate a disruption budget, int64."""
        return self._potential_victims.among(self._removed & self._violating).lengths.astype(np.int64)
