"""Counts the devices behind extended resources for the resource scorers: devices on a node, and allocated ones.

As in kube-scheduler (semantics 8.8), devices of all published slices count, whether or not their pool is complete; a
slice with an unknown kind of node selection counts on all nodes; a class whose selectors fail has no devices.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kubestow.api.resource import DeviceClass, ResourceSlice
from kubestow.cluster.nodes.views import NodeRow, Nodes
from kubestow.framework.interface import Handle
from kubestow.plugins.dynamic_resources.extended_resources import ExtendedResources
from kubestow.plugins.dynamic_resources.inventory.cel import SelectorCache, SelectorError
from kubestow.plugins.dynamic_resources.inventory.devices import PooledDevice
from kubestow.plugins.dynamic_resources.inventory.slices import NodeSelectionError, PublishedSlice, PublishedSlices

__all__ = ["DeviceCounts"]

Int64s = NDArray[np.int64]


class DeviceCounts:
    """Counts the devices that back extended resources."""

    def __init__(self, handle: Handle) -> None:
        self._cluster = handle.cluster
        self._enabled = handle.feature_enabled("DRAExtendedResource")
        self._extended_resources = ExtendedResources(handle.cluster.catalog(DeviceClass))
        self._slices = PublishedSlices(handle.cluster.catalog(ResourceSlice), partitionable_devices=True)
        self._selectors = SelectorCache()

    def is_backed(self, resource: str) -> bool:
        """Whether devices back a resource on nodes that do not offer it themselves."""
        return self._enabled and self._extended_resources.device_class(resource) is not None

    def usage(self, resource: str, nodes: Nodes) -> tuple[Int64s, Int64s]:
        """Capacity and use of a resource per node, two int64 arrays; in devices where they back the resource."""
        capacity, used = nodes.allocatable(resource), nodes.requested(resource)
        device_class = self._extended_resources.device_class(resource) if self._enabled else None
        if device_class is None or capacity.all():
            return capacity, used
        devices, allocated = self._count_on_nodes(device_class, nodes)
        is_backed = (capacity == 0) & (devices > 0)
        return np.where(is_backed, devices, capacity), np.where(is_backed, allocated, used)

    def usage_of_row(self, resource: str, node: NodeRow) -> tuple[int, int]:
        """The same for a single node."""
        capacity = node.allocatable(resource)
        if capacity or not self.is_backed(resource):
            return capacity, node.requested(resource)
        capacities, used = self.usage(resource, node.as_nodes())
        return capacities.item(), used.item()

    def _count_on_nodes(self, device_class: DeviceClass, nodes: Nodes) -> Int64s:
        """The devices of a class on each node and how many of them are allocated, int64 of shape (2, nodes)."""
        self._slices.refresh()
        counts = np.zeros((2, len(nodes)), np.int64)
        try:
            for position, name in enumerate(nodes.names):
                for published in self._slices.node_local.get(name, ()):
                    counts[:, position] += self._count(device_class, published.devices)
            for published in self._slices.multi_node:
                self._add_multi_node(counts, device_class, published, nodes)
        except (SelectorError, NodeSelectionError):
            counts[:] = 0
        return counts

    def _add_multi_node(
        self, counts: Int64s, device_class: DeviceClass, published: PublishedSlice, nodes: Nodes
    ) -> None:
        masks = list(published.node_masks(nodes))
        if not published.per_device_node_selection:
            mask = masks[0] if masks else np.ones(len(nodes), np.bool_)
            counts += np.outer(self._count(device_class, published.devices), mask)
            return
        for device, mask in zip(published.devices, masks, strict=False):
            counts += np.outer(self._count(device_class, (device,)), mask)

    def _count(self, device_class: DeviceClass, devices: Sequence[PooledDevice]) -> Int64s:
        """The number of devices of a class and how many of them are allocated, int64 of shape (2,)."""
        tracker, subject = self._cluster.resource_claims, f"class {device_class.metadata.name}"
        matching = [d for d in devices if d.matches(device_class.spec.selectors, self._selectors, subject=subject)]
        allocated = sum(tracker.is_allocated(device.id) or tracker.is_shared(device.id) for device in matching)
        return np.array([len(matching), allocated], np.int64)
