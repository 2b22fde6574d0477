"""Nominations: the nodes that pending pods are nominated for (``status.nominatedNodeName``).

A pod is nominated after preemption, or while it waits for its binding. It counts on its node for pods of lower or equal
priority (semantics 4.3), so nominated pods have a table of their own beside that of the pods on nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from kubestow.cluster.changes.events import Action, ClusterEvent, EventResource
from kubestow.cluster.changes.journal import Journal, UndoLog
from kubestow.cluster.nodes.table import NodeTable
from kubestow.cluster.pods.shapes import PodInfo

#: The journal bits of a nomination that is made or dropped.
NOMINATED = ClusterEvent(EventResource.NOMINATION, Action.UPDATE).bits


class Nominations:
    """The nominated pods, by uid and by node; the node need not be known."""

    def __init__(self, nodes: NodeTable, journal: Journal, undo_log: UndoLog) -> None:
        self._nodes, self._journal, self._undo_log = nodes, journal, undo_log
        self._node_names: dict[str, str] = {}
        self._by_node: dict[str, dict[str, PodInfo]] = {}

    def __len__(self) -> int:
        return len(self._node_names)

    def node_name(self, uid: str) -> str | None:
        """The node that a pod is nominated for."""
        return self._node_names.get(uid)

    def pods(self, node_name: str) -> Sequence[PodInfo]:
        """The pods nominated for a node, in the order of their nominations."""
        return list(self._by_node.get(node_name, {}).values())

    def add(self, info: PodInfo, node_name: str) -> None:
        """Nominate a pod for a node, in place of an earlier nomination."""
        self.drop(info.uid)
        self._add(info, node_name)
        self._record(node_name)
        if self._undo_log.active:
            self._undo_log.append(partial(self._drop, info.uid))

    def drop(self, uid: str) -> None:
        """End a pod's nomination, if it has one."""
        node_name = self._node_names.get(uid)
        if node_name is None:
            return
        if self._undo_log.active:
            self._undo_log.append(self._undo_drop(uid, node_name))
        self._drop(uid)
        self._record(node_name)

    def node_added(self, row: int, node_name: str) -> None:
        """Count the pods nominated for a new node on its row."""
        for info in self.pods(node_name):
            self._nodes.nominate(row, info)

    def _add(self, info: PodInfo, node_name: str) -> None:
        self._node_names[info.uid] = node_name
        self._by_node.setdefault(node_name, {})[info.uid] = info
        row = self._nodes.rows.get(node_name)
        if row is not None:
            self._nodes.nominate(row, info)

    def _drop(self, uid: str) -> None:
        node_name = self._node_names.pop(uid)
        pods = self._by_node[node_name]
        del pods[uid]
        if not pods:
            del self._by_node[node_name]
        row = self._nodes.rows.get(node_name)
        if row is not None:
            self._nodes.drop_nomination(row, uid)

    def _undo_drop(self, uid: str, node_name: str) -> Callable[[], None]:
        """The call that makes a nomination again which is about to be dropped, at its place among the node's others."""
        row = self._nodes.rows.get(node_name)
        pods_before = self._by_node[node_name].copy()
        slots_before = None if row is None else self._nodes.nominated.slots(row)

        def undo() -> None:
            self._add(pods_before[uid], node_name)
            self._by_node[node_name] = pods_before
            if row is not None and slots_before is not None:
                self._nodes.nominated.restore_slots(row, slots_before)

        return undo

    def _record(self, node_name: str) -> None:
        row = self._nodes.rows.get(node_name)
        if row is not None:
            self._journal.write(row, NOMINATED)
