"""Compatibility groups: which partitions of a device can be allocated beside each other (semantics 8.16).

A device may declare groups for each counter set that it consumes. With the gate DRADeviceCompatibilityGroups, all
allocated devices that consume a counter set must have a group in common; a device that declares none goes with others
that declare none. Without the gate kube-scheduler cannot check that, so it uses neither devices that declare groups nor
any device beside an allocated one that does.

The rules are those of the published sources of v1.37 (the experimental allocator); they were not compared with the
binary.
"""

from __future__ import annotations

from typing import Any

from kubestow.plugins.dynamic_resources.pools import DevicePool, PooledDevice
from kubestow.plugins.dynamic_resources.search import AllocationSearch

#: Stands for the groups of a device that declares none.
_NO_GROUPS = frozenset([""])


class SearchWithCompatibilityGroups(AllocationSearch):
    """The search since :attr:`Behaviour.COMPATIBILITY_GROUPS_ARE_READ`."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        #: By pool: what the devices have in common that were allocated before this search, by counter set.
        self._allocated_before: dict[DevicePool, dict[str, frozenset[str]]] = {}

    def _charge_counters(self, device: PooledDevice, pool: DevicePool, *, is_shared: bool) -> bool:
        if device.consumes_counters and self._features.partitionable_devices:
            may_use = self._is_compatible if self._features.compatibility_groups else self._has_no_groups
            if not self._is_charged(device, is_shared=is_shared) and not may_use(device, pool):
                return False
        return super()._charge_counters(device, pool, is_shared=is_shared)

    def _is_compatible(self, device: PooledDevice, pool: DevicePool) -> bool:
        """Whether a device has a group in common with those that consume the same counter sets."""
        before = self._allocated_before.get(pool)
        if before is None:
            before = self._allocated_before[pool] = {}
            for allocated in self._available_counters.allocated(pool):
                for counter_set in allocated.consumes_counters:
                    before[counter_set] = _in_common(before.get(counter_set), _groups_of(allocated, counter_set))
        placed = [each.device for results in self._results for each in results if each.device.id[:2] == pool.id]
        for counter_set in device.consumes_counters:
            common = before.get(counter_set)
            for other in placed:
                if counter_set in other.consumes_counters:
                    common = _in_common(common, _groups_of(other, counter_set))
            if common is not None and common.isdisjoint(_groups_of(device, counter_set)):
                return False
        return True

    def _has_no_groups(self, device: PooledDevice, pool: DevicePool) -> bool:
        """Whether neither a device nor an allocated one that consumes one of its counter sets declares groups."""
        return not device.compatibility_groups and not any(
            device.consumes_counters.keys() & allocated.compatibility_groups.keys()
            for allocated in self._available_counters.allocated(pool)
        )


def _groups_of(device: PooledDevice, counter_set: str) -> frozenset[str]:
    return device.compatibility_groups.get(counter_set, _NO_GROUPS)


def _in_common(common: frozenset[str] | None, groups: frozenset[str]) -> frozenset[str]:
    """The groups that some devices (None for none) have in common with another one.

    Devices with and without groups are never allocated beside each other, unless their slice has been changed since;
    then the first of them decides.
    """
    if common is None:
        return groups
    return common if (common == _NO_GROUPS) is not (groups == _NO_GROUPS) else common & groups
