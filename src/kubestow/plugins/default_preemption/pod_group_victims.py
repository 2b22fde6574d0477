"""Whom one may evict for a pod group: single pods and whole groups, all over the cluster (semantics 9.7).

A group whose mode of disruption is ``PodGroup`` goes as a whole or not at all; everybody else goes alone. To be spared
first: those whose eviction would violate a disruption budget; then higher priorities, pods of groups before others,
larger groups before smaller ones, and who has run for longer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np
from numpy.typing import NDArray

from kubestow.api.scheduling import PodGroup
from kubestow.cluster.cache import Cluster
from kubestow.cluster.pods.pod_groups import PodGroupAPI
from kubestow.cluster.pods.table import Deltas, PodTable, offsets_of
from kubestow.framework.gang import Evictable
from kubestow.plugins.default_preemption.disruption_budgets import DisruptionBudgets

__all__ = ["group_victims", "priority_of"]

Rows = NDArray[np.intp]


def priority_of(group: PodGroup) -> int:
    """``spec.priority``, 0 where it is missing."""
    return group.spec.priority or 0


def group_victims(
    cluster: Cluster, priority: int, *, siblings: Collection[str], budgets: DisruptionBudgets
) -> Evictable:
    """Everybody below a priority, except for pods of the group itself, by uid."""
    pods = _Pods(cluster)
    pods.join_groups(cluster)
    pods.leave_out(siblings)
    pods.keep_below(priority)
    order = pods.by_importance()
    violating = budgets.violated(Deltas(pods.table, pods.slots[order], np.array([0, len(order)], np.intp), -1))
    violates = np.zeros(len(pods.slots), np.bool_)
    violates[pods.unit[order[violating]]] = True  # by the first pod of a unit, as everything that is said of units
    order = order[np.argsort(~violates[pods.unit[order]], kind="stable")]
    starts = np.flatnonzero(np.diff(pods.unit[order], prepend=-1))
    offsets = offsets_of(np.diff(starts, append=len(order)))
    return Evictable(Deltas(pods.table, pods.slots[order], offsets, -1), pods.rows[order])


class _Pods:
    """All pods on nodes, as columns; ``unit`` is the position of the first pod of each pod's unit."""

    def __init__(self, cluster: Cluster) -> None:
        self.table: PodTable = cluster.nodes.pod_table
        self.slots, offsets = self.table.on(range(len(cluster.nodes)))
        self.rows: Rows = np.repeat(np.arange(len(cluster.nodes)), np.diff(offsets))
        self.unit = np.arange(len(self.slots))
        self._priority = self.table.priority[self.slots]
        self._in_group = np.zeros(len(self.slots), np.bool_)

    def join_groups(self, cluster: Cluster) -> None:
        """Make units of the groups that are evicted as a whole."""
        position_of = np.full(self.slots.max(initial=-1) + 1, -1, np.intp)
        position_of[self.slots] = np.arange(len(self.slots))
        for group, slots in self._groups(cluster):
            positions = np.sort(position_of[slots])
            self._in_group[positions] = True
            if group is not None and group.spec.disruption_mode == "PodGroup":
                self.unit[positions] = positions[0]
                self._priority[positions] = priority_of(group)

    def _groups(self, cluster: Cluster) -> Iterator[tuple[PodGroup | None, list[int]]]:
        """Kubernetes' groups with the slots of their pods."""
        groups = cluster.catalog(PodGroup)
        for name in cluster.pod_groups:
            if name.api is PodGroupAPI.KUBERNETES:
                slots = [self.table.slot(uid) for uid in cluster.pod_groups.members(name).pods]
                if on_nodes := [slot for slot in slots if slot is not None]:
                    yield groups.get(name.namespace, name.name), on_nodes

    def leave_out(self, uids: Collection[str]) -> None:
        """Forget some pods."""
        slots = [slot for uid in uids if (slot := self.table.slot(uid)) is not None]
        self._keep(~np.isin(self.slots, slots))

    def keep_below(self, priority: int) -> None:
        """Forget whoever is not below a priority."""
        self._keep(self._priority < priority)

    def _keep(self, kept: NDArray[np.bool_]) -> None:
        self.slots, self.rows = self.slots[kept], self.rows[kept]
        self._priority, self._in_group = self._priority[kept], self._in_group[kept]
        _, firsts, units = np.unique(self.unit[kept], return_index=True, return_inverse=True)
        self.unit = firsts[units]

    def by_importance(self) -> Rows:
        """The positions of the pods, unit after unit, the most important first."""
        size = np.bincount(self.unit, minlength=len(self.slots))
        started = np.full(len(self.slots), np.iinfo(np.int64).max)
        np.minimum.at(started, self.unit, self.table.started[self.slots])
        unit = self.unit
        return np.lexsort((unit, started[unit], -size[unit], ~self._in_group, -self._priority))
