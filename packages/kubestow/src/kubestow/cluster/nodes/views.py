"""Views of rows of the node table: what plugins decide about.

A :class:`Nodes` covers all rows or some of them and returns arrays with one entry per row. A :class:`HypotheticalNodes`
covers rows as they would be without some of their pods or with some more; each row is an independent hypothesis, the
rest of the cluster being unchanged. A plugin that reads columns through the view supports both. The hypothetical
changes are runs of slots of a pod table, so that thousands of rows cost a few array operations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kubestow.api.core import Node, Taint
from kubestow.api.formats.int64 import saturated
from kubestow.cluster.nodes.columns import Column, LabelColumn, SumColumn
from kubestow.cluster.nodes.table import NodeTable
from kubestow.cluster.pods.shapes import PodInfo, Shape
from kubestow.cluster.pods.table import PodChanges, PodTable
from kubestow.rules.pods import HostPort

#: Row numbers (intp), or a slice with start and stop.
Rows = slice | NDArray[np.intp]


class Nodes:
    """Rows of the node table. Arrays have shape ``(len(nodes),)`` and may be read-only."""

    def __init__(self, table: NodeTable, rows: Rows) -> None:
        self._table = table
        self.rows = rows

    def __len__(self) -> int:
        rows = self.rows
        return rows.stop - rows.start if isinstance(rows, slice) else len(rows)

    @cached_property
    def row_numbers(self) -> NDArray[np.intp]:
        """The numbers of the rows in the node table, intp."""
        rows = self.rows
        return np.arange(rows.start, rows.stop, dtype=np.intp) if isinstance(rows, slice) else rows

    def select(self, positions: NDArray[Any]) -> Nodes:
        """A view of some of these rows, given as positions in this view (int) or as a mask over it (bool)."""
        return Nodes(self._table, self.row_numbers[positions])

    def with_pod_changes(self, pod_changes: PodChanges) -> HypotheticalNodes:
        """The same rows without some of their pods, or with some more; one run of pods per row."""
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
        """The position of a node in this view, None when the view does not cover it."""
        row = self._table.rows.get(name)
        if row is None:
            return None
        found = np.flatnonzero(self.row_numbers == row)
        return int(found[0]) if len(found) else None

    def named(self, name: str) -> NDArray[np.bool_]:
        """Which row is the node of this name, bool; none when the view does not cover it."""
        return np.equal(self.row_numbers, self._table.rows.get(name, -1))

    # -- resources -----------------------------------------------------------------------------------------------

    def allocatable(self, resource: str) -> NDArray[np.int64]:
        """Allocatable amounts of a resource (millicores, bytes or counts), int64; of stride 0 if all are the same."""
        return self._table.allocatable.repeated(resource)[self.rows]

    def requested(self, resource: str) -> NDArray[np.int64]:
        """The pods' requests of a resource (millicores, bytes or counts), int64."""
        return self._table.requested[resource].readonly[self.rows]

    @property
    def nonzero_cpu(self) -> NDArray[np.int64]:
        """The pods' CPU requests (millicores), with the default for pods without one, int64."""
        return self._table.nonzero_cpu.readonly[self.rows]

    @property
    def nonzero_memory(self) -> NDArray[np.int64]:
        """The pods' memory requests (bytes), with the default for pods without one, int64."""
        return self._table.nonzero_memory.readonly[self.rows]

    @property
    def allowed_pods(self) -> NDArray[np.int64]:
        """Allocatable pods, int64."""
        return self._table.allowed_pods.readonly[self.rows]

    @property
    def pod_count(self) -> NDArray[np.int64]:
        """The number of pods, int64."""
        return self._table.pod_count.readonly[self.rows]

    @property
    def extreme(self) -> NDArray[np.intp]:
        """The positions of rows with amounts that are negative or beyond 2**53, intp.

        Sums of such amounts and percentages of them may not fit into int64. They are computed in Python's integers.
        """
        table = self._table
        return np.flatnonzero(table.extreme.readonly[self.rows]) if table.has_extreme else _NO_POSITIONS

    @property
    def resources(self) -> Sequence[str]:
        """The resources that some node or pod of the cluster has."""
        return self._table.resources()

    def used_ports(self, position: int) -> frozenset[HostPort]:
        """The host ports taken on the node at a position."""
        return frozenset(self._table.taken_ports(int(self.row_numbers[position])))

    def port_taken(self, wanted: HostPort) -> NDArray[np.bool_]:
        """Where a conflicting host port is taken, bool."""
        taken = np.zeros(len(self), np.bool_)
        for _, column in self._table.ports_conflicting_with(wanted):
            taken |= column.readonly[self.rows]
        return taken

    # -- properties ----------------------------------------------------------------------------------------------

    @property
    def unschedulable(self) -> NDArray[np.bool_]:
        """``spec.unschedulable``, bool."""
        return self._table.unschedulable.readonly[self.rows]

    @property
    def total(self) -> int:
        """The number of nodes in the cluster, including those that this view does not cover."""
        return len(self._table)

    def label(self, key: str) -> NDArray[np.int32]:
        """The number of each node's value of a label, int32, 0 if it lacks the label; see :meth:`label_values`."""
        return self._table.label(key).ids[self.rows]

    @property
    def label_keys(self) -> Set[str]:
        """The keys of the labels that nodes of the cluster have."""
        return self._table.label_keys

    def label_column(self, key: str) -> LabelColumn:
        """The column of a label over all rows of the table."""
        return self._table.label(key)

    def label_values(self, key: str) -> Sequence[str | None]:
        """The text of each value number of a label; the first is None, for nodes without the label."""
        return self._table.label(key).values

    def by_label(self, key: str, function: Callable[[str | None], Any], dtype: Any = np.int64) -> NDArray[Any]:
        """A function of a label's value (None if missing) for every row, called once per distinct value."""
        column = self._table.label(key)
        return column.map(function, dtype, self.rows)

    def by_taints(self, function: Callable[[Sequence[Taint]], Any], dtype: Any = np.int64) -> NDArray[Any]:
        """A function of the list of taints for every row, called once per distinct list."""
        return self._table.taints.map(function, dtype, self.rows)

    def by_declared_features(self, function: Callable[[frozenset[str]], Any], dtype: Any = np.int64) -> NDArray[Any]:
        """A function of the declared features for every row, called once per distinct set."""
        return self._table.declared_features.map(function, dtype, self.rows)

    def image(self, name: str) -> tuple[int, int, NDArray[np.bool_]] | None:
        """An image's size in bytes, the number of nodes in the cluster that have it, and where it is (bool).

        None when no node has it.
        """
        image = self._table.images.get(name)
        return None if image is None else (image.size, image.nodes, image.on.readonly[self.rows])


class GatheredNodes(Nodes):
    """Some rows whose amounts are gathered once, for several plugins; valid until any of them changes.

    Where all nodes have the same allocatable amount, it is not gathered.
    """

    rows: NDArray[np.intp]

    def __init__(self, table: NodeTable, rows: NDArray[np.intp]) -> None:
        super().__init__(table, rows)
        self._requested: dict[str, NDArray[np.int64]] = {}
        self._allocatable: dict[str, NDArray[np.int64]] = {}

    def allocatable(self, resource: str) -> NDArray[np.int64]:
        """Allocatable amounts of a resource (millicores, bytes or counts), int64, read-only."""
        amounts = self._allocatable.get(resource)
        if amounts is None:
            of_all = self._table.allocatable.repeated(resource)
            amounts = of_all[: len(self.rows)] if of_all.strides == (0,) else of_all.take(self.rows)
            amounts.flags.writeable = False
            self._allocatable[resource] = amounts
        return amounts

    def requested(self, resource: str) -> NDArray[np.int64]:
        """The pods' requests of a resource (millicores, bytes or counts), int64, read-only."""
        amounts = self._requested.get(resource)
        if amounts is None:
            amounts = self._requested[resource] = self._table.requested[resource].values.take(self.rows)
            amounts.flags.writeable = False
        return amounts

    @property
    def nonzero_cpu(self) -> NDArray[np.int64]:
        """The pods' CPU requests (millicores), with the default for pods without one, int64."""
        return self._table.nonzero_cpu.values.take(self.rows)

    @property
    def nonzero_memory(self) -> NDArray[np.int64]:
        """The pods' memory requests (bytes), with the default for pods without one, int64."""
        return self._table.nonzero_memory.values.take(self.rows)


_NO_POSITIONS = np.empty(0, np.intp)


class NodeRow:
    """A single row of the node table in Python numbers, which are several times faster there than arrays."""

    __slots__ = ("_table", "row")

    def __init__(self, table: NodeTable, row: int) -> None:
        self._table = table
        self.row = row

    def as_nodes(self) -> Nodes:
        """A view of this row alone."""
        return Nodes(self._table, slice(self.row, self.row + 1))

    def allocatable(self, resource: str) -> int:
        """The allocatable amount of a resource (millicores, bytes or count)."""
        column = self._table.allocatable.get(resource)
        return 0 if column is None else int(column.entries[self.row])

    def requested(self, resource: str) -> int:
        """The pods' requests of a resource (millicores, bytes or count)."""
        column = self._table.requested.get(resource)
        return 0 if column is None else int(column.entries[self.row])

    @property
    def nonzero_cpu(self) -> int:
        """The pods' CPU requests (millicores), with the default for pods without one."""
        amount: int = self._table.nonzero_cpu.entries[self.row]
        return amount

    @property
    def nonzero_memory(self) -> int:
        """The pods' memory requests (bytes), with the default for pods without one."""
        amount: int = self._table.nonzero_memory.entries[self.row]
        return amount

    @property
    def allowed_pods(self) -> int:
        """Allocatable pods."""
        amount: int = self._table.allowed_pods.entries[self.row]
        return amount

    @property
    def pod_count(self) -> int:
        """The number of pods."""
        amount: int = self._table.pod_count.entries[self.row]
        return amount


class NodeRows:
    """A few rows of the node table as tuples of Python numbers, one per row. Each tuple is made once.

    Valid until any of the rows changes.
    """

    __slots__ = ("_numbers", "_pick", "_table", "rows")

    def __init__(self, table: NodeTable, rows: Sequence[int]) -> None:
        self._table = table
        self.rows = rows
        self._numbers: dict[Column, tuple[int, ...]] = {}
        #: Picks the entries of several rows at once; of a single one it would not make a tuple.
        self._pick: Callable[[memoryview[Any]], tuple[int, ...]] | None = itemgetter(*rows) if len(rows) > 1 else None

    def __len__(self) -> int:
        return len(self.rows)

    def name(self, row: int) -> str:
        """The name of the node of a row."""
        return self._table.names[row]

    def as_nodes(self) -> Nodes:
        """A view of these rows."""
        return Nodes(self._table, np.array(self.rows, np.intp))

    def __iter__(self) -> Iterator[NodeRow]:
        """Each row by itself."""
        return (NodeRow(self._table, row) for row in self.rows)

    def allocatable(self, resource: str) -> tuple[int, ...]:
        """The allocatable amounts of a resource (millicores, bytes or counts)."""
        return self._numbers_of(self._table.allocatable[resource])

    def requested(self, resource: str) -> tuple[int, ...]:
        """The pods' requests of a resource (millicores, bytes or counts)."""
        return self._numbers_of(self._table.requested[resource])

    @property
    def nonzero_cpu(self) -> tuple[int, ...]:
        """The pods' CPU requests (millicores), with the default for pods without one."""
        return self._numbers_of(self._table.nonzero_cpu)

    @property
    def nonzero_memory(self) -> tuple[int, ...]:
        """The pods' memory requests (bytes), with the default for pods without one."""
        return self._numbers_of(self._table.nonzero_memory)

    @property
    def allowed_pods(self) -> tuple[int, ...]:
        """Allocatable pods."""
        return self._numbers_of(self._table.allowed_pods)

    @property
    def pod_count(self) -> tuple[int, ...]:
        """The numbers of pods."""
        return self._numbers_of(self._table.pod_count)

    def _numbers_of(self, column: Column) -> tuple[int, ...]:
        found = self._numbers.get(column)
        if found is None:
            entries, pick = column.entries, self._pick
            found = self._numbers[column] = (
                tuple([entries[row] for row in self.rows]) if pick is None else pick(entries)
            )
        return found


@dataclass(frozen=True, slots=True)
class NodeChange:
    """The hypothetical change of one node: the pods it loses and the pods it gains."""

    removed: tuple[PodInfo, ...] = ()
    added: tuple[PodInfo, ...] = ()

    def signed_pods(self) -> Iterable[tuple[int, PodInfo]]:
        """Each pod with -1 if removed or +1 if added."""
        yield from ((-1, info) for info in self.removed)
        yield from ((+1, info) for info in self.added)


class HypotheticalNodes(Nodes):
    """Rows as they would be after changes; a change of one row is not seen in another.

    ``changes`` are given row by row, ``pod_changes`` for all rows at once. If both are given, both apply.
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
        """The change of each row."""
        return [self.change(position) for position in range(len(self))]

    def change(self, position: int) -> NodeChange:
        """The change of the row at a position."""
        return NodeChange(tuple(self._removed(position)), tuple(self._added(position)))

    def positions_changed_by(self, kind: Callable[[Shape], bool]) -> NDArray[np.intp]:
        """The positions of the rows that lose or gain pods of some kind, intp; see :meth:`sum_of_changes`."""
        changed = np.zeros(len(self), np.bool_)
        for changes in self._pod_changes:
            changed |= changes.sums_of(kind) != 0
        return np.flatnonzero(changed)

    def select(self, positions: NDArray[Any]) -> HypotheticalNodes:
        """A view of some of these rows, with their changes."""
        selected = np.flatnonzero(positions) if positions.dtype == np.bool_ else positions
        pod_changes = [changes.select(selected) for changes in self._pod_changes]
        return HypotheticalNodes(self._table, self.row_numbers[selected], pod_changes=pod_changes)

    def with_pod_changes(self, pod_changes: PodChanges) -> HypotheticalNodes:
        """The same rows with further changes."""
        return HypotheticalNodes(self._table, self.row_numbers, pod_changes=(*self._pod_changes, pod_changes))

    def sum_of_changes(self, amount: Callable[[Shape], int]) -> NDArray[np.int64]:
        """The change of each row's sum of a function of the pod's shape, int64.

        In a dry run the function is called once per distinct shape if it is the same function in each call, or an
        equal one such as a bound method. It must be hashable.
        """
        return self._sum(changes.sums_of(amount) for changes in self._pod_changes)

    def change_of_requests(self, resource: str, kind: Callable[[Shape], bool]) -> NDArray[np.int64]:
        """The change of the requests of a resource by pods of some kind, int64; see :meth:`sum_of_changes`."""
        return self._sum(changes.sums_of_requests(resource, kind) for changes in self._pod_changes)

    @property
    def changed_shapes(self) -> set[Shape]:
        """The distinct shapes of the pods that rows lose or gain, and maybe of others."""
        return {shape for changes in self._pod_changes for shape in changes.shapes}

    def _sum(self, parts: Iterable[NDArray[np.int64]]) -> NDArray[np.int64]:
        return sum(parts, start=np.zeros(len(self), np.int64))

    def _removed(self, position: int) -> list[PodInfo]:
        return [info for changes in self._pod_changes if changes.sign < 0 for info in changes.at(position)]

    def _added(self, position: int) -> list[PodInfo]:
        return [info for changes in self._pod_changes if changes.sign > 0 for info in changes.at(position)]

    def pods(self, position: int) -> Sequence[PodInfo]:
        """The pods on the node at a position after its change."""
        removed = {info.uid for info in self._removed(position)}
        return [info for info in super().pods(position) if info.uid not in removed] + self._added(position)

    @cached_property
    def extreme(self) -> NDArray[np.intp]:
        """The same, after the changes; rows that lose or gain a pod with such a request are among them."""
        positions = [super().extreme]
        for changes in self._pod_changes:
            if changes.table.extreme_pods:
                pods = np.array([info.has_extreme_requests for info in changes.infos], np.bool_)
                positions.append(changes.row_of[pods])
        return positions[0] if len(positions) == 1 else np.unique(np.concatenate(positions))

    def _changed(self, column: SumColumn, of_pods: Callable[[PodTable], NDArray[np.int64]]) -> NDArray[np.int64]:
        """A column of sums after the changes by what the pods of a table add (int64 by slot), int64; saturates."""
        sums: NDArray[np.int64] = column.readonly[self.rows] + self._sum(
            changes.sums(of_pods(changes.table)) for changes in self._pod_changes
        )
        for position in self.extreme.tolist():
            exact = column.exact(int(self.row_numbers[position]))
            for changes in self._pod_changes:
                slots = changes.slots[changes.offsets[position] : changes.offsets[position + 1]]
                exact += changes.sign * sum(of_pods(changes.table)[slots].tolist())
            sums[position] = saturated(exact)
        return sums

    def requested(self, resource: str) -> NDArray[np.int64]:
        """The pods' requests of a resource after the changes, int64."""
        return self._changed(self._table.requested[resource], lambda pods: pods.requested(resource))

    @property
    def nonzero_cpu(self) -> NDArray[np.int64]:
        """The pods' CPU requests (millicores) with defaults after the changes, int64."""
        return self._changed(self._table.nonzero_cpu, lambda pods: pods.nonzero_cpu)

    @property
    def nonzero_memory(self) -> NDArray[np.int64]:
        """The pods' memory requests (bytes) with defaults after the changes, int64."""
        return self._changed(self._table.nonzero_memory, lambda pods: pods.nonzero_memory)

    @property
    def pod_count(self) -> NDArray[np.int64]:
        """The number of pods after the changes, int64."""
        return super().pod_count + self._sum(changes.count() for changes in self._pod_changes)

    def used_ports(self, position: int) -> frozenset[HostPort]:
        """The host ports taken on the node at a position after its change."""
        freed = {port for info in self._removed(position) for port in info.shape.host_ports}
        taken = {port for info in self._added(position) for port in info.shape.host_ports}
        return frozenset((super().used_ports(position) - freed) | taken)

    def port_taken(self, wanted: HostPort) -> NDArray[np.bool_]:
        """Where a conflicting host port is taken after the changes, bool.

        QUIRK (semantics 7.4): ports are a set. A pod that is removed frees its ports, even those that others have too;
        a pod that is added takes them, even if it was removed before.
        """
        taken = np.zeros(len(self), np.bool_)
        for port, column in self._table.ports_conflicting_with(wanted):
            freed = (changes.sums_removed(port.is_used_by) for changes in self._pod_changes if changes.sign < 0)
            taken |= column.readonly[self.rows] & (self._sum(freed) == 0)
        for changes in self._pod_changes:
            added = changes.sums_of(wanted.conflicts_in)
            if changes.sign < 0:
                added = added - changes.sums_removed(wanted.conflicts_in)
            taken |= added > 0
        return taken


def single_node(node: Node) -> Nodes:
    """A view of one node object by itself, without pods and outside any cluster, for queueing hints."""
    table = NodeTable()
    table.add(node)
    return Nodes(table, slice(0, 1))
