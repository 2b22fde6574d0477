"""What a plugin is asked about: some rows of the node table, as they are or as they would be.

A :class:`Nodes` answers with one array entry per row it covers, all rows or a few. :class:`HypotheticalNodes` covers
rows on which some pods are imagined gone or added; every row is its own world ("this node without these three pods,
with that one; everything else as it is"). A plugin that reads columns through the view serves both. What is imagined is
held as runs of slots of the pod table, so that thousands of rows cost a few passes over arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kubestow.api.core import Node, Taint
from kubestow.cluster.nodes.labels import LabelColumn
from kubestow.cluster.nodes.table import NodeTable
from kubestow.cluster.pods.shapes import HostPort, PodInfo
from kubestow.cluster.pods.table import PodChanges

__all__ = ["HypotheticalNodes", "NodeChange", "Nodes", "Rows", "single_node"]

#: Row numbers (intp), or a slice with a start and a stop.
Rows = slice | NDArray[np.intp]


class Nodes:
    """Rows of the node table; arrays have shape ``(len(nodes),)`` and may be read-only."""

    def __init__(self, table: NodeTable, rows: Rows) -> None:
        self._table = table
        self.rows = rows

    def __len__(self) -> int:
        rows = self.rows
        return rows.stop - rows.start if isinstance(rows, slice) else len(rows)

    @cached_property
    def row_numbers(self) -> NDArray[np.intp]:
        """The rows' numbers in the node table, intp."""
        rows = self.rows
        return np.arange(rows.start, rows.stop, dtype=np.intp) if isinstance(rows, slice) else rows

    def select(self, positions: NDArray[Any]) -> Nodes:
        """A view of some of these rows: positions (int) or a mask (bool) over this view."""
        return Nodes(self._table, self.row_numbers[positions])

    def with_pod_changes(self, pod_changes: PodChanges) -> HypotheticalNodes:
        """The same rows with pods imagined gone or added, one run of pods per row."""
        return HypotheticalNodes(self._table, self.row_numbers, pod_changes=(pod_changes,))

    # -- one node at a time --------------------------------------------------------------------------------------

    def name(self, position: int) -> str:
        """The name of the node at a position of this view."""
        return self._table.names[int(self.row_numbers[position])]

    @property
    def names(self) -> list[str]:
        """The names of all nodes of this view."""
        names = self._table.names
        return [names[row] for row in self.row_numbers.tolist()]

    def node(self, position: int) -> Node:
        """The node object at a position."""
        return self._table.objects[int(self.row_numbers[position])]

    def pods(self, position: int) -> Sequence[PodInfo]:
        """The pods on the node at a position."""
        return list(self._table.pods[int(self.row_numbers[position])].values())

    def position(self, name: str) -> int | None:
        """Where a node stands in this view, None when it is not part of it."""
        row = self._table.rows.get(name)
        if row is None:
            return None
        found = np.flatnonzero(self.row_numbers == row)
        return int(found[0]) if len(found) else None

    # -- resources -----------------------------------------------------------------------------------------------

    def allocatable(self, resource: str) -> NDArray[np.int64]:
        """What the nodes have of a resource (millicores, bytes or count), int64."""
        return self._table.allocatable[resource].readonly[self.rows]

    def requested(self, resource: str) -> NDArray[np.int64]:
        """What the pods on the nodes request of a resource, int64."""
        return self._table.requested[resource].readonly[self.rows]

    @property
    def nonzero_cpu(self) -> NDArray[np.int64]:
        """CPU requested (millicores), pods without a request counted at the default, int64."""
        return self._table.nonzero_cpu.readonly[self.rows]

    @property
    def nonzero_memory(self) -> NDArray[np.int64]:
        """Memory requested (bytes), pods without a request counted at the default, int64."""
        return self._table.nonzero_memory.readonly[self.rows]

    @property
    def allowed_pods(self) -> NDArray[np.int64]:
        """How many pods a node may run, int64."""
        return self._table.allowed_pods.readonly[self.rows]

    @property
    def pod_count(self) -> NDArray[np.int64]:
        """How many pods are on the node, int64."""
        return self._table.pod_count.readonly[self.rows]

    def port_taken(self, wanted: HostPort) -> NDArray[np.bool_]:
        """Where a host port is in use already, bool."""
        taken = np.zeros(len(self), np.bool_)
        for column in self._table.ports_conflicting_with(wanted):
            taken |= column.readonly[self.rows]
        return taken

    # -- what nodes are ------------------------------------------------------------------------------------------

    @property
    def unschedulable(self) -> NDArray[np.bool_]:
        """``spec.unschedulable``, bool."""
        return self._table.unschedulable.readonly[self.rows]

    @property
    def total(self) -> int:
        """How many nodes the cluster has, whatever this view covers."""
        return len(self._table)

    def label(self, key: str) -> NDArray[np.int32]:
        """The numbers of a label's values, int32, 0 where the node lacks it; see :meth:`label_values`."""
        return self._table.label(key).ids[self.rows]

    def label_column(self, key: str) -> LabelColumn:
        """The whole column of a label: its vocabulary, and value numbers by row of the table."""
        return self._table.label(key)

    def label_values(self, key: str) -> Sequence[str | None]:
        """The text of each value number of a label; the first is None, for nodes that lack it."""
        return self._table.label(key).values

    def by_label(self, key: str, of: Callable[[str | None], Any], dtype: Any = np.int64) -> NDArray[Any]:
        """A function of a label's value (None where missing) for every row; called once per distinct value."""
        column = self._table.label(key)
        return column.map(of, dtype, self.rows)

    def by_taints(self, of: Callable[[Sequence[Taint]], Any], dtype: Any = np.int64) -> NDArray[Any]:
        """A function of a node's list of taints for every row; called once per distinct list."""
        return self._table.taints.map(of, dtype, self.rows)

    def by_declared_features(self, of: Callable[[frozenset[str]], Any], dtype: Any = np.int64) -> NDArray[Any]:
        """A function of the features a node declares for every row; called once per distinct set."""
        return self._table.declared_features.map(of, dtype, self.rows)

    def image(self, name: str) -> tuple[int, int, NDArray[np.bool_]] | None:
        """An image's size in bytes, the number of nodes that hold it, and where it is (bool); None if nowhere."""
        image = self._table.images.get(name)
        return None if image is None else (image.size, image.nodes, image.on.readonly[self.rows])


@dataclass(frozen=True, slots=True)
class NodeChange:
    """What is imagined of one node: pods gone from it and pods added to it."""

    removed: tuple[PodInfo, ...] = ()
    added: tuple[PodInfo, ...] = ()

    def signed_pods(self) -> Iterable[tuple[int, PodInfo]]:
        """Each pod with -1 (gone) or +1 (added)."""
        yield from ((-1, info) for info in self.removed)
        yield from ((+1, info) for info in self.added)


class HypotheticalNodes(Nodes):
    """Rows as they would be after changes; what is imagined of a row is imagined of that row alone.

    ``changes[i]`` says it for the node at position i; ``deltas`` say it for all rows at once, as runs of slots of a pod
    table. Where both are given both hold.
    """

    def __init__(
        self,
        table: NodeTable,
        rows: NDArray[np.intp],
        changes: Sequence[NodeChange] | None = None,
        *,
        pod_changes: Sequence[PodChanges] = (),
    ) -> None:
        super().__init__(table, rows)
        self._pod_changes = tuple(pod_changes)
        if changes is not None:
            removed, added = [change.removed for change in changes], [change.added for change in changes]
            self._pod_changes += (PodChanges.of(removed, -1), PodChanges.of(added, +1))

    @cached_property
    def changes(self) -> Sequence[NodeChange]:
        """What is imagined of each row."""
        return [self.change(position) for position in range(len(self))]

    def change(self, position: int) -> NodeChange:
        """What is imagined of the row at a position."""
        return NodeChange(tuple(self._gone(position)), tuple(self._added(position)))

    def positions_changed_by(self, kind: Callable[[PodInfo], bool]) -> NDArray[np.intp]:
        """The positions of rows to which pods of some kind come, or which they leave, intp."""
        touched = np.zeros(len(self), np.bool_)
        for changes in self._pod_changes:
            touched |= changes.sums_of(kind) != 0
        return np.flatnonzero(touched)

    def select(self, positions: NDArray[Any]) -> HypotheticalNodes:
        """A view of some of these rows, with what is imagined of them."""
        chosen = np.flatnonzero(positions) if positions.dtype == np.bool_ else positions
        pod_changes = [changes.select(chosen) for changes in self._pod_changes]
        return HypotheticalNodes(self._table, self.row_numbers[chosen], pod_changes=pod_changes)

    def with_pod_changes(self, pod_changes: PodChanges) -> HypotheticalNodes:
        """The same rows with further pods imagined gone or added."""
        return HypotheticalNodes(self._table, self.row_numbers, pod_changes=(*self._pod_changes, pod_changes))

    def sum_of_changes(self, amount: Callable[[PodInfo], int]) -> NDArray[np.int64]:
        """What the changes of each row add up to, pod by pod, int64."""
        return self._sum(changes.sums_of(amount) for changes in self._pod_changes)

    def _sum(self, parts: Iterable[NDArray[np.int64]]) -> NDArray[np.int64]:
        return sum(parts, start=np.zeros(len(self), np.int64))

    def _gone(self, position: int) -> list[PodInfo]:
        return [info for changes in self._pod_changes if changes.sign < 0 for info in changes.at(position)]

    def _added(self, position: int) -> list[PodInfo]:
        return [info for changes in self._pod_changes if changes.sign > 0 for info in changes.at(position)]

    def pods(self, position: int) -> Sequence[PodInfo]:
        """The pods that would be on the node at a position."""
        gone = {info.uid for info in self._gone(position)}
        return [info for info in super().pods(position) if info.uid not in gone] + self._added(position)

    def requested(self, resource: str) -> NDArray[np.int64]:
        """What pods would request of a resource, int64."""
        return super().requested(resource) + self._sum(
            changes.sums(changes.table.requested(resource)) for changes in self._pod_changes
        )

    @property
    def nonzero_cpu(self) -> NDArray[np.int64]:
        """CPU that would be requested, with defaults, int64."""
        return super().nonzero_cpu + self._sum(changes.sums(changes.table.nonzero_cpu) for changes in self._pod_changes)

    @property
    def nonzero_memory(self) -> NDArray[np.int64]:
        """Memory that would be requested, with defaults, int64."""
        return super().nonzero_memory + self._sum(
            changes.sums(changes.table.nonzero_memory) for changes in self._pod_changes
        )

    @property
    def pod_count(self) -> NDArray[np.int64]:
        """How many pods there would be, int64."""
        return super().pod_count + self._sum(changes.count() for changes in self._pod_changes)

    def port_taken(self, wanted: HostPort) -> NDArray[np.bool_]:
        """Where a host port would be in use, bool."""
        taken = super().port_taken(wanted)
        touched = self.positions_changed_by(
            lambda info: any(port.conflicts_with(wanted) for port in info.shape.host_ports)
        )
        for position in touched:
            taken[position] = self._port_taken_at(int(position), wanted)
        return taken

    def _port_taken_at(self, position: int, wanted: HostPort) -> bool:
        """Like the table's set of ports (see its QUIRK), replayed for one node."""
        row = int(self.row_numbers[position])
        free = {port for info in self._gone(position) for port in info.shape.host_ports}
        kept = any(
            port not in free and port.conflicts_with(wanted)
            for port, column in self._table.ports()
            if column.values[row]
        )
        added = (port for info in self._added(position) for port in info.shape.host_ports)
        return kept or any(port.conflicts_with(wanted) for port in added)


def single_node(node: Node) -> Nodes:
    """A view of one node object by itself, without pods and in no cluster: for queueing hints."""
    table = NodeTable()
    table.add(node)
    return Nodes(table, slice(0, 1))
