"""The cluster as the scheduler believes it to be: what the API server said, plus what was decided since.

Assume, forget and the watch's own news are the only writers. A pod is *assumed* from the moment it is placed until the
watch confirms it (or the binding fails and it is forgotten); to everybody who reads the cluster it is simply there.
Every change is noted in the journal, which is how remembered answers learn that they are stale.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from kubestow.api.core import Node
from kubestow.api.custom import CustomObject
from kubestow.api.resource import ResourceClaim
from kubestow.cluster.catalog import Catalog, NamedObject
from kubestow.cluster.devices.claims import ResourceClaimTracker
from kubestow.cluster.events import Action, ClusterEvent, EventResource
from kubestow.cluster.journal import EVERY_ROW, Journal
from kubestow.cluster.nodes.table import NodeTable
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.nominations import Nominations
from kubestow.cluster.placed_pods import CHANGED, PlacedPods
from kubestow.cluster.pods.index import PlacedPod
from kubestow.cluster.pods.index_keys import IndexKeys
from kubestow.cluster.pods.pod_groups import PodGroups
from kubestow.cluster.pods.shapes import PodInfo, Shape, Shapes
from kubestow.cluster.simulation import Simulation
from kubestow.cluster.storage.volumes import Volumes
from kubestow.cluster.topology.carried_terms import CarriedTerms
from kubestow.cluster.topology.counters import Counters, PlacedShapes, PodCounter
from kubestow.cluster.undo_log import UndoLog
from kubestow.errors import KubestowError

__all__ = ["Cluster", "PlacedPod"]

T = TypeVar("T", bound=NamedObject)

#: What a change of a kind is called among cluster events; the others are never waited for.
_EVENT_RESOURCES = {
    "PersistentVolume": EventResource.PERSISTENT_VOLUME,
    "PersistentVolumeClaim": EventResource.PERSISTENT_VOLUME_CLAIM,
    "StorageClass": EventResource.STORAGE_CLASS,
    "CSINode": EventResource.CSI_NODE,
    "CSIDriver": EventResource.CSI_DRIVER,
    "CSIStorageCapacity": EventResource.CSI_STORAGE_CAPACITY,
    "VolumeAttachment": EventResource.VOLUME_ATTACHMENT,
    "ResourceClaim": EventResource.RESOURCE_CLAIM,
    "ResourceSlice": EventResource.RESOURCE_SLICE,
    "DeviceClass": EventResource.DEVICE_CLASS,
    "PodGroup": EventResource.POD_GROUP,
    "CoschedulingPodGroup": EventResource.POD_GROUP,
    "VolcanoPodGroup": EventResource.POD_GROUP,
    "Service": EventResource.WORKLOAD,
    "ReplicationController": EventResource.WORKLOAD,
    "ReplicaSet": EventResource.WORKLOAD,
    "StatefulSet": EventResource.WORKLOAD,
}


class Cluster:
    """Nodes, the pods on them, nominations and namespaces."""

    def __init__(self) -> None:
        self.nodes = NodeTable()
        self.journal = Journal()
        self.shapes = Shapes()
        self.counters = Counters(self.nodes.columns)
        self.namespaces: dict[str, Mapping[str, str]] = {}
        #: Grows with every change of the namespaces.
        self.namespaces_version = 0
        self._catalogs: dict[type, Catalog[Any]] = {}
        #: Volumes in use on nodes, and volumes to be had.
        self.volumes = Volumes(self.nodes, self)
        #: Claims on devices, and who has them.
        self.resource_claims = ResourceClaimTracker(self.catalog(ResourceClaim))
        self._undo_log = UndoLog()
        self._nominations = Nominations(self.nodes, self.journal, self._undo_log)
        self._placed_pods = PlacedPods(
            self.nodes,
            self.journal,
            counters=self.counters,
            volumes=self.volumes,
            nominations=self._nominations,
            undo_log=self._undo_log,
        )
        #: The members of pod groups, those without a node included.
        self.pod_groups = PodGroups(self._placed_pods.by_uid.keys())

    # -- reading -------------------------------------------------------------------------------------------------

    def all_nodes(self) -> Nodes:
        """Every node, as it is."""
        return Nodes(self.nodes, slice(0, len(self.nodes)))

    @property
    def carried_terms(self) -> CarriedTerms:
        """The distinct affinity and anti-affinity terms of all placed pods."""
        return self._placed_pods.carried_terms

    def placed_pod(self, uid: str) -> PlacedPod | None:
        """Where a pod is, None when it is on no node."""
        return self._placed_pods.by_uid.get(uid)

    def has_placed(self, shape: Shape) -> bool:
        """Whether any pod of a shape is on a node."""
        return shape in self._placed_pods.index

    def is_assumed(self, uid: str) -> bool:
        """Whether a pod has been placed without the watch having said so yet."""
        placed_pod = self._placed_pods.by_uid.get(uid)
        return placed_pod is not None and placed_pod.assumed

    @property
    def pod_count(self) -> int:
        """How many pods are on nodes, assumed ones included."""
        return len(self._placed_pods.by_uid)

    def assumed(self) -> Iterator[PlacedPod]:
        """The placed pods that the API server has not confirmed yet, in no particular order."""
        return (placed_pod for placed_pod in self._placed_pods.by_uid.values() if placed_pod.assumed)

    def counter(
        self,
        key: Hashable,
        weight_of: Callable[[Shape], int],
        *,
        index_keys: IndexKeys | None = None,
        terminating: bool = False,
    ) -> PodCounter:
        """A per-node counter of pods (see :mod:`kubestow.cluster.topology.counters`).

        ``index_keys`` are such that all pods that count are in one of them; None leaves that open.
        """
        return self.counters.get(
            key, weight_of, self._population(index_keys), index_keys=index_keys, terminating=terminating
        )

    def _population(self, index_keys: IndexKeys | None) -> PlacedShapes:
        rows = self.nodes.rows
        for shape, placements in self._placed_pods.index.with_any_key(index_keys):
            yield shape, ((rows[p.node_name], p.info) for p in placements if p.node_name in rows)

    def catalog(self, kind: type[T]) -> Catalog[T]:
        """The objects of a kind that is neither a pod, a node nor a namespace."""
        found = self._catalogs.get(kind)
        if found is None:
            found = self._catalogs[kind] = Catalog(self.journal, _event_resource(kind))
        return found

    def simulate(self) -> Simulation:
        """A context manager that undoes every change made in its block (see :mod:`kubestow.cluster.simulation`)."""
        return Simulation(self._placed_pods, self.journal, self._undo_log)

    def _require_no_simulation(self) -> None:
        if self._undo_log.active:
            raise KubestowError("an observed change was applied during a simulation, whose block must not be suspended")

    # -- nodes ---------------------------------------------------------------------------------------------------

    def add_node(self, node: Node) -> None:
        """Add a node, with the pods that are on it already. Raises InvalidQuantity."""
        self._require_no_simulation()
        row, name = self.nodes.add(node), node.metadata.name
        self.volumes.add_node(row)
        self._placed_pods.node_added(row, name)
        self._nominations.node_added(row, name)
        self.journal.write(row, ClusterEvent(EventResource.NODE, Action.ADD).bits)

    def update_node(self, node: Node) -> Action:
        """Replace a known node; what differs is returned. Raises InvalidQuantity and changes nothing."""
        self._require_no_simulation()
        changed = self.nodes.update(node)
        if changed:
            row = self.nodes.rows[node.metadata.name]
            self.journal.write(row, ClusterEvent(EventResource.NODE, changed).bits)
        return changed

    def remove_node(self, name: str) -> None:
        """Remove a node. Its pods stay placed until they are removed too."""
        self._require_no_simulation()
        self._placed_pods.node_removed(self.nodes.rows[name], name)
        self.nodes.remove(name)
        self.journal.write(EVERY_ROW, ClusterEvent(EventResource.NODE, Action.DELETE).bits)

    # -- pods ----------------------------------------------------------------------------------------------------

    def assume(self, info: PodInfo, node_name: str) -> None:
        """Place a pod ahead of the API server. Raises KubestowError when the pod is placed already."""
        self._placed_pods.place_new(PlacedPod(info, node_name, assumed=True))

    def forget(self, uid: str) -> None:
        """Remove an assumed pod; one that was confirmed or removed meanwhile stays as it is."""
        placed_pod = self._placed_pods.by_uid.get(uid)
        if placed_pod is not None and placed_pod.assumed:
            self._placed_pods.remove(placed_pod)

    def put_pod(self, info: PodInfo) -> None:
        """Apply an observed pod that is on ``spec.nodeName``: new, changed, or confirming an assumption."""
        self._require_no_simulation()
        placed_pod = self._placed_pods.by_uid.get(info.uid)
        observed = PlacedPod(info, info.spec.node_name, assumed=False)
        if placed_pod is None:
            self._placed_pods.place(observed)
        elif placed_pod.node_name != info.spec.node_name or not _schedules_alike(placed_pod.info, info):
            self._placed_pods.remove(placed_pod)
            self._placed_pods.place(observed, bits=CHANGED)
        else:
            self._placed_pods.confirm(placed_pod, info)

    def remove_pod(self, uid: str) -> None:
        """Remove a pod that is observed to be deleted or terminated, if it is placed at all."""
        self._require_no_simulation()
        placed_pod = self._placed_pods.by_uid.get(uid)
        if placed_pod is not None:
            self._placed_pods.remove(placed_pod)

    # -- nominations ---------------------------------------------------------------------------------------------

    def nominate(self, info: PodInfo, node_name: str) -> None:
        """Nominate a pending pod for a node, in place of an earlier nomination."""
        self._nominations.add(info, node_name)

    def drop_nomination(self, uid: str) -> None:
        """End a pod's nomination, if it has one."""
        self._nominations.drop(uid)

    def nomination(self, uid: str) -> str | None:
        """The node that a pod is nominated for."""
        return self._nominations.node_name(uid)

    def nominated_pods(self, node_name: str) -> Sequence[PodInfo]:
        """The pods nominated for a node, in the order of their nominations."""
        return self._nominations.pods(node_name)

    @property
    def has_nominations(self) -> bool:
        """Whether any pod is nominated."""
        return len(self._nominations) > 0

    # -- everything else -----------------------------------------------------------------------------------------

    def put_namespace(self, name: str, labels: Mapping[str, str]) -> None:
        """A namespace is there, with these labels."""
        self._require_no_simulation()
        if self.namespaces.get(name) != labels:
            self.namespaces[name] = labels
            self.namespaces_version += 1
            self.journal.write(EVERY_ROW, ClusterEvent(EventResource.NAMESPACE, Action.UPDATE).bits)

    def remove_namespace(self, name: str) -> None:
        """A namespace is gone."""
        self._require_no_simulation()
        if self.namespaces.pop(name, None) is not None:
            self.namespaces_version += 1
            self.journal.write(EVERY_ROW, ClusterEvent(EventResource.NAMESPACE, Action.DELETE).bits)


def _event_resource(kind: type) -> str | None:
    if issubclass(kind, CustomObject):
        return kind.resource
    return _EVENT_RESOURCES.get(kind.__name__)


def _schedules_alike(old: PodInfo, new: PodInfo) -> bool:
    """Whether two states of a pod are the same to everybody who decides about others."""
    return (
        old.shape is new.shape
        and old.requests == new.requests
        and old.nonzero_requests == new.nonzero_requests
        and old.terminating == new.terminating
    )
