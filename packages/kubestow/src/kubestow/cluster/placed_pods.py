"""The pods on nodes and those nominated for one, and everything that is derived from where they are.

Placing or removing a pod updates its node's row, the counters, the volumes in use, the index of shapes and the affinity
terms that placed pods carry. All of that is additive, so :class:`PlacedPods` undoes a change by its opposite; only the
order of pods on a node has to be restored besides.

A pod is nominated (``status.nominatedNodeName``) after preemption, or while it waits for its binding. It counts on its
node for pods of lower or equal priority (semantics 4.3), so nominated pods have a table of their own beside that of the
pods on nodes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol
from weakref import ReferenceType

from kubestow.cluster.changes.events import Action, ClusterEvent, EventResource, notify
from kubestow.cluster.changes.journal import EVERY_ROW, Journal, UndoLog
from kubestow.cluster.nodes.table import NodeTable
from kubestow.cluster.pods.affinity_terms import IndexKeys
from kubestow.cluster.pods.shapes import PodInfo, Shape, ShapeFamily
from kubestow.cluster.storage.volumes import Volumes
from kubestow.cluster.topology.carried_terms import CarriedTerms
from kubestow.cluster.topology.counters import Counters
from kubestow.errors import KubestowError
from kubestow.rules.pods import HostPort

_ADDED = ClusterEvent(EventResource.ASSIGNED_POD, Action.ADD).bits
_DELETED = ClusterEvent(EventResource.ASSIGNED_POD, Action.DELETE).bits
_STARTED = ClusterEvent(EventResource.ASSIGNED_POD, Action.UPDATE_POD_START_TIME).bits
#: The journal bits of a pod that is replaced by a different state of it.
CHANGED = ClusterEvent(EventResource.ASSIGNED_POD, Action.ALL | Action.UPDATE_POD_SCALE_UP).bits
#: The journal bits of a change of the distinct terms that placed pods carry.
TERMS_CARRIED = ClusterEvent(EventResource.AFFINITY_TERM, Action.UPDATE).bits
#: The journal bits of a nomination that is made or dropped.
NOMINATED = ClusterEvent(EventResource.NOMINATION, Action.UPDATE).bits


@dataclass(slots=True)
class PlacedPod:
    """A pod on a node, which may be missing from the cache, and whether the watch has yet to confirm the binding."""

    info: PodInfo
    node_name: str
    assumed: bool


class PodIndex:
    """The placed pods by shape, and the shapes by index key.

    A new counter is filled from the shapes that have one of its index keys
    (:mod:`kubestow.cluster.pods.affinity_terms`), so it never visits pods that it does not count.
    """

    def __init__(self) -> None:
        self._by_shape: dict[Shape, dict[str, PlacedPod]] = {}
        self._shapes_by_key: dict[Hashable, dict[Shape, None]] = {}
        #: The number of shapes of each family.
        self._families: Counter[ShapeFamily] = Counter()

    def __contains__(self, family: ShapeFamily) -> bool:
        """Whether a pod of this family is placed."""
        return family in self._families

    def with_any_key(self, index_keys: IndexKeys | None) -> Iterator[tuple[Shape, Collection[PlacedPod]]]:
        """The shapes that have one of the keys, or all of them for None, each with its placed pods."""
        shapes: Iterable[Shape] = self._by_shape
        if index_keys is not None:
            shapes = dict.fromkeys(shape for key in index_keys for shape in self._shapes_by_key.get(key, ()))
        return ((shape, self._by_shape[shape].values()) for shape in shapes)

    def add(self, uid: str, placed_pod: PlacedPod) -> bool:
        """Add a placed pod; whether it is the first of its shape."""
        shape = placed_pod.info.shape
        copies = self._by_shape.get(shape)
        if copies is not None:
            copies[uid] = placed_pod
            return False
        self._by_shape[shape] = {uid: placed_pod}
        self._families[shape.family] += 1
        for key in shape.index_keys:
            self._shapes_by_key.setdefault(key, {})[shape] = None
        return True

    def remove(self, uid: str, placed_pod: PlacedPod) -> bool:
        """Remove a placed pod; whether it was the last of its shape."""
        shape = placed_pod.info.shape
        copies = self._by_shape[shape]
        del copies[uid]
        if copies:
            return False
        del self._by_shape[shape]
        self._families[shape.family] -= 1
        if not self._families[shape.family]:
            del self._families[shape.family]
        for key in shape.index_keys:
            shapes = self._shapes_by_key[key]
            del shapes[shape]
            if not shapes:
                del self._shapes_by_key[key]
        return True


class Nominations:
    """The nominated pods, by uid and by node; the node need not be known."""

    def __init__(self, nodes: NodeTable, journal: Journal, undo_log: UndoLog) -> None:
        self._nodes, self._journal, self._undo_log = nodes, journal, undo_log
        #: The node that each pod is nominated for, by uid.
        self.node_names: dict[str, str] = {}
        self._by_node: dict[str, dict[str, PodInfo]] = {}

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
        node_name = self.node_names.get(uid)
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
        self.node_names[info.uid] = node_name
        self._by_node.setdefault(node_name, {})[info.uid] = info
        row = self._nodes.rows.get(node_name)
        if row is not None:
            self._nodes.nominate(row, info)

    def _drop(self, uid: str) -> None:
        node_name = self.node_names.pop(uid)
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


@dataclass(slots=True)
class _UnknownNode:
    """A node that has not been added yet, or was deleted before its pods: the pods on it, and the host ports taken.

    QUIRK (semantics 7.4): as on other nodes, ports are a set, which holds when the node is added (again).
    """

    pods: dict[str, PodInfo] = field(default_factory=dict)
    taken_ports: set[HostPort] = field(default_factory=set)

    def add(self, info: PodInfo) -> None:
        self.pods[info.uid] = info
        self.taken_ports.update(info.shape.host_ports)

    def remove(self, info: PodInfo) -> None:
        del self.pods[info.uid]
        self.taken_ports.difference_update(info.shape.host_ports)

    def copy(self) -> _UnknownNode:
        return _UnknownNode(self.pods.copy(), self.taken_ports.copy())


class PlacementListener(Protocol):
    """Is called with every pod that is added to a known node or removed from it, by a simulation as well."""

    def pod_added(self, row: int, info: PodInfo) -> None:
        """A pod has been added to the node of a row."""

    def pod_removed(self, row: int, info: PodInfo) -> None:
        """A pod has been removed from the node of a row; also when it is about to be replaced by another state."""


class PlacedPods:
    """The placed pods by uid, those on unknown nodes included."""

    def __init__(
        self,
        nodes: NodeTable,
        journal: Journal,
        *,
        counters: Counters,
        volumes: Volumes,
        nominations: Nominations,
        undo_log: UndoLog,
    ) -> None:
        self._nodes, self._journal, self._undo_log = nodes, journal, undo_log
        self._counters, self._volumes, self._nominations = counters, volumes, nominations
        self.by_uid: dict[str, PlacedPod] = {}
        self.index = PodIndex()
        #: The distinct affinity and anti-affinity terms of all placed pods.
        self.carried_terms = CarriedTerms()
        #: The objects that are called for every pod that is added to a known node or removed from it.
        self.listeners: list[ReferenceType[PlacementListener]] = []
        #: The unknown nodes that pods are on, by name.
        self._unknown_nodes: dict[str, _UnknownNode] = {}

    def place(self, placed_pod: PlacedPod, bits: int = _ADDED) -> None:
        """Put a pod on its node; ``bits`` say in the journal how the node's row has changed. Ends its nomination.

        Raises KubestowError when the pod is on a node already.
        """
        info = placed_pod.info
        if info.uid in self.by_uid:
            raise KubestowError(f"pod {info.key} ({info.uid}) is in the cache, so can't be assumed")
        if info.uid in self._nominations.node_names:
            self._nominations.drop(info.uid)
        row = self._nodes.rows.get(placed_pod.node_name)
        if self._undo_log.active:
            self._undo_log.append(self._undo(self._remove, placed_pod, row))
        if self._add(placed_pod, row):
            self._journal.write(EVERY_ROW, TERMS_CARRIED)
        if row is not None:
            self._journal.write(row, bits)

    def remove(self, placed_pod: PlacedPod) -> None:
        """Take a pod off its node."""
        row = self._nodes.rows.get(placed_pod.node_name)
        if self._undo_log.active:
            self._undo_log.append(self._undo(self._add, placed_pod, row))
        if row is not None:
            self._journal.write(row, _DELETED)
        if self._remove(placed_pod, row):
            self._journal.write(EVERY_ROW, TERMS_CARRIED)
            if not self._undo_log.active:
                self.carried_terms.prune_versions()

    def confirm(self, placed_pod: PlacedPod, info: PodInfo) -> None:
        """Replace a pod by a state of it that is the same for scheduling, as observed from the API server.

        QUIRK (semantics 7.4): kube-scheduler removes and adds the pod, so its host ports are taken from then on.
        """
        placed_pod.assumed = False
        placed_pod.info = info
        row = self._nodes.rows.get(placed_pod.node_name)
        if row is None:
            self._unknown_nodes[placed_pod.node_name].add(info)
            return
        if self._nodes.replace_pod(row, info):
            self._journal.write(row, _STARTED)
        self.take_host_ports(placed_pod)

    def take_host_ports(self, placed_pod: PlacedPod) -> None:
        """Have the host ports of a pod taken again, if a pod that shared them has freed them."""
        row = self._nodes.rows.get(placed_pod.node_name)
        if row is None or not (taken := self._nodes.take_ports(row, placed_pod.info)):
            return
        if self._undo_log.active:
            self._undo_log.append(lambda: self._nodes.free_ports(row, taken))
        self._journal.write(row, CHANGED)

    def node_added(self, row: int, node_name: str) -> None:
        """Put the pods that were waiting for a node on its row."""
        unknown = self._unknown_nodes.pop(node_name, None)
        if unknown is not None:
            for info in unknown.pods.values():
                self._add_to_row(row, info)
            self._nodes.free_ports(row, self._nodes.taken_ports(row) - unknown.taken_ports)

    def node_removed(self, row: int, node_name: str) -> None:
        """Take the pods off a row before it is removed. They stay placed, on an unknown node."""
        pods, taken_ports = list(self._nodes.pods[row].values()), self._nodes.taken_ports(row)
        for info in pods:
            self._remove_from_row(row, info)
        if pods:
            self._unknown_nodes[node_name] = _UnknownNode({info.uid: info for info in pods}, taken_ports)

    # -- without nominations, journal and undo log -----------------------------------------------------------------

    def _add(self, placed_pod: PlacedPod, row: int | None) -> bool:
        """Add a pod on a row (None: of an unknown node); whether it is the first that carries its terms."""
        info = placed_pod.info
        uid = info.uid
        self.by_uid[uid] = placed_pod
        if row is None:
            self._unknown_nodes.setdefault(placed_pod.node_name, _UnknownNode()).add(info)
        else:
            self._add_to_row(row, info)
        is_new = self.index.add(uid, placed_pod)
        return bool(is_new and info.shape.affinity_terms and self.carried_terms.add(info.shape.affinity_terms))

    def _remove(self, placed_pod: PlacedPod, row: int | None) -> bool:
        """Remove a pod from a row (None: of an unknown node); whether it was the last that carried its terms."""
        info = placed_pod.info
        uid = info.uid
        del self.by_uid[uid]
        if row is None:
            unknown = self._unknown_nodes[placed_pod.node_name]
            unknown.remove(info)
            if not unknown.pods:
                del self._unknown_nodes[placed_pod.node_name]
        else:
            self._remove_from_row(row, info)
        if not self.index.remove(uid, placed_pod):
            return False
        self._counters.drop_shape(info.shape)
        return bool(info.shape.affinity_terms and self.carried_terms.remove(info.shape.affinity_terms))

    def _add_to_row(self, row: int, info: PodInfo) -> None:
        self._nodes.add_pod(row, info)
        if self._counters:
            self._counters.count(row, info, +1)
        for reference in self.listeners:
            if (listener := reference()) is not None:
                notify(listener.pod_added, row, info)
        if info.shape.spec.volumes:
            self._volumes.add_pod(self._nodes.names[row], info)

    def _remove_from_row(self, row: int, info: PodInfo) -> None:
        self._nodes.remove_pod(row, info)
        if self._counters:
            self._counters.count(row, info, -1)
        for reference in self.listeners:
            if (listener := reference()) is not None:
                notify(listener.pod_removed, row, info)
        if info.shape.spec.volumes:
            self._volumes.remove_pod(self._nodes.names[row], info)

    def _undo(
        self, opposite: Callable[[PlacedPod, int | None], object], placed_pod: PlacedPod, row: int | None
    ) -> Callable[[], None]:
        """The call that undoes a change which is about to be made.

        It does the opposite, and restores what the opposite would leave different: the order of the node's pods, host
        ports that several of them share, and the versions of carried terms.
        """
        info, node_name = placed_pod.info, placed_pod.node_name
        versions = self.carried_terms.save_versions(info.shape.affinity_terms)
        if row is not None:
            pods_before = self._nodes.pods_on(row, info)

            def undo() -> None:
                opposite(placed_pod, row)
                self._nodes.restore_pods(row, info, pods_before)
                self.carried_terms.restore_versions(versions)

            return undo
        unknown = self._unknown_nodes.get(node_name)
        unknown_before = None if unknown is None else unknown.copy()

        def undo_on_unknown_node() -> None:
            opposite(placed_pod, row)
            if unknown_before is not None:
                self._unknown_nodes[node_name] = unknown_before
            self.carried_terms.restore_versions(versions)

        return undo_on_unknown_node
