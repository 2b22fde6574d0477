"""Resource pools, and the devices of them that a node can access (semantics 8.16).

A pool is published in several slices. Only its newest generation counts, and only once all slices of that generation
are published. Nodes that can access the same slices and devices share one :class:`AccessibleDevices`, so the result of
a search on one of these nodes is valid for all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.nodes.views import Nodes
from kubestow.plugins.dynamic_resources.inventory.devices import CounterAmounts, PooledDevice
from kubestow.plugins.dynamic_resources.inventory.slices import PoolID, PublishedSlice, PublishedSlices

__all__ = ["AccessibleDevices", "CandidateDevice", "DevicePool", "DevicePools"]

Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class CandidateDevice:
    """A device of an accessible slice; ``accessible`` is False if the device itself selects other nodes."""

    device: PooledDevice
    pool: DevicePool
    accessible: bool


@dataclass(slots=True, eq=False)
class DevicePool:
    """A pool as accessible from some nodes. An incomplete or invalid pool has no devices."""

    id: PoolID
    is_incomplete: bool = False
    invalid_reason: str = ""
    candidates: tuple[CandidateDevice, ...] = ()
    #: Devices of slices that the nodes cannot access.
    inaccessible: tuple[PooledDevice, ...] = ()
    shared_counters: CounterAmounts = field(default_factory=dict)

    @property
    def has_binding_conditions(self) -> bool:
        """Whether any device has binding conditions; such pools are searched last."""
        return any(candidate.device.device.binding_conditions for candidate in self.candidates)

    def devices(self) -> Iterator[PooledDevice]:
        """All devices, accessible or not."""
        yield from (candidate.device for candidate in self.candidates)
        yield from self.inaccessible


@dataclass(frozen=True, slots=True, eq=False)
class AccessibleDevices:
    """The pools that some nodes can access, and their candidate devices, in search order."""

    pools: tuple[DevicePool, ...]
    candidates: tuple[CandidateDevice, ...]

    @classmethod
    def of(cls, pools: Iterable[DevicePool]) -> AccessibleDevices:
        """Orders pools by driver and name, those with binding conditions last."""
        ordered = tuple(sorted(pools, key=lambda pool: (pool.has_binding_conditions, pool.id)))
        return cls(ordered, tuple(candidate for pool in ordered for candidate in pool.candidates))


@dataclass(frozen=True, slots=True)
class _NodeSelection:
    """The nodes that can access a slice without a node name: one mask over the nodes of a view, or one per device."""

    slice: PublishedSlice
    masks: list[Mask]


class DevicePools:
    """Gathers the published slices into pools."""

    def __init__(self, slices: PublishedSlices) -> None:
        self._slices = slices
        self._version = -1
        #: By the node name, if it has local slices, and the bits of the masks of all other slices.
        self._cache: dict[tuple[str, bytes], AccessibleDevices] = {}

    def accessible_from(self, nodes: Nodes) -> list[AccessibleDevices]:
        """The devices that each of the nodes can access. Raises NodeSelectionError."""
        self._slices.refresh()
        if self._version != self._slices.version:
            self._cache.clear()
            self._version = self._slices.version
        selections = [
            _NodeSelection(published, list(published.node_masks(nodes))) for published in self._slices.multi_node
        ]
        masks = [mask for selection in selections for mask in selection.masks]
        table: Mask = np.stack(masks, axis=1) if masks else np.empty((len(nodes), 0), np.bool_)
        return [self._accessible(name, table[position], selections) for position, name in enumerate(nodes.names)]

    def _accessible(self, node_name: str, selected: Mask, selections: Sequence[_NodeSelection]) -> AccessibleDevices:
        """``selected`` (bool) are the masks of all selections at one node."""
        node_local = self._slices.node_local.get(node_name)
        key = (node_name if node_local else "", selected.tobytes())
        cached = self._cache.get(key)
        if cached is None:
            cached = self._cache[key] = self._gather(node_local or [], selected, selections)
        return cached

    def _gather(
        self, node_local: list[PublishedSlice], selected: Mask, selections: Sequence[_NodeSelection]
    ) -> AccessibleDevices:
        by_pool: dict[PoolID, list[PublishedSlice]] = {}
        inaccessible: set[PooledDevice] = set()
        for published in node_local:
            _add_slice(by_pool, published)
        start = 0
        for selection in selections:
            published, bits = selection.slice, selected[start : start + len(selection.masks)]
            start += len(selection.masks)
            if bits.any():
                _add_slice(by_pool, published)
                if published.per_device_node_selection:
                    inaccessible |= {device for device, bit in zip(published.devices, bits, strict=False) if not bit}
        pools = (self._pool(pool, slices, inaccessible) for pool, slices in by_pool.items())
        return AccessibleDevices.of(pool for pool in pools if pool is not None)

    def _pool(
        self, pool: PoolID, accessible: list[PublishedSlice], inaccessible: set[PooledDevice]
    ) -> DevicePool | None:
        """One pool; None if inaccessible slices are of a newer generation."""
        generation, slice_count = accessible[0].generation, accessible[0].source.spec.pool.resource_slice_count
        of_generation = accessible
        if len(accessible) != slice_count:
            if any(other.generation > generation for other in self._slices.by_pool[pool]):
                return None
            of_generation = [other for other in self._slices.by_pool[pool] if other.generation == generation]
            if len(of_generation) != slice_count:
                return DevicePool(pool, is_incomplete=True)
        return self._complete_pool(pool, accessible, of_generation, inaccessible)

    def _complete_pool(
        self,
        pool: PoolID,
        accessible: Sequence[PublishedSlice],
        of_generation: Sequence[PublishedSlice],
        inaccessible: set[PooledDevice],
    ) -> DevicePool:
        accessible = sorted(accessible, key=lambda published: published.name)
        names = {published.name for published in accessible}
        of_other_slices = [device for other in of_generation if other.name not in names for device in other.devices]
        devices = [device for published in accessible if not published.shared_counters for device in published.devices]
        counters = [pair for published in accessible for pair in published.shared_counters]
        invalid_reason = (
            next((published.invalid_reason for published in accessible if published.invalid_reason), "")
            or _duplicate([device.id.device for device in devices], "device name")
            or _duplicate([name for name, _ in counters], "counter set name")
        )
        if not invalid_reason and self._slices.partitionable_devices:
            invalid_reason = _unknown_counter([*devices, *of_other_slices], dict(counters))
        if invalid_reason:
            return DevicePool(pool, invalid_reason=invalid_reason)
        complete = DevicePool(pool, inaccessible=tuple(of_other_slices), shared_counters=dict(counters))
        complete.candidates = tuple(CandidateDevice(device, complete, device not in inaccessible) for device in devices)
        return complete


def _add_slice(by_pool: dict[PoolID, list[PublishedSlice]], published: PublishedSlice) -> None:
    """Add a slice to its pool: of an older generation it is ignored, of a newer one it replaces all others."""
    slices = by_pool.setdefault(published.pool, [])
    if slices and published.generation < slices[0].generation:
        return
    if slices and published.generation > slices[0].generation:
        slices.clear()
    slices.append(published)


def _duplicate(names: Sequence[str], what: str) -> str:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return f"duplicate {what} {name}"
        seen.add(name)
    return ""


def _unknown_counter(devices: Iterable[PooledDevice], shared_counters: Mapping[str, Mapping[str, int]]) -> str:
    """The first consumed counter set or counter that the pool does not have."""
    for device in devices:
        for counter_set, consumed in device.consumes_counters.items():
            if counter_set not in shared_counters:
                return f"counter set {counter_set} not found"
            for name in consumed:
                if name not in shared_counters[counter_set]:
                    return f"counter {name} not found in counter set {counter_set}"
    return ""
