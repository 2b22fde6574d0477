"""Devices of resource pools, with the quantities and attributes that the allocator needs parsed once.

The results of CEL selectors are cached on the device, so they are dropped with it when its slice changes.

Resource slices as drivers publish them: their devices, and the nodes that can access them (semantics 8.16).

A slice is local to one node, or for the nodes of a selector, or for all nodes, or selects nodes per device.
:class:`PublishedSlices` follows the catalog of slices; which of them form a usable pool is decided in :mod:`.pools`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from kubestow.api.core import NodeSelector
from kubestow.api.formats.quantity import nanos
from kubestow.api.resource import Device, DeviceAttribute, DeviceCounterConsumption, DeviceSelector, ResourceSlice
from kubestow.cluster.changes.catalog import Catalog
from kubestow.cluster.nodes.selectors import matches_term
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.resource_claims import DeviceID
from kubestow.errors import InvalidQuantity, InvalidSelector
from kubestow.plugins.dynamic_resources.inventory.cel import (
    AttributeValue,
    CELDevice,
    SelectorCache,
    SelectorError,
    Version,
)

#: Nano units by counter, by counter set.
CounterAmounts = Mapping[str, Mapping[str, int]]

_MAX_CACHED_MATCHES = 256


class PooledDevice:
    """A device of a pool, with the slice that publishes it."""

    __slots__ = ("_cel_device", "_matches", "capacity", "consumes_counters", "device", "id", "slice")

    def __init__(self, source: ResourceSlice, device: Device) -> None:
        """Raises InvalidQuantity for an invalid capacity or counter."""
        self.slice = source
        self.device = device
        self.id = DeviceID(source.spec.driver, source.spec.pool.name, device.name)
        #: Nano units by capacity.
        self.capacity = {name: nanos(capacity.value) for name, capacity in device.capacity.items()}
        #: What the device consumes of its pool's shared counters while it is allocated.
        self.consumes_counters: CounterAmounts = _counter_amounts(device.consumes_counters)
        self._cel_device: CELDevice | None = None
        self._matches: dict[str, bool | SelectorError] = {}

    def attribute(self, name: str) -> DeviceAttribute | None:
        """An attribute by its fully qualified name; attributes without a domain belong to the driver's."""
        attribute = self.device.attributes.get(name)
        domain, separator, short_name = name.partition("/")
        if attribute is None and separator and domain == self.id.driver:
            return self.device.attributes.get(short_name)
        return attribute

    def matches(self, selectors: Sequence[DeviceSelector], compiled: SelectorCache, *, subject: str) -> bool:
        """Whether all selectors match. Raises SelectorError with ``subject`` and the number of the failed selector."""
        for number, selector in enumerate(selectors):
            expression = selector.cel.expression if selector.cel else ""
            result = self._matches.get(expression)
            if result is None:
                result = self._evaluate(expression, compiled)
            if isinstance(result, SelectorError):
                raise SelectorError(f"{subject}: selector #{number}: {result}")
            if not result:
                return False
        return True

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


def _counter_amounts(consumptions: Sequence[DeviceCounterConsumption]) -> CounterAmounts:
    return {
        consumption.counter_set: {name: nanos(counter.value) for name, counter in consumption.counters.items()}
        for consumption in consumptions
    }


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


Mask = NDArray[np.bool_]

_encode = msgspec.json.Encoder(order="deterministic").encode


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
        #: The devices as published: equal for slices of nodes that have equal devices.
        self.content: bytes = _encode(spec.devices)
        try:
            self.devices = tuple(PooledDevice(source, device) for device in spec.devices)
            self.shared_counters = [
                (counter_set.name, {name: nanos(counter.value) for name, counter in counter_set.counters.items()})
                for counter_set in spec.shared_counters
            ]
        except InvalidQuantity as error:
            self.invalid_reason = f"slice {self.name}: {error}"

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


class PublishedSlices:
    """All slices of the catalog; a slice that has not changed keeps its devices and their cached results.

    Without ``partitionable_devices`` (the feature gate), no node can access slices with shared counters or per-device
    node selection, although they are part of their pools.
    """

    def __init__(self, catalog: Catalog[ResourceSlice], *, partitionable_devices: bool) -> None:
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
        contents: dict[bytes, bytes] = {}
        self._by_name, self.node_local, self.multi_node, self.by_pool = {}, {}, [], {}
        self.shared_counters = {}
        for source in self._catalog:
            published = before.get(source.metadata.name)
            if published is None or published.source is not source:
                published = PublishedSlice(source)
            published.content = contents.setdefault(published.content, published.content)
            self._by_name[published.name] = published
            self.by_pool.setdefault(published.pool, []).append(published)
            if not self.partitionable_devices and (published.per_device_node_selection or source.spec.shared_counters):
                continue
            if source.spec.shared_counters:
                self.shared_counters.setdefault(published.pool, []).append(published)
            elif node_name := source.spec.node_name:
                self.node_local.setdefault(node_name, []).append(published)
            else:
                self.multi_node.append(published)
        self.version = self._catalog.version


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
    mask = np.zeros(len(nodes), np.bool_)
    position = nodes.position(device.node_name) if device.node_name else None
    if position is not None:
        mask[position] = True
    return mask
