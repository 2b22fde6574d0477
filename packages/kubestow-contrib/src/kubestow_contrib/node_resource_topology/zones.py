"""What is available in the NUMA zones of all nodes, as arrays with one row per zone and one column per node.

Arrays follow the node table, and a topology that changes is written into the entries of its node only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.events import Action
from kubestow.cluster.nodes.columns import Column, InternedColumn
from kubestow.cluster.nodes.views import Nodes
from kubestow.framework.interface import Handle
from kubestow_contrib.node_load.changed_nodes import ChangedNodes
from kubestow_contrib.node_resource_topology.topologies import (
    Layout,
    NodeResourceTopology,
    read_available,
    read_layout,
)

__all__ = ["ABSENT", "Available", "Zones"]

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
