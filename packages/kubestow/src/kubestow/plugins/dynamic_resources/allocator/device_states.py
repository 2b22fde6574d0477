"""States of devices: a search for the same claims has the same outcome on all nodes whose devices are in one state.

Nodes of one kind publish equal devices in pools of their own. As long as the same ones are allocated, it does not
matter on which of these nodes a search takes place. Devices with shares in use, pools with shared counters, and pools
that are incomplete or partly accessible are never equal to others; their state changes with every allocation.
"""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.devices.claims import ResourceClaimTracker
from kubestow.plugins.dynamic_resources.inventory.pools import AccessibleDevices, DevicesByNode

__all__ = ["DeviceStates"]

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
        changed = self._tracker.pools_changed_since(self._version)
        if by_node is not self._by_node or changed is None:
            self._number_all(by_node)
        else:
            for entry in {entry for pool in changed for entry in self._entries.get(pool, ())}:
                self._states[entry] = self._number(by_node.devices[entry])
        if len(self._numbers) > max(_MAX_STATES, 2 * len(by_node.devices)):
            self._numbers.clear()
            self.generation += 1
            self._number_all(by_node)
        self._version = self._tracker.version
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
        if content is None or any(map(tracker.is_shared, ids)):
            return devices, sum(tracker.pool_version(*pool.id) for pool in devices.pools)
        return content, bytes(map(tracker.is_allocated, ids))
