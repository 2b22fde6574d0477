"""Resource slices as drivers publish them, their pools, and the devices that a node can access (semantics 8.16).

The quantities and attributes of a device that the allocator needs are parsed once. The results of CEL selectors are
cached on the device, so they are dropped with it when its slice changes.

A slice is local to one node, or for the nodes of a selector, or for all nodes, or selects nodes per device. A pool is
published in several slices. Only its newest generation counts, and only once all slices of that generation are
published. Nodes that can access the same slices and devices share one :class:`AccessibleDevices`, so the result of a
search on one of these nodes is valid for all of them.
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from kubestow.api.core import NodeSelector
from kubestow.api.formats.quantity import nanos
from kubestow.api.resource import Device, DeviceAttribute, DeviceSelector, ResourceSlice
from kubestow.cluster.nodes.selectors import matches_term
from kubestow.cluster.nodes.table import NodeTable
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.resource_claims import DeviceID
from kubestow.errors import InvalidQuantity, InvalidSelector
from kubestow.plugins.dynamic_resources.cel import AttributeValue, CELDevice, SelectorCache, SelectorError, Version

#: Nano units by counter, by counter set.
CounterAmounts = Mapping[str, Mapping[str, int]]

Mask = NDArray[np.bool_]

_MAX_CACHED_MATCHES = 256

_encode = msgspec.json.Encoder(order="deterministic").encode


#: What Kubernetes adds to the error of a selector that reads an attribute that a device does not have.
_OPTIONAL = (
    ". consider using CEL optional chaining (.? followed by orValue()) or guarding the check with has() for optional "
    "fields"
)


class PooledDevice:
    """A device of a pool, with the slice that publishes it."""

    __slots__ = (
        "_cel_device",
        "_matches",
        "capacity",
        "compatibility_groups",
        "consumes_counters",
        "device",
        "id",
        "slice",
    )

    def __init__(self, source: ResourceSlice, device: Device) -> None:
        """Raises InvalidQuantity for an invalid capacity or counter."""
        self.slice = source
        self.device = device
        self.id = DeviceID(source.spec.driver, source.spec.pool.name, device.name)
        #: Nano units by capacity.
        self.capacity = {name: nanos(capacity.value) for name, capacity in device.capacity.items()}
        #: What the device consumes of its pool's shared counters while it is allocated.
        self.consumes_counters: CounterAmounts = {
            consumption.counter_set: {name: nanos(counter.value) for name, counter in consumption.counters.items()}
            for consumption in device.consumes_counters
        }
        #: The compatibility groups that it declares, by counter set; only where it declares any.
        self.compatibility_groups: Mapping[str, frozenset[str]] = {
            consumption.counter_set: frozenset(consumption.compatibility_groups)
            for consumption in device.consumes_counters
            if consumption.compatibility_groups
        }
        self._cel_device: CELDevice | None = None
        self._matches: dict[str, bool | SelectorError] = {}

    @property
    def node_name(self) -> str:
        """The only node that can access the device; empty if there may be several."""
        spec = self.slice.spec
        return self.device.node_name if spec.per_device_node_selection else spec.node_name

    def attribute(self, name: str) -> DeviceAttribute | None:
        """An attribute by its fully qualified name; attributes without a domain belong to the driver's."""
        attribute = self.device.attributes.get(name)
        domain, separator, short_name = name.partition("/")
        if attribute is None and separator and domain == self.id.driver:
            return self.device.attributes.get(short_name)
        return attribute

    def matches(
        self, selectors: Sequence[DeviceSelector], compiled: SelectorCache, *, subject: str, is_named: bool = False
    ) -> bool:
        """Whether all selectors match.

        Raises SelectorError with ``subject``, the number of the failed selector and, if it ``is_named``, the device.
        """
        for number, selector in enumerate(selectors):
            expression = selector.cel.expression if selector.cel else ""
            result = self._matches.get(expression)
            if result is None:
                result = self._evaluate(expression, compiled)
            if isinstance(result, SelectorError):
                device, hint = "", ""
                if is_named and str(result).startswith("CEL runtime error"):
                    device, hint = f" on device {self.id}", _OPTIONAL if "no such key:" in str(result) else ""
                raise SelectorError(f"{subject}: selector #{number}{device}: {result}{hint}")
            if not result:
                return False
        return True

    def share_matches(self, other: PooledDevice) -> None:
        """Share the results of selectors with a device that has the same driver, attributes and capacity."""
        self._matches = other._matches

    def _evaluate(self, expression: str, compiled: SelectorCache) -> bool | SelectorError:
        try:
            selector = compiled.compile(expression)
            if self._cel_device is None:
                self._cel_device = _cel_device(self.id.driver, self.device, self.capacity)
            result: bool | SelectorError = selector.matches(self._cel_device)
        except SelectorError as error:
            result = error
        if len(self._matches) >= _MAX_CACHED_MATCHES:
            self._matches.clear()
        self._matches[expression] = result
        return result


def _cel_device(driver: str, device: Device, capacity: Mapping[str, int]) -> CELDevice:
    attributes: dict[str, dict[str, AttributeValue]] = {}
    for name, attribute in device.attributes.items():
        domain, short_name = _qualified(name, driver)
        attributes.setdefault(domain, {})[short_name] = _value(name, attribute)
    capacities: dict[str, dict[str, int]] = {}
    for name, amount in capacity.items():
        domain, short_name = _qualified(name, driver)
        capacities.setdefault(domain, {})[short_name] = amount
    return CELDevice(
        driver=driver,
        attributes=attributes,
        capacity=capacities,
        allow_multiple_allocations=device.allow_multiple_allocations,
    )


def _qualified(name: str, driver: str) -> tuple[str, str]:
    domain, separator, short_name = name.partition("/")
    return (domain, short_name) if separator else (driver, name)


def _value(name: str, attribute: DeviceAttribute) -> AttributeValue:
    for value in (attribute.int_value, attribute.bool_value, attribute.string_value):
        if value is not None:
            return value
    if attribute.version_value is None:
        raise SelectorError(f"CEL runtime error: attribute {name}: unsupported attribute value")
    try:
        return Version.parse(attribute.version_value)
    except ValueError as error:
        raise SelectorError(f"CEL runtime error: attribute {name}: {error}") from None


class PoolID(NamedTuple):
    """The identity of a pool in the cluster."""

    driver: str
    name: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.name}"


class NodeSelectionError(Exception):
    """The node selector of a slice is invalid; the text names the slice."""


class PublishedSlice:
    """A slice with its devices and shared counters (nano units); without either if ``invalid_reason`` is set."""

    __slots__ = ("content", "devices", "invalid_reason", "name", "pool", "shared_counters", "source")

    def __init__(self, source: ResourceSlice) -> None:
        spec = source.spec
        self.source = source
        self.name = source.metadata.name
        self.pool = PoolID(spec.driver, spec.pool.name)
        self.devices: tuple[PooledDevice, ...] = ()
        self.shared_counters: list[tuple[str, dict[str, int]]] = []
        self.invalid_reason = ""
        #: The devices as published, and whether for one node: equal for slices of nodes that have equal devices.
        self.content: bytes = _encode((bool(spec.node_name), spec.devices))
        try:
            self.devices = tuple(PooledDevice(source, device) for device in spec.devices)
            self.shared_counters = [
                (counter_set.name, {name: nanos(counter.value) for name, counter in counter_set.counters.items()})
                for counter_set in spec.shared_counters
            ]
        except InvalidQuantity as error:
            self.invalid_reason = f"slice {self.name}: {error}"

    def share_with(self, other: PublishedSlice) -> None:
        """Share what is known about the devices of another slice of the driver, with equal content."""
        self.content = other.content
        for own, device in zip(self.devices, other.devices, strict=False):  # those of an invalid slice are left out
            own.share_matches(device)

    @property
    def generation(self) -> int:
        """The generation of the pool that the slice belongs to."""
        return self.source.spec.pool.generation

    @property
    def per_device_node_selection(self) -> bool:
        """Whether each device selects the nodes that can access it."""
        return self.source.spec.per_device_node_selection

    def node_masks(self, nodes: Nodes) -> Iterator[Mask]:
        """The nodes that can access a slice without a node name, bool: one mask, or one per device.

        No mask for an unknown kind of node selection. Raises NodeSelectionError.
        """
        spec = self.source.spec
        try:
            if spec.all_nodes:
                yield np.ones(len(nodes), np.bool_)
            elif spec.node_selector is not None:
                yield matching_nodes(spec.node_selector, nodes)
            elif spec.per_device_node_selection:
                for device in spec.devices:
                    yield _device_mask(device, nodes)
        except InvalidSelector as error:
            problem = f"failed to perform node selection for slice {self.name}: {error}"
            raise NodeSelectionError(f"gather pool information: {problem}") from None


class Slices(Protocol):
    """The slices of a cluster, in the order of their names."""

    @property
    def version(self) -> int:
        """Incremented with every change."""

    def __iter__(self) -> Iterator[ResourceSlice]:
        """One that has not changed is the same object."""


class PublishedSlices:
    """All slices of a cluster; a slice that has not changed keeps its devices and their cached results.

    Without ``partitionable_devices`` (the feature gate), no node can access slices with shared counters or per-device
    node selection, although they are part of their pools.
    """

    #: Whether slices with shared counters are for the whole pool, and carry no devices.
    counters_are_apart = True

    def __init__(self, catalog: Slices, *, partitionable_devices: bool) -> None:
        self._catalog = catalog
        self.partitionable_devices = partitionable_devices
        self._by_name: dict[str, PublishedSlice] = {}
        #: That of the catalog at the latest refresh.
        self.version = -1
        #: Accessible slices with a node name, by node.
        self.node_local: dict[str, list[PublishedSlice]] = {}
        #: Accessible slices without a node name.
        self.multi_node: list[PublishedSlice] = []
        #: Slices with shared counters, which every node can access whatever nodes they select; these are in neither
        #: ``node_local`` nor ``multi_node``.
        self.shared_counters: dict[PoolID, list[PublishedSlice]] = {}
        #: All slices, accessible or not.
        self.by_pool: dict[PoolID, list[PublishedSlice]] = {}

    def refresh(self) -> None:
        """Follow the changes of the catalog since the latest refresh."""
        if self.version == self._catalog.version:
            return
        before = self._by_name
        #: The first slice with each content, by the driver.
        firsts: dict[tuple[str, bytes], PublishedSlice] = {}
        self._by_name, self.node_local, self.multi_node, self.by_pool = {}, {}, [], {}
        self.shared_counters = {}
        for source in self._catalog:
            published = before.get(source.metadata.name)
            if published is None or published.source is not source:
                published = PublishedSlice(source)
            first = firsts.setdefault((published.pool.driver, published.content), published)
            if first is not published:
                published.share_with(first)
            self._by_name[published.name] = published
            self.by_pool.setdefault(published.pool, []).append(published)
            if not self.partitionable_devices and self._needs_partitionable_devices(published):
                continue
            if source.spec.shared_counters and self.counters_are_apart:
                self.shared_counters.setdefault(published.pool, []).append(published)
            elif node_name := source.spec.node_name:
                self.node_local.setdefault(node_name, []).append(published)
            else:
                self.multi_node.append(published)
        self.version = self._catalog.version

    def _needs_partitionable_devices(self, published: PublishedSlice) -> bool:
        return published.per_device_node_selection or bool(published.source.spec.shared_counters)


def matching_nodes(selector: NodeSelector, nodes: Nodes) -> Mask:
    """The nodes that a selector matches, bool. Raises InvalidSelector."""
    mask = np.zeros(len(nodes), np.bool_)
    for term in selector.node_selector_terms:
        mask |= matches_term(nodes, term)
    return mask


def _device_mask(device: Device, nodes: Nodes) -> Mask:
    if device.all_nodes and not device.node_name:
        return np.ones(len(nodes), np.bool_)
    if device.node_selector is not None and not device.node_name:
        return matching_nodes(device.node_selector, nodes)
    return nodes.named(device.node_name)


# -- pools ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CandidateDevice:
    """A device of an accessible slice; ``accessible`` is False if the device itself selects other nodes."""

    device: PooledDevice
    pool: DevicePool
    accessible: bool

    @property
    def shares_counters_across_nodes(self) -> bool:
        """Whether the device consumes counters that devices elsewhere may consume as well."""
        return bool(self.device.consumes_counters) and self.pool.content is None


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
    def of(cls, pools: Iterable[DevicePool], *, binding_conditions_last: bool = True) -> AccessibleDevices:
        """Orders pools by driver and name, by default those with binding conditions last."""
        last = binding_conditions_last
        ordered = tuple(sorted(pools, key=lambda pool: (last and pool.has_binding_conditions, pool.id)))
        return cls(ordered, tuple(candidate for pool in ordered for candidate in pool.candidates))


@dataclass(frozen=True, slots=True, eq=False)
class DevicesByNode:
    """The devices that each node can access; nodes that can access the same slices and devices share theirs."""

    devices: list[AccessibleDevices]
    #: Per row of the node table the position in ``devices``, intp.
    positions: NDArray[np.intp]
    #: Per row a number, intp, equal for nodes that can access the same devices of slices without a node name.
    reaches: NDArray[np.intp]

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

    def __init__(self, slices: PublishedSlices, table: NodeTable, *, binding_conditions_last: bool = True) -> None:
        self._slices, self._table = slices, table
        self._binding_conditions_last = binding_conditions_last
        #: The versions of slices and nodes for which ``_by_node`` holds.
        self._versions = (-1, -1)
        self._by_node = DevicesByNode([], np.empty(0, np.intp), np.empty(0, np.intp))
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
        selections = [(published, list(published.node_masks(nodes))) for published in multi_node]
        masks = [mask for _, of_slice in selections for mask in of_slice]
        table: Mask = np.stack(masks, axis=1) if masks else np.empty((len(nodes), 0), np.bool_)
        # The bits in the keys are those of these slices.
        before = self._gathered if self._multi_node == multi_node else {}
        self._unusable = dict(self._find_unusable())
        self._multi_node, self._gathered = multi_node, {}
        numbers: dict[AccessibleDevices, int] = {}
        positions, reaches = np.empty(len(nodes), np.intp), np.empty(len(nodes), np.intp)
        reach_of: dict[bytes, int] = {}
        for row, name in enumerate(self._table.names):
            node_local = self._slices.node_local.get(name, [])
            selected = table[row].tobytes()
            reaches[row] = reach_of.setdefault(selected, len(reach_of))
            key = (name if node_local else "", selected)
            gathered = self._gathered.get(key)
            if gathered is None:
                gathered = before.get(key)
                if gathered is None or not self._is_current(gathered, node_local):
                    gathered = self._gather(node_local, table[row], selections)
                self._gathered[key] = gathered
            positions[row] = numbers.setdefault(gathered.devices, len(numbers))
        return DevicesByNode(list(numbers), positions, reaches)

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
        self, node_local: list[PublishedSlice], selected: Mask, selections: Sequence[tuple[PublishedSlice, list[Mask]]]
    ) -> _Gathered:
        by_pool: dict[PoolID, list[PublishedSlice]] = {}
        inaccessible: set[PooledDevice] = set()
        for published in node_local:
            _add_slice(by_pool, published)
        start = 0
        for published, masks in selections:
            bits = selected[start : start + len(masks)]
            start += len(masks)
            if bits.any():
                _add_slice(by_pool, published)
                if published.per_device_node_selection:
                    inaccessible |= {device for device, bit in zip(published.devices, bits, strict=False) if not bit}
        for pool in by_pool:
            for published in self._slices.shared_counters.get(pool, ()):
                _add_slice(by_pool, published)
        unusable = self._unusable_besides(by_pool)
        pools = [self._pool(pool, slices, inaccessible) for pool, slices in by_pool.items()]
        devices = AccessibleDevices.of(
            [*(pool for pool in pools if pool is not None), *unusable.values()],
            binding_conditions_last=self._binding_conditions_last,
        )
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
        accessible = sorted(accessible, key=self._slice_order)
        names = {published.name for published in accessible}
        of_other_slices = [device for other in of_generation if other.name not in names for device in other.devices]
        devices = [device for published in accessible if not published.shared_counters for device in published.devices]
        counters = [pair for published in accessible for pair in published.shared_counters]
        invalid_reason = (
            next((published.invalid_reason for published in accessible if published.invalid_reason), "")
            or duplicate_name([device.id.device for device in devices], "device name")
            or duplicate_name([name for name, _ in counters], "counter set name")
        )
        if not invalid_reason and self._slices.partitionable_devices:
            invalid_reason = _unknown_counter([*devices, *of_other_slices], dict(counters))
        if invalid_reason:
            return DevicePool(pool, invalid_reason=invalid_reason)
        complete = DevicePool(pool, inaccessible=tuple(of_other_slices), shared_counters=dict(counters))
        complete.candidates = tuple(CandidateDevice(device, complete, device not in inaccessible) for device in devices)
        if not (of_other_slices or inaccessible):
            contents = tuple(published.content for published in accessible)
            complete.content = (*contents, _encode(complete.shared_counters)) if counters else contents
        return complete

    def _slice_order(self, published: PublishedSlice) -> Any:
        """The key that orders the slices of a pool."""
        return published.name


def _add_slice(by_pool: dict[PoolID, list[PublishedSlice]], published: PublishedSlice) -> None:
    """Add a slice to its pool: of an older generation it is ignored, of a newer one it replaces all others."""
    slices = by_pool.setdefault(published.pool, [])
    if slices and published.generation < slices[0].generation:
        return
    if slices and published.generation > slices[0].generation:
        slices.clear()
    slices.append(published)


def duplicate_name(names: Sequence[str], what: str) -> str:
    """What is wrong with names that should be unique; empty if nothing is."""
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
