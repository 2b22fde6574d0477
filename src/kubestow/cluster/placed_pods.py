"""The pods on nodes, and everything that is derived from where they are.

Placing or removing a pod updates its node's row, the counters, the volumes in use, the index of shapes and the affinity
terms that placed pods carry. All of that is additive, so :class:`PlacedPods` undoes a change by its opposite; only the
order of pods on a node has to be restored besides.
"""

from __future__ import annotations

from collections.abc import Callable

from kubestow.cluster.events import Action, ClusterEvent, EventResource
from kubestow.cluster.journal import EVERY_ROW, Journal
from kubestow.cluster.nodes.table import NodeTable
from kubestow.cluster.nominations import Nominations
from kubestow.cluster.pods.index import PlacedPod, PodIndex
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.cluster.storage.volumes import Volumes
from kubestow.cluster.topology.carried_terms import CarriedTerms
from kubestow.cluster.topology.counters import Counters
from kubestow.cluster.undo_log import UndoLog
from kubestow.errors import KubestowError

__all__ = ["CHANGED", "TERMS_CARRIED", "PlacedPods"]

_ADDED = ClusterEvent(EventResource.ASSIGNED_POD, Action.ADD).bits
_DELETED = ClusterEvent(EventResource.ASSIGNED_POD, Action.DELETE).bits
_STARTED = ClusterEvent(EventResource.ASSIGNED_POD, Action.UPDATE_POD_START_TIME).bits
#: The journal bits of a pod that is replaced by a different state of it.
CHANGED = ClusterEvent(EventResource.ASSIGNED_POD, Action.ALL | Action.UPDATE_POD_SCALE_UP).bits
#: The journal bits of a change of the distinct terms that placed pods carry.
TERMS_CARRIED = ClusterEvent(EventResource.AFFINITY_TERM, Action.UPDATE).bits


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
        #: Pods whose node is unknown (not added yet, or deleted before them), by its name.
        self._on_unknown_nodes: dict[str, dict[str, PodInfo]] = {}

    def place(self, placed_pod: PlacedPod, bits: int = _ADDED) -> None:
        """Put a pod on its node; ``bits`` say in the journal how the node's row has changed. Ends its nomination."""
        self._nominations.drop(placed_pod.info.uid)
        row = self._nodes.rows.get(placed_pod.node_name)
        if self._undo_log.active:
            self._undo_log.append(self._undo(self._remove, placed_pod, row))
        if self._add(placed_pod, row):
            self._journal.write(EVERY_ROW, TERMS_CARRIED)
        if row is not None:
            self._journal.write(row, bits)

    def place_new(self, placed_pod: PlacedPod) -> None:
        """Put a pod on its node. Raises KubestowError when it is on one already."""
        info = placed_pod.info
        if info.uid in self.by_uid:
            raise KubestowError(f"pod {info.key} ({info.uid}) is in the cache, so can't be assumed")
        self.place(placed_pod)

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
        """Replace a pod by a state of it that is the same for scheduling, as observed from the API server."""
        placed_pod.assumed = False
        placed_pod.info = info
        row = self._nodes.rows.get(placed_pod.node_name)
        if row is None:
            self._on_unknown_nodes[placed_pod.node_name][info.uid] = info
        elif self._nodes.replace_pod(row, info):
            self._journal.write(row, _STARTED)

    def node_added(self, row: int, node_name: str) -> None:
        """Put the pods that were waiting for a node on its row."""
        for info in self._on_unknown_nodes.pop(node_name, {}).values():
            self._add_to_row(row, info)

    def node_removed(self, row: int, node_name: str) -> None:
        """Take the pods off a row before it is removed. They stay placed, on an unknown node."""
        for info in list(self._nodes.pods[row].values()):
            self._remove_from_row(row, info)
            self._on_unknown_nodes.setdefault(node_name, {})[info.uid] = info

    # -- without nominations, journal and undo log -----------------------------------------------------------------

    def _add(self, placed_pod: PlacedPod, row: int | None) -> bool:
        """Add a pod on a row (None: of an unknown node); whether it is the first that carries its terms."""
        info = placed_pod.info
        uid = info.uid
        self.by_uid[uid] = placed_pod
        if row is None:
            self._on_unknown_nodes.setdefault(placed_pod.node_name, {})[uid] = info
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
            pods = self._on_unknown_nodes[placed_pod.node_name]
            del pods[uid]
            if not pods:
                del self._on_unknown_nodes[placed_pod.node_name]
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
        if info.spec.volumes:
            self._volumes.add_pod(self._nodes.names[row], info)

    def _remove_from_row(self, row: int, info: PodInfo) -> None:
        self._nodes.remove_pod(row, info)
        self._counters.count(row, info, -1)
        if info.spec.volumes:
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
        waiting_before = self._on_unknown_nodes.get(node_name, {}).copy()

        def undo_on_unknown_node() -> None:
            opposite(placed_pod, row)
            if waiting_before:
                self._on_unknown_nodes[node_name] = waiting_before
            self.carried_terms.restore_versions(versions)

        return undo_on_unknown_node
