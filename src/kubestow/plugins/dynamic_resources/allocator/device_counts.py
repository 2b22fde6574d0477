"""Extended resources that devices stand for, as the resource scorers see them: what there is, and what is taken.

Counted as the reference does (8.8): every published slice counts, whether or not its pool is complete, and a slice that
is offered in no known way counts everywhere. A class whose selectors fail has no devices.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kubestow.api.resource import DeviceClass, ResourceSlice
from kubestow.cluster.nodes.views import Nodes
from kubestow.framework.interface import Handle
from kubestow.plugins.dynamic_resources.extended_resources import ExtendedResources
from kubestow.plugins.dynamic_resources.inventory.cel import SelectorError, Selectors
from kubestow.plugins.dynamic_resources.inventory.devices import PooledDevice
from kubestow.plugins.dynamic_resources.inventory.slices import PublishedSlice, PublishedSlices, Unreachable

__all__ = ["DeviceCounts"]

Int64s = NDArray[np.int64]


class DeviceCounts:
    """Counts the devices behind extended resources."""

    def __init__(self, handle: Handle) -> None:
        self._cluster = handle.cluster
        self._enabled = handle.feature_enabled("DRAExtendedResource")
        self._extended = ExtendedResources(handle.cluster.catalog(DeviceClass))
        self._slices = PublishedSlices(handle.cluster.catalog(ResourceSlice), partitionable=True)
        self._selectors = Selectors()

    def is_backed(self, resource: str) -> bool:
        """Whether devices stand for a resource, on nodes that do not offer it themselves."""
        return self._enabled and self._extended.device_class(resource) is not None

    def usage(self, resource: str, nodes: Nodes) -> tuple[Int64s, Int64s]:
        """What the nodes have of a resource and what is taken of it, int64; of devices where they stand for it."""
        capacity, taken = nodes.allocatable(resource), nodes.requested(resource)
        device_class = self._extended.device_class(resource) if self._enabled else None
        if device_class is None or capacity.all():
            return capacity, taken
        devices, allocated = self._devices(device_class, nodes)
        stand_in = (capacity == 0) & (devices > 0)
        return np.where(stand_in, devices, capacity), np.where(stand_in, allocated, taken)

    def _devices(self, device_class: DeviceClass, nodes: Nodes) -> tuple[Int64s, Int64s]:
        """The class's devices on each node, and how many of them some claim has."""
        self._slices.refresh()
        counts = np.zeros((2, len(nodes)), np.int64)
        try:
            for node_name, slices in self._slices.local.items():
                position = nodes.position(node_name)
                if position is not None:
                    for published in slices:
                        counts[:, position] += self._count(device_class, published.devices)
            for published in self._slices.shared:
                self._add_shared(counts, device_class, published, nodes)
        except (SelectorError, Unreachable):
            return np.zeros(len(nodes), np.int64), np.zeros(len(nodes), np.int64)
        return counts[0], counts[1]

    def _add_shared(self, counts: Int64s, device_class: DeviceClass, published: PublishedSlice, nodes: Nodes) -> None:
        masks = list(published.masks(nodes))
        if not published.chooses_per_device:
            mask = masks[0] if masks else np.ones(len(nodes), np.bool_)
            counts += np.outer(self._count(device_class, published.devices), mask)
            return
        for device, mask in zip(published.devices, masks, strict=False):
            counts += np.outer(self._count(device_class, (device,)), mask)

    def _count(self, device_class: DeviceClass, devices: Sequence[PooledDevice]) -> Int64s:
        ledger, subject = self._cluster.claims, f"class {device_class.metadata.name}"
        chosen = [d for d in devices if d.matches(device_class.spec.selectors, self._selectors, subject=subject)]
        allocated = sum(ledger.is_taken(device.id) or ledger.is_shared(device.id) for device in chosen)
        return np.array([len(chosen), allocated], np.int64)
