"""Resource pools, and the devices of them that a node can access (semantics 8.16).

A pool is published in several slices. Only its newest generation counts, and only once all slices of that generation
are published. Nodes that can access the same slices and devices share one :class:`AccessibleDevices`, so the result of
a search on one of these nodes is valid for all of them.
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.nodes.table import NodeTable
from kubestow.cluster.nodes.views import Nodes
from kubestow.plugins.dynamic_resources.inventory.devices import (
    CounterAmounts,
    PooledDevice,
    PoolID,
    PublishedSlice,
    PublishedSlices,
)

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
    #: The devices as published, if nothing else about the pool matters to a search but its driver; otherwise None.
    content: tuple[bytes, ...] | None = None

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

    @property
    def content(self) -> Hashable | None:
        """Equal for nodes with equal devices, which differ only in the names of their pools; None if not comparable."""
        contents = tuple((pool.id.driver, pool.content) for pool in self.pools)
        return None if any(content is None for _, content in contents) else contents

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


@dataclass(frozen=True, slots=True, eq=False)
class DevicesByNode:
    """The devices that each node can access; nodes that can access the same slices and devices share theirs."""

    devices: list[AccessibleDevices]
    #: Per row of the node table the position in ``devices``, intp.
    positions: NDArray[np.intp]

    def of_row(self, row: int) -> AccessibleDevices:
        """The devices that the node of a row can access."""
        return self.devices[int(self.positions[row])]


@dataclass(frozen=True, slots=True)
class _Gathered:
    """Accessible devices with what they are made of: the local slices of the node, all of each pool, unusable pools."""

    devices: AccessibleDevices
    node_local: Sequence[PublishedSlice]
    by_pool: Mapping[PoolID, Sequence[PublishedSlice]]
    unusable: Mapping[PoolID, DevicePool]


class DevicePools:
    """Gathers the published slices into pools, for the nodes of a table."""

    def __init__(self, slices: PublishedSlices, table: NodeTable) -> None:
        self._slices, self._table = slices, table
        #: The versions of slices and nodes for which ``_by_node`` holds.
        self._versions = (-1, -1)
        self._by_node = DevicesByNode([], np.empty(0, np.intp))
        self._multi_node: list[PublishedSlice] = []
        #: The pools with shared counters as seen from nodes that can access nothing else of them, if that is incomplete
        #: or invalid: these fail some claims on every node. With the slices of the pool.
        self._unusable: dict[PoolID, tuple[Sequence[PublishedSlice], DevicePool]] = {}
        #: By the node name, if it has local slices, and the bits of the masks of all other slices.
        self._gathered: dict[tuple[str, bytes], _Gathered] = {}

    def by_node(self) -> DevicesByNode:
        """The devices that each node can access; the same object until that changes. Raises NodeSelectionError."""
        self._slices.refresh()
        versions = (self._slices.version, self._table.revision)
        if self._versions != versions:
            self._by_node = self._gather_for_all_nodes()
            self._versions = versions
        return self._by_node

    def _gather_for_all_nodes(self) -> DevicesByNode:
        nodes = Nodes(self._table, slice(0, len(self._table)))
        multi_node = self._slices.multi_node
        selections = [_NodeSelection(published, list(published.node_masks(nodes))) for published in multi_node]
        masks = [mask for selection in selections for mask in selection.masks]
        table: Mask = np.stack(masks, axis=1) if masks else np.empty((len(nodes), 0), np.bool_)
        # The bits in the keys are those of these slices.
        before = self._gathered if self._multi_node == multi_node else {}
        self._unusable = dict(self._find_unusable())
        self._multi_node, self._gathered = multi_node, {}
        numbers: dict[AccessibleDevices, int] = {}
        positions = np.empty(len(nodes), np.intp)
        for row, name in enumerate(self._table.names):
            node_local = self._slices.node_local.get(name, [])
            key = (name if node_local else "", table[row].tobytes())
            gathered = self._gathered.get(key)
            if gathered is None:
                gathered = before.get(key)
                if gathered is None or not self._is_current(gathered, node_local):
                    gathered = self._gather(node_local, table[row], selections)
                self._gathered[key] = gathered
            positions[row] = numbers.setdefault(gathered.devices, len(numbers))
        return DevicesByNode(list(numbers), positions)

    def _is_current(self, gathered: _Gathered, node_local: Sequence[PublishedSlice]) -> bool:
        """Whether devices are made of the slices that there are now; slices that have not changed stay the same."""
        return (
            gathered.node_local == node_local
            and all(self._slices.by_pool.get(pool) == slices for pool, slices in gathered.by_pool.items())
            and gathered.unusable == self._unusable_besides(gathered.by_pool)
        )

    def _find_unusable(self) -> Iterator[tuple[PoolID, tuple[Sequence[PublishedSlice], DevicePool]]]:
        for pool, with_counters in self._slices.shared_counters.items():
            slices = self._slices.by_pool[pool]
            before = self._unusable.get(pool)
            if before is not None and before[0] == slices:
                yield pool, before
                continue
            newest: dict[PoolID, list[PublishedSlice]] = {}
            for published in with_counters:
                _add_slice(newest, published)
            gathered = self._pool(pool, newest[pool], set())
            if gathered is not None and (gathered.is_incomplete or gathered.invalid_reason):
                yield pool, (slices, gathered)

    def _unusable_besides(self, pools: Container[PoolID]) -> dict[PoolID, DevicePool]:
        return {pool: unusable for pool, (_, unusable) in self._unusable.items() if pool not in pools}

    def _gather(
        self, node_local: list[PublishedSlice], selected: Mask, selections: Sequence[_NodeSelection]
    ) -> _Gathered:
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
        for pool in by_pool:
            for published in self._slices.shared_counters.get(pool, ()):
                _add_slice(by_pool, published)
        unusable = self._unusable_besides(by_pool)
        pools = [self._pool(pool, slices, inaccessible) for pool, slices in by_pool.items()]
        devices = AccessibleDevices.of([*(pool for pool in pools if pool is not None), *unusable.values()])
        return _Gathered(devices, node_local, {pool: self._slices.by_pool[pool] for pool in by_pool}, unusable)

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
        if not (counters or of_other_slices or inaccessible):
            complete.content = tuple(published.content for published in accessible)
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
