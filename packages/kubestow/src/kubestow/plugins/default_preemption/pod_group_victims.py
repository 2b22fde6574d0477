"""What a pod group may evict: single pods and whole pod groups, anywhere in the cluster (semantics 9.7).

A pod group with the disruption mode ``PodGroup`` is one unit and is evicted as a whole; every other pod is a unit of
its own. Units are in the order in which they are reprieved: first those whose eviction would violate a disruption
budget; then by higher priority, pod groups before single pods, larger groups, and earlier start.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np
from numpy.typing import NDArray

from kubestow.api.scheduling import PodGroup
from kubestow.cluster.cache import Cluster
from kubestow.cluster.pods.pod_groups import native_name
from kubestow.cluster.pods.table import PodChanges, PodTable, offsets_of
from kubestow.framework.gang import Evictable
from kubestow.plugins.default_preemption.dry_run import DisruptionBudgets

Positions = NDArray[np.intp]


def pod_group_priority(group: PodGroup) -> int:
    """``spec.priority``, 0 where it is missing."""
    return group.spec.priority or 0


def evictable_units(
    cluster: Cluster, priority: int, *, excluded: Collection[str], budgets: DisruptionBudgets
) -> Evictable:
    """The units below a priority, without some pods by uid: those of the preempting group itself."""
    pods = _PodColumns(cluster)
    pods.merge_pod_groups(cluster)
    pods.exclude(excluded)
    pods.keep_below(priority)
    order = pods.by_importance()
    violating = budgets.violated(PodChanges(pods.table, pods.slots[order], np.array([0, len(order)], np.intp), -1))
    violating_units = np.zeros(len(pods.slots), np.bool_)
    violating_units[pods.unit[order[violating]]] = True
    order = order[np.argsort(~violating_units[pods.unit[order]], kind="stable")]
    starts = np.flatnonzero(np.diff(pods.unit[order], prepend=-1))
    offsets = offsets_of(np.diff(starts, append=len(order)))
    return Evictable(PodChanges(pods.table, pods.slots[order], offsets, -1), pods.rows[order])


class _PodColumns:
    """All pods on nodes as columns, one entry per pod.

    ``slots`` and ``rows`` (intp) are their slots in the pod table and rows in the node table; ``unit`` (intp) is the
    position of the first pod of the pod's unit, which stands for the unit wherever a unit has a property.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.table: PodTable = cluster.nodes.pod_table
        self.slots, offsets = self.table.slots_on(range(len(cluster.nodes)))
        self.rows: NDArray[np.intp] = np.repeat(np.arange(len(cluster.nodes)), np.diff(offsets))
        self.unit = np.arange(len(self.slots))
        self._priority = self.table.priority[self.slots]
        self._in_group = np.zeros(len(self.slots), np.bool_)

    def merge_pod_groups(self, cluster: Cluster) -> None:
        """Make one unit of each pod group that is evicted as a whole."""
        position_of = np.full(self.slots.max(initial=-1) + 1, -1, np.intp)
        position_of[self.slots] = np.arange(len(self.slots))
        for group, slots in self._pod_groups(cluster):
            positions = np.sort(position_of[slots])
            self._in_group[positions] = True
            if group is not None and group.spec.disruption_mode == "PodGroup":
                self.unit[positions] = positions[0]
                self._priority[positions] = pod_group_priority(group)

    def _pod_groups(self, cluster: Cluster) -> Iterator[tuple[PodGroup | None, list[int]]]:
        """Kubernetes' own pod groups with the slots of their placed pods; None for a group that does not exist."""
        groups = cluster.catalog(PodGroup)
        for name in cluster.pod_groups:
            if native_name(name):
                slots = [self.table.slot(uid) for uid in cluster.pod_groups.members(name).pods]
                if placed := [slot for slot in slots if slot is not None]:
                    yield groups.get(name.namespace, name.name), placed

    def exclude(self, uids: Collection[str]) -> None:
        """Drop some pods."""
        slots = [slot for uid in uids if (slot := self.table.slot(uid)) is not None]
        self._keep(~np.isin(self.slots, slots))

    def keep_below(self, priority: int) -> None:
        """Drop pods whose unit is not below a priority."""
        self._keep(self._priority < priority)

    def _keep(self, kept: NDArray[np.bool_]) -> None:
        self.slots, self.rows = self.slots[kept], self.rows[kept]
        self._priority, self._in_group = self._priority[kept], self._in_group[kept]
        _, firsts, units = np.unique(self.unit[kept], return_index=True, return_inverse=True)
        self.unit = firsts[units]

    def by_importance(self) -> Positions:
        """The positions of the pods, unit by unit, the most important first, intp."""
        unit = self.unit
        size = np.bincount(unit, minlength=len(self.slots))
        start_time = np.full(len(self.slots), np.iinfo(np.int64).max)
        np.minimum.at(start_time, unit, self.table.start_time[self.slots])
        return np.lexsort((unit, start_time[unit], -size[unit], ~self._in_group, -self._priority))
