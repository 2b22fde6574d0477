"""NodeResourceTopology objects, and what is available in the zones of all nodes, as arrays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from kubestow.api.custom import CustomObject
from kubestow.api.formats.quantity import Quantity
from kubestow.api.meta import APIObject
from kubestow.cluster.changes.events import Action
from kubestow.cluster.nodes.columns import Column, InternedColumn
from kubestow.cluster.nodes.views import Nodes
from kubestow.framework.interface import Handle
from kubestow_contrib.node_load.usage import ChangedNodes, amount_of

#: NUMA zones have numbers below this one; others are ignored.
MOST_ZONES = 64
_UNKNOWN_DISTANCE = 255
_DEFAULT_MAX_ZONES, _LIMIT_OF_MAX_ZONES = 8, 1024

_SINGLE_ZONE = "single-numa-node"
_POLICIES = ("none", "best-effort", "restricted", _SINGLE_ZONE)
_SCOPES = ("container", "pod")
#: The deprecated policies, as policy and scope.
_DEPRECATED = {
    f"{name}{scope.capitalize()}Level": (policy, scope)
    for name, policy in (("SingleNUMANode", _SINGLE_ZONE), ("BestEffort", "best-effort"), ("Restricted", "restricted"))
    for scope in _SCOPES
}


class ZoneResource(APIObject, frozen=True):
    """``zones[].resources[]``."""

    name: str = ""
    available: Quantity = 0


class ZoneCost(APIObject, frozen=True):
    """``zones[].costs[]``: the distance to another zone."""

    name: str = ""
    value: int = 0


class Attribute(APIObject, frozen=True):
    """``attributes[]`` of a topology and of its zones."""

    name: str = ""
    value: str = ""


class Zone(APIObject, frozen=True):
    """``zones[]``."""

    name: str = ""
    type: str = ""
    resources: list[ZoneResource] = []
    costs: list[ZoneCost] = []
    attributes: list[Attribute] = []


class NodeResourceTopology(CustomObject, frozen=True):
    """The zones of the node of the same name."""

    resource: ClassVar[str] = "noderesourcetopologies.v1alpha2.topology.node.k8s.io"
    is_about_node: ClassVar[bool] = True
    topology_policies: list[str] = []
    attributes: list[Attribute] = []
    zones: list[Zone] = []


@dataclass(frozen=True, slots=True)
class Layout:
    """What nodes of one kind have in common: policy and scope of the topology manager, and the zones.

    ``zones`` are the numbers of the zones, ascending, and ``distances`` those between them, in this order.
    """

    policy: str
    scope: str
    max_zones: int
    zones: tuple[int, ...]
    distances: tuple[tuple[int, ...], ...]

    @property
    def needs_single_zone(self) -> bool:
        """Whether the kubelet rejects pods that do not get all from one zone."""
        return self.policy == _SINGLE_ZONE

    @property
    def aligns_pods(self) -> bool:
        """Whether the containers of a pod are aligned together, and not one by one."""
        return self.scope == "pod"


def read_layout(topology: NodeResourceTopology) -> Layout:
    """The layout of a node."""
    policy, scope, max_zones = "none", "container", _DEFAULT_MAX_ZONES
    if topology.topology_policies:
        policy, scope = _DEPRECATED.get(topology.topology_policies[0], (policy, scope))
    for attribute in topology.attributes:
        value = attribute.value
        if attribute.name == "topologyManagerPolicy" and value in _POLICIES:
            policy = value
        elif attribute.name == "topologyManagerScope" and value in _SCOPES:
            scope = value
        elif attribute.name == "topologyManagerMaxNUMANodes" and value.isascii() and value.isdigit() and int(value) > 1:
            max_zones = min(int(value), _LIMIT_OF_MAX_ZONES)
    zones = _numa_zones(topology)
    costs = {number: {zone_number(cost.name): cost.value for cost in zone.costs} for number, zone in zones.items()}
    distances = tuple(tuple(costs[a].get(b, _UNKNOWN_DISTANCE) for b in zones) for a in zones)
    return Layout(policy, scope, max_zones, tuple(zones), distances)


def read_available(topology: NodeResourceTopology) -> Mapping[str, Mapping[int, int]]:
    """What is available of each resource in each zone that lists it: millicores of CPU, bytes, or counts."""
    available: dict[str, dict[int, int]] = {}
    for number, zone in _numa_zones(topology).items():
        for resource in zone.resources:
            available.setdefault(resource.name, {})[number] = max(0, amount_of(resource.name, resource.available))
    return available


def _numa_zones(topology: NodeResourceTopology) -> dict[int, Zone]:
    """The NUMA zones by number, ascending; of several with one number, the last."""
    found = {zone_number(zone.name): zone for zone in topology.zones if zone.type == "Node"}
    return {number: zone for number, zone in sorted(found.items()) if 0 <= number < MOST_ZONES}


def zone_number(name: str) -> int:
    """The number of a zone, -1 if the name is not that of a NUMA zone."""
    prefix, _, number = name.rpartition("-")
    return int(number) if prefix == "node" and number.isascii() and number.isdigit() else -1


#: Stands for a zone that does not list a resource.
ABSENT = -1


class Available:
    """What is available in the zones of some nodes: int64 arrays (zones, nodes), ABSENT where a zone lacks a resource.

    The arrays belong to this object, so they may be changed.
    """

    def __init__(self, by_resource: Mapping[str, NDArray[np.int64]], zones: int, nodes: int) -> None:
        self._by_resource, self._nothing = dict(by_resource), np.full((zones, nodes), ABSENT, np.int64)
        self.shape = (zones, nodes)

    def of(self, resource: str) -> NDArray[np.int64]:
        """The array of a resource."""
        return self._by_resource.get(resource, self._nothing)

    def add(self, resource: str, zone: int, node: int, amount: int) -> None:
        """Add an amount to a zone of one node, by its position, if the zone lists the resource."""
        available = self.of(resource)
        if zone < len(available) and available[zone, node] != ABSENT:
            available[zone, node] += amount

    def subtract(self, resource: str, zones: NDArray[np.intp], request: int) -> None:
        """Subtract a request from one zone of each node (intp, one per node), if the zone lists the resource."""
        available = self.of(resource)
        nodes = np.arange(available.shape[1])
        before = available[zones, nodes]
        available[zones, nodes] = np.where(before == ABSENT, ABSENT, np.maximum(before - request, 0))


class Zones:
    """The zones of all nodes."""

    def __init__(self, handle: Handle) -> None:
        self._table = handle.cluster.nodes
        self._columns = self._table.columns
        self._layouts: InternedColumn[Layout | None] = InternedColumn(self._columns, None)
        #: By resource and the number of the zone; a resource that no topology lists any more is dropped.
        self._available: dict[str, dict[int, Column]] = {}
        self._listed: Counter[str] = Counter()
        self._topologies: dict[str, tuple[Layout, Mapping[str, Mapping[int, int]]]] = {}
        #: What has been read into the columns, by node.
        self._changed_nodes = ChangedNodes(handle.cluster, Action.ADD)

    def layouts(self, nodes: Nodes, function: Callable[[Layout | None], Any], dtype: Any = np.bool_) -> NDArray[Any]:
        """A function of the layout of each node, None without a topology; called once per distinct layout."""
        self._refresh()
        return self._layouts.map(function, dtype, nodes.rows)

    def available(self, nodes: Nodes, resources: Iterable[str]) -> Available:
        """What is available of some resources, as arrays of the caller's own."""
        self._refresh()
        zones = 1 + max((number for columns in self._available.values() for number in columns), default=0)
        found = {}
        for resource in resources:
            if columns := self._available.get(resource):
                array = found[resource] = np.full((zones, len(nodes)), ABSENT, np.int64)
                for number, column in columns.items():
                    array[number] = column.readonly[nodes.rows]
        return Available(found, zones, len(nodes))

    def _refresh(self) -> None:
        for row in self._changed_nodes.rows():
            self._write(row, {})

    def report(self, before: NodeResourceTopology | None, after: NodeResourceTopology | None) -> None:
        """Take over the topology of a node as it is reported; None if there is none any more."""
        changed = after or before
        assert changed is not None
        self.put(changed.metadata.name, None if after is None else (read_layout(after), read_available(after)))

    def put(self, name: str, topology: tuple[Layout, Mapping[str, Mapping[int, int]]] | None) -> None:
        """Replace the layout of a node, and what is available by resource and zone; None if it has no topology."""
        self._refresh()
        old = self._topologies.pop(name, None)
        if topology is not None:
            self._topologies[name] = topology
            self._listed.update(topology[1].keys())
        if (row := self._table.rows.get(name)) is not None:
            self._write(row, {} if old is None else old[1])
        if old is not None:
            self._listed.subtract(old[1].keys())
            for resource in old[1]:
                if not self._listed[resource]:
                    del self._listed[resource]
                    self._available.pop(resource, None)

    def _write(self, row: int, before: Mapping[str, Mapping[int, int]]) -> None:
        """Write the topology of a row's node to the columns, in place of what was available before."""
        for resource, by_zone in before.items():
            for number in by_zone:
                self._column(resource, number).values[row] = ABSENT
        layout, available = self._topologies.get(self._table.names[row], (None, {}))
        self._layouts.set(row, layout)
        for resource, by_zone in available.items():
            for number, amount in by_zone.items():
                self._column(resource, number).values[row] = amount

    def _column(self, resource: str, number: int) -> Column:
        columns = self._available.setdefault(resource, {})
        if number not in columns:
            columns[number] = self._columns.new(np.int64, fill=ABSENT)
        return columns[number]
