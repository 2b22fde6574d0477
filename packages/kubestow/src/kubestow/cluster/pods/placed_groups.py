"""The placed pods of Kubernetes' pod groups as columns, which preemption reads for all nodes at once.

A group that is evicted as a whole, or a tree of groups, is a *unit*. The columns follow every pod that is placed or
removed and every group that changes, so that an attempt at preemption does not look at the groups one by one: a change
of a group costs its placed pods, one of a composite group those of the groups below.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kubestow.api.scheduling import CompositePodGroup, PodGroup
from kubestow.cluster.changes.catalog import Catalog
from kubestow.cluster.pods.hierarchies import Group, Hierarchies, ancestors, disrupted_as_a_whole
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.cluster.pods.table import PodTable

#: Namespace and name of a PodGroup.
_Key = tuple[str, str]
_NO_UNIT = -1


@dataclass(frozen=True, slots=True)
class _Terms:
    """What a group defines for its pods: the priority, None for a group that is missing, and the unit, if any."""

    priority: int | None
    unit: Hashable | None


@dataclass(slots=True, eq=False)
class _Unit:
    """The slots of a unit in the pod table; ``in_order`` is None until they are asked for."""

    key: Hashable
    slots: set[int] = field(default_factory=set)
    in_order: NDArray[np.intp] | None = None


class PlacedGroups:
    """The pods of a pod table that are in groups. Implements :class:`kubestow.cluster.placed_pods.PlacementListener`.

    The groups of the catalogs count from the start, pods as they are added. The number of a unit is reused when it has
    no pods any more.
    """

    def __init__(
        self,
        table: PodTable,
        groups: Catalog[PodGroup],
        composites: Catalog[CompositePodGroup],
        hierarchies: Hierarchies,
    ) -> None:
        self._table, self._groups, self._composites, self._hierarchies = table, groups, composites, hierarchies
        #: By slot: whether its pod is in a group, that group's priority or the pod's own, and the number of the unit.
        self._in_group = np.zeros(0, np.bool_)
        self._priority = np.zeros(0, np.int64)
        self._unit = np.zeros(0, np.intp)
        #: The slots of the placed pods of each group, by uid; the group of each of them; and the terms of each group.
        self._slots: dict[_Key, dict[str, int]] = {}
        self._key_of: dict[str, _Key] = {}
        self._terms: dict[_Key, _Terms] = {}
        self._units: list[_Unit | None] = []
        self._number_of: dict[Hashable, int] = {}
        self._free: list[int] = []
        groups.subscribe(self._group_changed)
        composites.subscribe(self._composite_changed)

    def __len__(self) -> int:
        """The number of placed pods in groups."""
        return len(self._key_of)

    # -- reading -------------------------------------------------------------------------------------------------

    def is_in_group(self, slots: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Whether the pods in some slots are in groups, bool."""
        self._fit()
        return self._in_group[slots]

    def priority_of(self, slots: NDArray[np.intp]) -> NDArray[np.int64]:
        """The priorities of the pods in some slots, int64: that of the group at the top, or their own without one."""
        self._fit()
        return np.where(self._in_group[slots], self._priority[slots], self._table.priority[slots])

    def unit_of(self, slots: NDArray[np.intp]) -> NDArray[np.intp]:
        """The numbers of the units of the pods in some slots, intp; -1 for a pod that is evicted by itself."""
        self._fit()
        return self._unit[slots]

    def slots_of(self, unit: int) -> NDArray[np.intp]:
        """The slots of the pods of a unit, intp, in the order of the pods' names."""
        found = self._units[unit]
        assert found is not None
        if found.in_order is None:
            found.in_order = np.array(sorted(found.slots, key=lambda slot: self._table.info(slot).key), np.intp)
        return found.in_order

    def _fit(self) -> None:
        """Lengthen the columns to that of the table."""
        added = len(self._table.priority) - len(self._unit)
        if added:
            self._in_group = np.concatenate((self._in_group, np.zeros(added, np.bool_)))
            self._priority = np.concatenate((self._priority, np.zeros(added, np.int64)))
            self._unit = np.concatenate((self._unit, np.full(added, _NO_UNIT, np.intp)))

    # -- pods ----------------------------------------------------------------------------------------------------

    def pod_added(self, row: int, info: PodInfo) -> None:
        """A pod has been added to the node of a row."""
        group = info.spec.scheduling_group
        slot = self._table.slot(info.uid)
        if group is None or not group.pod_group_name or slot is None:
            return
        key = info.namespace, group.pod_group_name
        self._fit()
        self._key_of[info.uid] = key
        self._slots.setdefault(key, {})[info.uid] = slot
        terms = self._terms.get(key)
        if terms is None:
            terms = self._terms[key] = self._terms_of(key)
        self._in_group[slot] = True
        self._apply(terms, slot)

    def pod_removed(self, row: int, info: PodInfo) -> None:
        """A pod has been removed from the node of a row."""
        key = self._key_of.pop(info.uid, None)
        if key is None:
            return
        slots = self._slots[key]
        slot = slots.pop(info.uid)
        self._leave_unit(slot)
        self._in_group[slot] = False
        if not slots:
            del self._slots[key], self._terms[key]

    def _apply(self, terms: _Terms, slot: int) -> None:
        self._priority[slot] = self._table.priority[slot] if terms.priority is None else terms.priority
        self._leave_unit(slot)
        if terms.unit is None:
            return
        number = self._number_of.get(terms.unit)
        if number is None:
            if not self._free:
                self._free.append(len(self._units))
                self._units.append(None)
            number = self._number_of[terms.unit] = self._free.pop()
            self._units[number] = _Unit(terms.unit)
        unit = self._units[number]
        assert unit is not None
        unit.slots.add(slot)
        unit.in_order = None
        self._unit[slot] = number

    def _leave_unit(self, slot: int) -> None:
        number = int(self._unit[slot])
        if number == _NO_UNIT:
            return
        unit = self._units[number]
        assert unit is not None
        unit.slots.remove(slot)
        unit.in_order = None
        self._unit[slot] = _NO_UNIT
        if not unit.slots:
            del self._number_of[unit.key]
            self._units[number] = None
            self._free.append(number)

    # -- groups --------------------------------------------------------------------------------------------------

    def _terms_of(self, key: _Key) -> _Terms:
        group = self._groups.get(*key)
        if group is None:
            return _Terms(None, None)
        top: Group = group
        for above in ancestors(group, self._composites):
            top = above or top
        whole = disrupted_as_a_whole(group, self._composites)
        unit = None if whole is None else (type(whole), whole.metadata.namespace, whole.metadata.name)
        return _Terms(top.spec.priority or 0, unit)

    def _group_changed(self, before: PodGroup | None, after: PodGroup | None) -> None:
        changed = after or before
        assert changed is not None
        self._renew((changed.metadata.namespace, changed.metadata.name))

    def _composite_changed(self, before: CompositePodGroup | None, after: CompositePodGroup | None) -> None:
        changed = after or before
        assert changed is not None
        if before is None or after is None or before.spec != after.spec:
            for group in self._hierarchies.pod_groups_below(changed):
                self._renew((group.metadata.namespace, group.metadata.name))

    def _renew(self, key: _Key) -> None:
        """Apply the terms of a group that may have changed to its placed pods."""
        if key not in self._slots or (terms := self._terms_of(key)) == self._terms[key]:
            return
        self._terms[key] = terms
        for slot in self._slots[key].values():
            self._apply(terms, slot)
