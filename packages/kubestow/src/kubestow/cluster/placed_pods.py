"""The pods on nodes, and everything that is derived from where they are.

Placing or removing a pod updates its node's row, the counters, the volumes in use, the index of shapes and the affinity
terms that placed pods carry. All of that is additive, so :class:`PlacedPods` undoes a change by its opposite; only the
order of pods on a node has to be restored besides.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol
from weakref import ReferenceType

from kubestow.cluster.changes.events import Action, ClusterEvent, EventResource, notify
from kubestow.cluster.changes.journal import EVERY_ROW, Journal, UndoLog
from kubestow.cluster.nodes.table import NodeTable
from kubestow.cluster.nominations import Nominations
from kubestow.cluster.pods.index import PlacedPod, PodIndex
from kubestow.cluster.pods.shapes import PodInfo
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
        if self.index.add(uid, placed_pod) and info.shape.carried_terms:
            self.carried_terms.add(info.shape.carried_terms)
            return True
        return False

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
        self.carried_terms.remove(info.shape.carried_terms)
        return bool(info.shape.carried_terms)

    def _add_to_row(self, row: int, info: PodInfo) -> None:
        self._nodes.add_pod(row, info)
        self._counters.count(row, info, +1)
        for reference in self.listeners:
            if (listener := reference()) is not None:
                notify(listener.pod_added, row, info)
        if info.shape.spec.volumes:
            self._volumes.add_pod(self._nodes.names[row], info)

    def _remove_from_row(self, row: int, info: PodInfo) -> None:
        self._nodes.remove_pod(row, info)
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
        versions = self.carried_terms.save_versions(info.shape.carried_terms)
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
