"""States of devices: a search for the same claims has the same outcome on all nodes whose devices are in one state.

Nodes of one kind publish equal devices in pools of their own. As long as the same ones are allocated, it does not
matter on which of these nodes a search takes place. Devices with shares in use, pools with shared counters, and pools
that are incomplete or partly accessible are never equal to others; their state changes with every allocation.

How much of a device's capacity a request consumes (semantics 8.16, consumable capacity).

A device with ``allowMultipleAllocations`` is shared until one of its capacities is used up. A request consumes the
amount that it specifies, rounded up by the request policy of the capacity; without an amount it consumes the policy's
default, or else the whole capacity.

The shared counters of pools: what allocated devices leave of them (semantics 8.16, partitionable devices).

A device consumes the counters of its pool while it is allocated, whether its slice is accessible or not. What a search
in progress has consumed is part of the search.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping

import numpy as np
from numpy.typing import NDArray

from kubestow.api.formats.quantity import NANOS, Quantity, nanos, units
from kubestow.api.resource import (
    CapacityRequestPolicy,
    CapacityRequestPolicyRange,
    CapacityRequirements,
    DeviceCapacity,
)
from kubestow.cluster.resource_claims import ResourceClaimTracker
from kubestow.plugins.dynamic_resources.inventory.devices import CounterAmounts, PooledDevice
from kubestow.plugins.dynamic_resources.inventory.pools import AccessibleDevices, DevicePool, DevicesByNode

#: With more states than this, and more than twice as many as there are nodes, they are numbered anew.
_MAX_STATES = 16_384


class DeviceStates:
    """Numbers the states of the devices that nodes can access, and follows the changes of allocations."""

    def __init__(self, tracker: ResourceClaimTracker) -> None:
        self._tracker = tracker
        #: Incremented when the states are numbered anew.
        self.generation = 0
        self._numbers: dict[Hashable, int] = {}
        self._by_node: DevicesByNode | None = None
        self._states = np.empty(0, np.intp)
        #: The entries of ``_states`` that depend on each pool.
        self._entries: dict[tuple[str, str], list[int]] = {}
        #: The version of the tracker that ``_states`` holds for.
        self._version = -1

    def __len__(self) -> int:
        return len(self._numbers)

    def of(self, by_node: DevicesByNode) -> NDArray[np.intp]:
        """The number of the state of each entry of ``by_node.devices``, intp."""
        changed = self._tracker.devices.pools_changed_since(self._version)
        if by_node is not self._by_node or changed is None:
            self._number_all(by_node)
        else:
            for entry in {entry for pool in changed for entry in self._entries.get(pool, ())}:
                self._states[entry] = self._number(by_node.devices[entry])
        if len(self._numbers) > max(_MAX_STATES, 2 * len(by_node.devices)):
            self._numbers.clear()
            self.generation += 1
            self._number_all(by_node)
        self._version = self._tracker.devices.version
        return self._states

    def _number_all(self, by_node: DevicesByNode) -> None:
        self._by_node, self._entries = by_node, {}
        self._states = np.empty(len(by_node.devices), np.intp)
        for entry, devices in enumerate(by_node.devices):
            self._states[entry] = self._number(devices)
            for pool in devices.pools:
                self._entries.setdefault(pool.id, []).append(entry)

    def _number(self, devices: AccessibleDevices) -> int:
        return self._numbers.setdefault(self._state(devices), len(self._numbers))

    def _state(self, devices: AccessibleDevices) -> Hashable:
        content, tracker = devices.content, self._tracker
        ids = [candidate.device.id for candidate in devices.candidates]
        if content is None or any(map(tracker.devices.is_shared, ids)):
            return devices, sum(tracker.devices.pool_version(*pool.id) for pool in devices.pools)
        return content, bytes(map(tracker.devices.is_allocated, ids))


_BINARY_SUFFIXES = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")


def consumed_capacity(device: PooledDevice, requirements: CapacityRequirements | None) -> dict[str, Quantity]:
    """The amount that a request consumes of each capacity of a device. Raises InvalidQuantity."""
    requests = requirements.requests if requirements is not None else {}
    return {name: _consumed(requests.get(name), capacity) for name, capacity in device.device.capacity.items()}


def has_capacity(
    device: PooledDevice, requirements: CapacityRequirements | None, *consumed: Mapping[str, int] | None
) -> bool:
    """Whether a device has all requested capacities, in amounts that their policies permit.

    ``consumed`` are the amounts in nano units that other allocations consume. Raises InvalidQuantity.
    """
    if requirements is not None and any(name not in device.capacity for name in requirements.requests):
        return False
    for name, quantity in consumed_capacity(device, requirements).items():
        amount = nanos(quantity)
        policy = device.device.capacity[name].request_policy
        if policy is not None and not _permits(policy, amount):
            return False
        if amount + sum(amounts.get(name, 0) for amounts in consumed if amounts) > device.capacity[name]:
            return False
    return True


def _consumed(requested: Quantity | None, capacity: DeviceCapacity) -> Quantity:
    policy = capacity.request_policy
    if requested is None:
        return capacity.value if policy is None or policy.default is None else policy.default
    if policy is None:
        return requested
    if policy.valid_range is not None and policy.valid_range.min is not None:
        return _rounded_up(requested, policy.valid_range, policy.valid_range.min)
    return next((value for value in policy.valid_values if nanos(requested) <= nanos(value)), requested)


def _rounded_up(requested: Quantity, valid_range: CapacityRequestPolicyRange, minimum: Quantity) -> Quantity:
    if nanos(requested) < nanos(minimum):
        return minimum
    step = _step(valid_range)
    if not step:
        return requested
    above_minimum = units(requested) - units(minimum)
    return _binary_quantity(units(minimum) + -(-above_minimum // step) * step)


def _permits(policy: CapacityRequestPolicy, amount: int) -> bool:
    if policy.default is not None and amount == nanos(policy.default):
        return True
    if policy.valid_range is not None:
        return _is_in_range(policy.valid_range, amount)
    return not policy.valid_values or any(amount == nanos(value) for value in policy.valid_values)


def _is_in_range(valid_range: CapacityRequestPolicyRange, amount: int) -> bool:
    if valid_range.max is not None and amount > nanos(valid_range.max):
        return False
    step = _step(valid_range)
    minimum = units(valid_range.min) if valid_range.min is not None else 0
    return not step or (-(-amount // NANOS) - minimum) % step == 0


def _step(valid_range: CapacityRequestPolicyRange) -> int:
    return units(valid_range.step) if valid_range.step is not None else 0


def _binary_quantity(value: int) -> str:
    """A whole number in the canonical form of a quantity with a binary suffix."""
    power = 0
    while value and value % 1024 == 0 and power < len(_BINARY_SUFFIXES) - 1:
        value //= 1024
        power += 1
    return f"{value}{_BINARY_SUFFIXES[power]}"


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
        changes = self._tracker.devices.pool_version(*pool.id)
        cached = self._cache.get(pool)
        if cached is None or cached[0] != changes:
            cached = self._cache[pool] = (changes, self._available(pool))
        return cached[1]

    def _available(self, pool: DevicePool) -> dict[str, dict[str, int]]:
        available = {name: dict(counters) for name, counters in pool.shared_counters.items()}
        for device in pool.devices():
            if self._tracker.devices.is_allocated(device.id) or self._tracker.devices.is_shared(device.id):
                add_consumption(available, device, -1)
        return available


def add_consumption(amounts: dict[str, dict[str, int]], device: PooledDevice, sign: int) -> None:
    """Add (+1) or subtract (-1) what a device consumes of shared counters."""
    for counter_set, consumed in device.consumes_counters.items():
        counters = amounts.setdefault(counter_set, {})
        for name, amount in consumed.items():
            counters[name] = counters.get(name, 0) + sign * amount
