"""The shared counters of pools: what allocated devices leave of them (semantics 8.16, partitionable devices).

A device consumes the counters of its pool while it is allocated, whether its slice is accessible or not. What a search
in progress has consumed is part of the search.
"""

from __future__ import annotations

from kubestow.cluster.devices.claims import ResourceClaimTracker
from kubestow.plugins.dynamic_resources.inventory.devices import CounterAmounts, PooledDevice
from kubestow.plugins.dynamic_resources.inventory.pools import DevicePool

__all__ = ["AvailableCounters", "add_consumption"]


class AvailableCounters:
    """Counter amounts that allocated devices do not consume, cached per pool until its allocations change."""

    def __init__(self, tracker: ResourceClaimTracker) -> None:
        self._tracker = tracker
        self._cache: dict[DevicePool, tuple[int, dict[str, dict[str, int]]]] = {}

    def clear(self) -> None:
        """Drop the cache, because slices have changed."""
        self._cache.clear()

    def of_pool(self, pool: DevicePool) -> CounterAmounts:
        """The available amounts of a pool in nano units; negative where devices consume more than there is."""
        changes = self._tracker.pool_version(*pool.id)
        cached = self._cache.get(pool)
        if cached is None or cached[0] != changes:
            cached = self._cache[pool] = (changes, self._available(pool))
        return cached[1]

    def _available(self, pool: DevicePool) -> dict[str, dict[str, int]]:
        available = {name: dict(counters) for name, counters in pool.shared_counters.items()}
        for device in pool.devices():
            if self._tracker.is_allocated(device.id) or self._tracker.is_shared(device.id):
                add_consumption(available, device, -1)
        return available


def add_consumption(amounts: dict[str, dict[str, int]], device: PooledDevice, sign: int) -> None:
    """Add (+1) or subtract (-1) what a device consumes of shared counters."""
    for counter_set, consumed in device.consumes_counters.items():
        counters = amounts.setdefault(counter_set, {})
        for name, amount in consumed.items():
            counters[name] = counters.get(name, 0) + sign * amount
