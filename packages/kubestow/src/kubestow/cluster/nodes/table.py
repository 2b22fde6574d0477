"""The node table: the nodes of the cluster as columns.

It has one row per node, without gaps. The pods on a node are part of its row: their requests, their host ports, their
number. When a node is removed the last row takes its number, so a row number is valid until :attr:`NodeTable.structure`
changes. Plugins do not use the table itself but a view of it (:class:`kubestow.cluster.nodes.views.Nodes`).
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, KeysView, Mapping
from itertools import chain, zip_longest
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kubestow.api.core import Node, Taint
from kubestow.api.formats.int64 import ORDINARY
from kubestow.cluster.changes.events import Action
from kubestow.cluster.nodes.columns import Column, Columns, Images, InternedColumn, LabelColumn, SumColumn
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.cluster.pods.table import PodTable
from kubestow.rules.pods import HostPort
from kubestow.rules.requests import PODS, Amounts, allocatable_amounts

#: The updates of a node that change :attr:`NodeTable.revision`.
_REVISING = Action.UPDATE_NODE_LABEL | Action.UPDATE_NODE_TAINT
#: Up to this many resources have columns even if all nodes have zero of them.
_FEW_RESOURCES = 64


class _AmountColumns(dict[str, SumColumn]):
    """One int64 column per resource: millicores, bytes or counts; to be read only. Other resources are 0 everywhere.

    A resource that only pending pods request has none, and columns of zeros are dropped as their number grows, so that
    pods with ever new names of extended resources do not fill the memory.
    """

    def __init__(self, columns: Columns) -> None:
        super().__init__()
        self._columns = columns
        self._zeros = columns.new_sums()
        self._most = _FEW_RESOURCES
        #: Incremented whenever a row is set.
        self.version = 0
        #: The results of :meth:`repeated`, and the version and number of rows that they are of.
        self._repeated: dict[str, NDArray[np.int64]] = {}
        self._repeated_of = (0, 0)

    def __missing__(self, resource: str) -> SumColumn:
        return self._zeros

    def repeated(self, resource: str) -> NDArray[np.int64]:
        """The amounts of a resource that only :meth:`set_row` changes, read-only.

        Where all rows have the same amount, it is one entry with stride 0, which arithmetic need not read per row.
        """
        if self._repeated_of != (self.version, self._columns.size):
            self._repeated, self._repeated_of = {}, (self.version, self._columns.size)
        found = self._repeated.get(resource)
        if found is None:
            values = self[resource].readonly
            if len(values) and (values == values[0]).all():
                values = np.broadcast_to(values[0].copy(), values.shape)
            if len(self._repeated) < _FEW_RESOURCES:
                self._repeated[resource] = values
            return values
        return found

    def _append(self, resource: str) -> SumColumn:
        if len(self) >= self._most:
            for name in [name for name, column in self.items() if not column.values.any()]:
                del self[name]
            self._most = max(_FEW_RESOURCES, 2 * len(self))
        column = self[resource] = self._columns.new_sums()
        return column

    def at(self, row: int) -> Amounts:
        """The amounts of a row."""
        return {name: int(column.values[row]) for name, column in self.items()}

    def set_row(self, row: int, amounts: Mapping[str, int]) -> None:
        self.version += 1
        for name, column in self.items():
            column.values[row] = amounts.get(name, 0)
        for name in amounts.keys() - self.keys():
            self._append(name).values[row] = amounts[name]

    def add(self, row: int, amounts: Amounts, sign: int) -> bool:
        """Add to the sums of a row; whether one of them is now negative or beyond ORDINARY."""
        is_extreme = False
        for name, amount in amounts.items():
            column = self.get(name) or self._append(name)
            is_extreme |= column.add_part(row, sign * amount, self._columns)
        return is_extreme

    def has_extreme(self, row: int) -> bool:
        """Whether an amount of a row is negative or beyond ORDINARY."""
        return any(not 0 <= column.entries[row] <= ORDINARY for column in self.values())


class PodsOnNode(NamedTuple):
    """The pods on a row as they were: by uid, their slots in order, and which host ports of one pod were taken."""

    by_uid: dict[str, PodInfo]
    slots: array[int]
    taken_ports: Collection[HostPort]


class NodeTable:
    """All nodes and the pods on them."""

    def __init__(self) -> None:
        self.columns = Columns()
        #: Incremented whenever rows are added, removed or moved.
        self.structure = 0
        #: Incremented with :attr:`structure`, and when the labels or taints of a node change.
        self.revision = 0
        self.names: list[str] = []
        self.objects: list[Node] = []
        self.rows: dict[str, int] = {}
        #: The pods on each row by uid, in the order in which they were added.
        self.pods: list[dict[str, PodInfo]] = []
        #: The same pods as columns.
        self.pod_table = PodTable()
        #: The pods nominated for nodes, and their number (int64) per row.
        self.nominated = PodTable()
        self.nominated_count = self.columns.new(np.int64)
        self.allocatable = _AmountColumns(self.columns)
        self.requested = _AmountColumns(self.columns)
        self.nonzero_cpu = self.columns.new_sums()
        self.nonzero_memory = self.columns.new_sums()
        #: Where an amount is negative or so large that sums and products of it may not fit into 64 bits, bool.
        self.extreme = self.columns.new(np.bool_)
        #: Whether that may be so anywhere.
        self.has_extreme = False
        self.allowed_pods = self.columns.new(np.int64)
        self.pod_count = self.columns.new(np.int64)
        self.unschedulable = self.columns.new(np.bool_)
        #: True for every row.
        self.every = self.columns.new(np.bool_, fill=True)
        #: The order in which nodes were added, int64; it decides whose error is reported (semantics 7.2).
        self.sequence = self.columns.new(np.int64)
        self.taints = InternedColumn[tuple[Taint, ...]](self.columns, ())
        self.declared_features = InternedColumn[frozenset[str]](self.columns, frozenset())
        self.images = Images(self.columns)
        self._labels: dict[str, LabelColumn] = {}
        #: The number of nodes that have each label key.
        self._label_keys: Counter[str] = Counter()
        self._no_label = LabelColumn("", self.columns)
        #: The taken host ports with their columns, by protocol and number.
        self._ports: dict[tuple[str, int], dict[HostPort, Column]] = {}
        self._added = 0
        self._name_rank: tuple[int, NDArray[np.int64]] = (-1, np.empty(0, np.int64))
        self._zones = ZoneOrder()
        self._zone_order: tuple[int, NDArray[np.intp]] = (-1, np.empty(0, np.intp))

    def __len__(self) -> int:
        return self.columns.size

    # -- nodes ---------------------------------------------------------------------------------------------------

    def add(self, node: Node) -> int:
        """Add a node without pods; its row is returned. Raises InvalidQuantity, in which case nothing changes."""
        amounts = allocatable_amounts(node.status.allocatable)
        row = self.columns.append_row()
        self.structure += 1
        self.revision += 1
        self._added += 1
        self.names.append(node.metadata.name)
        self.objects.append(node)
        self.pods.append({})
        self.pod_table.append_row()
        self.nominated.append_row()
        self.rows[node.metadata.name] = row
        self._label_keys.update(node.metadata.labels.keys())
        self._zones.add(node.metadata.name, node.metadata.labels)
        self.sequence.values[row] = self._added
        self._describe(row, node, amounts)
        return row

    def update(self, node: Node) -> Action:
        """Replace a node's object; what differs is returned. Raises InvalidQuantity, in which case nothing changes."""
        amounts = allocatable_amounts(node.status.allocatable)
        row = self.rows[node.metadata.name]
        old = self.objects[row]
        self.images.remove(row, old.status.images)
        self.objects[row] = node
        if old.metadata.labels != node.metadata.labels:
            self._label_keys.update(node.metadata.labels.keys())
            self._drop_labels(old)
            self._zones.update(node.metadata.name, node.metadata.labels)
        self._describe(row, node, amounts)
        changed = difference(old, node)
        if changed & _REVISING:
            self.revision += 1
        return changed

    def remove(self, name: str) -> dict[str, PodInfo]:
        """Remove a node; the pods that were on it are returned."""
        row = self.rows.pop(name)
        pods = self.pods[row]
        node = self.objects[row]
        self.images.remove(row, node.status.images)
        self._zones.remove(name)
        last = self.columns.remove_row(row)
        self.structure += 1
        self.revision += 1
        per_row: tuple[list[Any], ...] = (self.names, self.objects, self.pods)
        for values in per_row:
            values[row] = values[last]
            values.pop()
        self.pod_table.remove_row(row)
        self.nominated.remove_row(row)
        if row != last:
            self.rows[self.names[row]] = row
        self.has_extreme = self.has_extreme and bool(self.extreme.values.any())
        self._drop_labels(node)
        return pods

    def _describe(self, row: int, node: Node, amounts: Amounts) -> None:
        self.allowed_pods.values[row] = amounts.pop(PODS, 0)
        self.allocatable.set_row(row, amounts)
        if self.extreme.entries[row] or any(not 0 <= amount <= ORDINARY for amount in amounts.values()):
            self._mark_extreme(row)
        self.unschedulable.values[row] = node.spec.unschedulable
        self.taints.set(row, tuple(node.spec.taints))
        self.declared_features.set(row, frozenset(node.status.declared_features))
        for column in self._labels.values():
            column.set(row, node.metadata.labels.get(column.key))
        self.images.add(row, node.status.images)

    # -- pods ----------------------------------------------------------------------------------------------------

    def add_pod(self, row: int, info: PodInfo) -> None:
        """Add a pod to a row."""
        self.pods[row][info.uid] = info
        self.pod_table.add(info, row)
        self._account(row, info, +1)
        if info.shape.host_ports:
            self.take_ports(row, info)

    def remove_pod(self, row: int, info: PodInfo) -> None:
        """Remove a pod from a row."""
        del self.pods[row][info.uid]
        self.pod_table.remove(row, info.uid)
        self._account(row, info, -1)
        # QUIRK (semantics 7.4): ports are a set, so removing one of two pods that share a port frees it.
        self.free_ports(row, info.shape.host_ports)

    def replace_pod(self, row: int, info: PodInfo) -> bool:
        """Replace a pod by a newer state with the same requests; whether its start time has changed."""
        self.pods[row][info.uid] = info
        return self.pod_table.replace(info)

    def take_ports(self, row: int, info: PodInfo) -> list[HostPort]:
        """Have the host ports of a pod on a row taken; those that were not are returned."""
        free = [port for port in info.shape.host_ports if not self._is_taken(row, port)]
        for port in free:
            self._take_port(row, port)
        return free

    def free_ports(self, row: int, ports: Iterable[HostPort]) -> None:
        """Have some host ports of a row no longer taken."""
        for port in ports:
            self._free_port(row, port)

    def pods_on(self, row: int, info: PodInfo) -> PodsOnNode:
        """The pods on a row as they are, before a pod is added or removed."""
        taken = [port for port in info.shape.host_ports if self._is_taken(row, port)]
        return PodsOnNode(self.pods[row].copy(), self.pod_table.slots(row), taken)

    def restore_pods(self, row: int, info: PodInfo, before: PodsOnNode) -> None:
        """Restore the order and the host ports of a row, after the addition or removal of a pod has been reversed."""
        self.pods[row] = before.by_uid
        self.pod_table.restore_slots(row, before.slots)
        for port in info.shape.host_ports:
            if port in before.taken_ports:
                self._take_port(row, port)
            else:
                self._free_port(row, port)

    def nominate(self, row: int, info: PodInfo) -> None:
        """Add a pending pod that is nominated for a row."""
        self.nominated.add(info, row)
        self.nominated_count.values[row] += 1

    def drop_nomination(self, row: int, uid: str) -> None:
        """Remove a pod that is no longer nominated for a row."""
        self.nominated.remove(row, uid)
        self.nominated_count.values[row] -= 1

    def _account(self, row: int, info: PodInfo, sign: int) -> None:
        cpu, memory = info.nonzero_requests
        is_extreme = self.requested.add(row, info.requests, sign)
        is_extreme |= self.nonzero_cpu.add_part(row, sign * cpu, self.columns)
        is_extreme |= self.nonzero_memory.add_part(row, sign * memory, self.columns)
        self.pod_count.entries[row] += sign
        if is_extreme != self.extreme.entries[row]:
            self._mark_extreme(row)

    def _mark_extreme(self, row: int) -> None:
        """Find out whether any amount of a row is extreme."""
        scored = (self.nonzero_cpu.entries[row], self.nonzero_memory.entries[row])
        is_extreme = any(not 0 <= amount <= ORDINARY for amount in scored)
        is_extreme = is_extreme or self.requested.has_extreme(row) or self.allocatable.has_extreme(row)
        if is_extreme != self.extreme.entries[row]:
            self.extreme.values[row] = is_extreme
            self.has_extreme = bool(is_extreme or self.extreme.values.any())

    # -- columns made on demand ----------------------------------------------------------------------------------

    def label(self, key: str) -> LabelColumn:
        """The column of a label key, valid for one :attr:`revision`; one of a key that no node has stays empty."""
        column = self._labels.get(key)
        if column is None:
            if key not in self._label_keys:
                return self._no_label
            column = self._labels[key] = LabelColumn(key, self.columns)
            for row, node in enumerate(self.objects):
                column.set(row, node.metadata.labels.get(key))
        return column

    @property
    def label_keys(self) -> KeysView[str]:
        """The keys of the labels that nodes have."""
        return self._label_keys.keys()

    def _drop_labels(self, node: Node) -> None:
        """Stop counting the labels of a node, and drop the columns of keys that no node has any more."""
        for key in node.metadata.labels:
            self._label_keys[key] -= 1
            if not self._label_keys[key]:
                del self._label_keys[key]
                self._labels.pop(key, None)

    def ports_conflicting_with(self, wanted: HostPort) -> list[tuple[HostPort, Column]]:
        """The host ports that conflict with a wanted one and are taken on some node, with their columns (bool)."""
        same_number = self._ports.get((wanted.protocol, wanted.port))
        if same_number is None:
            return []
        if wanted == wanted.on_any_ip:
            return list(same_number.items())
        return [(port, same_number[port]) for port in (wanted, wanted.on_any_ip) if port in same_number]

    def resources(self) -> list[str]:
        """The resources that have a column of allocatable or requested amounts."""
        return list(dict.fromkeys((*self.allocatable, *self.requested)))

    def ports(self) -> Iterator[tuple[HostPort, Column]]:
        """Every host port that is taken on some node, with its column (bool)."""
        return ((port, column) for columns in self._ports.values() for port, column in columns.items())

    def taken_ports(self, row: int) -> set[HostPort]:
        """The host ports that are taken on a row."""
        return {port for port, column in self.ports() if column.values[row]}

    def _port_column(self, port: HostPort) -> Column | None:
        columns = self._ports.get((port.protocol, port.port))
        return None if columns is None else columns.get(port)

    def _is_taken(self, row: int, port: HostPort) -> bool:
        column = self._port_column(port)
        return column is not None and bool(column.values[row])

    def _take_port(self, row: int, port: HostPort) -> None:
        column = self._port_column(port)
        if column is None:
            columns = self._ports.setdefault((port.protocol, port.port), {})
            column = columns[port] = self.columns.new(np.bool_)
        column.values[row] = True

    def _free_port(self, row: int, port: HostPort) -> None:
        column = self._port_column(port)
        if column is None:
            return
        column.values[row] = False
        if not column.values.any():
            columns = self._ports[port.protocol, port.port]
            del columns[port]
            if not columns:
                del self._ports[port.protocol, port.port]

    def name_rank(self) -> NDArray[np.int64]:
        """The rank of each row among all nodes sorted by name, int64."""
        structure, rank = self._name_rank
        if structure != self.structure:
            order = np.array(sorted(range(len(self.names)), key=self.names.__getitem__), np.int64)
            rank = np.empty(len(order), np.int64)
            rank[order] = np.arange(len(order))
            self._name_rank = (self.structure, rank)
        return rank

    def zone_order(self) -> NDArray[np.intp]:
        """All rows in the order of kube-scheduler's node list, intp.

        Determined when nodes have been added or removed; a changed zone label alone does not reorder them
        (semantics 7.3).
        """
        structure, order = self._zone_order
        if structure != self.structure:
            order = np.fromiter((self.rows[name] for name in self._zones.names()), np.intp, len(self.rows))
            self._zone_order = (self.structure, order)
        return order


def difference(old: Node, new: Node) -> Action:
    """The differences between two states of a node that can matter to a plugin (semantics 6.9)."""
    changed = Action(0)
    if old.status.allocatable != new.status.allocatable:
        changed |= Action.UPDATE_NODE_ALLOCATABLE
    if old.metadata.labels != new.metadata.labels:
        changed |= Action.UPDATE_NODE_LABEL
    if old.spec.taints != new.spec.taints or old.spec.unschedulable != new.spec.unschedulable:
        changed |= Action.UPDATE_NODE_TAINT
    if _conditions(old) != _conditions(new):
        changed |= Action.UPDATE_NODE_CONDITION
    if old.metadata.annotations != new.metadata.annotations:
        changed |= Action.UPDATE_NODE_ANNOTATION
    if old.status.declared_features != new.status.declared_features:
        changed |= Action.UPDATE_NODE_DECLARED_FEATURE
    if old.status.images != new.status.images:
        changed |= Action.UPDATE_NODE_IMAGES
    return changed


def _conditions(node: Node) -> dict[str, str]:
    return {condition.type: condition.status for condition in node.status.conditions}


_ZONE = ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone")
_REGION = ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region")


class ZoneOrder:
    """The names of nodes by zone: zones by first appearance, nodes in the order in which they joined theirs."""

    def __init__(self) -> None:
        self._zones: dict[str, dict[str, None]] = {}
        self._zone_of: dict[str, str] = {}

    def add(self, name: str, labels: Mapping[str, str]) -> None:
        """Add a node at the end of its zone."""
        zone = self._zone_of[name] = _zone_key(labels)
        self._zones.setdefault(zone, {})[name] = None

    def update(self, name: str, labels: Mapping[str, str]) -> None:
        """Move a node to the end of its zone, if that is another one than before."""
        if _zone_key(labels) != self._zone_of[name]:
            self.remove(name)
            self.add(name, labels)

    def remove(self, name: str) -> None:
        """Remove a node, and its zone if it was the last one there."""
        zone = self._zone_of.pop(name)
        del self._zones[zone][name]
        if not self._zones[zone]:
            del self._zones[zone]

    def names(self) -> Iterable[str]:
        """The first node of each zone, then the second of each, and so on."""
        return (name for name in chain.from_iterable(zip_longest(*self._zones.values())) if name is not None)


def _zone_key(labels: Mapping[str, str]) -> str:
    """Region and zone; empty without either. A beta label takes precedence, even an empty one."""
    region, zone = _first(labels, _REGION), _first(labels, _ZONE)
    return f"{region}:\x00:{zone}" if region or zone else ""


def _first(labels: Mapping[str, str], keys: Iterable[str]) -> str:
    return next((labels[key] for key in keys if key in labels), "")
