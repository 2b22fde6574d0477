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
from kubestow.cluster.catalog import Catalog, Described
from kubestow.cluster.devices.claims import ClaimLedger
from kubestow.cluster.events import Action, ClusterEvent, EventResource
from kubestow.cluster.journal import EVERY_ROW, Journal
from kubestow.cluster.nodes.table import NodeTable
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.index import PlacedPod, PodIndex
from kubestow.cluster.pods.index_keys import Groups
from kubestow.cluster.pods.pod_groups import PodGroups
from kubestow.cluster.pods.shapes import PodInfo, Shape, Shapes
from kubestow.cluster.storage.volumes import Volumes
from kubestow.cluster.topology.affinity import CarriedTerms
from kubestow.cluster.topology.counters import Counters, PodCounter, Population
from kubestow.errors import KubestowError

__all__ = ["Cluster", "PlacedPod"]

T = TypeVar("T", bound=Described)

_POD_ADDED = ClusterEvent(EventResource.ASSIGNED_POD, Action.ADD).bits
_POD_DELETED = ClusterEvent(EventResource.ASSIGNED_POD, Action.DELETE).bits
_POD_CHANGED = ClusterEvent(EventResource.ASSIGNED_POD, Action.ALL | Action.UPDATE_POD_SCALE_UP).bits
_POD_STARTED = ClusterEvent(EventResource.ASSIGNED_POD, Action.UPDATE_POD_START_TIME).bits
_NOMINATED = ClusterEvent(EventResource.NOMINATION, Action.UPDATE).bits
_TERMS_CARRIED = ClusterEvent(EventResource.AFFINITY_TERM, Action.UPDATE).bits


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
        #: The distinct affinity and anti-affinity terms of all placed pods.
        self.carried_terms = CarriedTerms()
        self._catalogs: dict[type, Catalog[Any]] = {}
        #: Volumes in use on nodes, and volumes to be had.
        self.volumes = Volumes(self.nodes, self)
        #: Claims on devices, and who has them.
        self.claims = ClaimLedger(self.catalog(ResourceClaim))
        self._placements: dict[str, PlacedPod] = {}
        #: Which pods belong together, those without a node included.
        self.pod_groups = PodGroups(self._placements.keys())
        self._census = PodIndex()
        #: Pods whose node is unknown (not seen yet, or gone before them), by its name.
        self._strays: dict[str, dict[str, PodInfo]] = {}
        self._nominated_to: dict[str, dict[str, PodInfo]] = {}
        self._nominations: dict[str, str] = {}

    # -- reading -------------------------------------------------------------------------------------------------

    def all_nodes(self) -> Nodes:
        """Every node, as it is."""
        return Nodes(self.nodes, slice(0, len(self.nodes)))

    def placed_pod(self, uid: str) -> PlacedPod | None:
        """Where a pod is, None when it is on no node."""
        return self._placements.get(uid)

    def has_placed(self, shape: Shape) -> bool:
        """Whether any pod of a shape is on a node."""
        return shape in self._census

    def is_assumed(self, uid: str) -> bool:
        """Whether a pod has been placed without the watch having said so yet."""
        placed_pod = self._placements.get(uid)
        return placed_pod is not None and placed_pod.assumed

    @property
    def pod_count(self) -> int:
        """How many pods are on nodes, assumed ones included."""
        return len(self._placements)

    def assumed(self) -> Iterator[PlacedPod]:
        """The placements that the watch has not confirmed yet."""
        return (placed_pod for placed_pod in self._placements.values() if placed_pod.assumed)

    def counter(
        self,
        key: Hashable,
        weigh: Callable[[Shape], int],
        *,
        groups: Groups | None = None,
        terminating: bool = False,
    ) -> PodCounter:
        """A per-node counter of pods (see :mod:`kubestow.cluster.topology.counters`).

        ``groups`` are such that all pods that count are in one of them; None leaves that open.
        """
        return self.counters.get(key, weigh, self._population(groups), groups=groups, terminating=terminating)

    def _population(self, groups: Groups | None) -> Population:
        rows = self.nodes.rows
        for shape, placements in self._census.of(groups):
            yield shape, ((rows[p.node_name], p.info) for p in placements if p.node_name in rows)

    def catalog(self, kind: type[T]) -> Catalog[T]:
        """The objects of a kind that is neither a pod, a node nor a namespace."""
        found = self._catalogs.get(kind)
        if found is None:
            found = self._catalogs[kind] = Catalog(self.journal, _event_resource(kind))
        return found

    # -- nodes ---------------------------------------------------------------------------------------------------

    def add_node(self, node: Node) -> None:
        """A node appeared; pods that were waiting for it come with it. Raises InvalidQuantity."""
        row = self.nodes.add(node)
        self.volumes.node_came(row)
        for info in self._strays.pop(node.metadata.name, {}).values():
            self._put_on(row, info)
        for info in self.nominated_to(node.metadata.name):
            self.nodes.promise(row, info)
        self.journal.write(row, ClusterEvent(EventResource.NODE, Action.ADD).bits)

    def update_node(self, node: Node) -> Action:
        """A known node changed; what differs is returned. Raises InvalidQuantity and changes nothing."""
        changed = self.nodes.update(node)
        if changed:
            row = self.nodes.rows[node.metadata.name]
            self.journal.write(row, ClusterEvent(EventResource.NODE, changed).bits)
        return changed

    def remove_node(self, name: str) -> None:
        """A node is gone. Its pods stay known until they go too."""
        row = self.nodes.rows[name]
        for info in list(self.nodes.pods[row].values()):
            self._take_off(row, info)
            self._strays.setdefault(name, {})[info.uid] = info
        self.nodes.remove(name)
        self.journal.write(EVERY_ROW, ClusterEvent(EventResource.NODE, Action.DELETE).bits)

    # -- pods ----------------------------------------------------------------------------------------------------

    def assume(self, info: PodInfo, node_name: str) -> None:
        """Take a placement as done, ahead of the API server. Raises KubestowError when the pod is placed already."""
        if info.uid in self._placements:
            raise KubestowError(f"pod {info.key} ({info.uid}) is in the cache, so can't be assumed")
        self._place(PlacedPod(info, node_name, assumed=True))

    def forget(self, uid: str) -> None:
        """Take an assumption back; one that was confirmed or removed meanwhile stays as it is."""
        placed_pod = self._placements.get(uid)
        if placed_pod is not None and placed_pod.assumed:
            self._unplace(placed_pod)

    def put_pod(self, info: PodInfo) -> None:
        """The API server says that a pod is on ``spec.nodeName``: new, changed, or confirming an assumption."""
        placed_pod = self._placements.get(info.uid)
        if placed_pod is None:
            self._place(PlacedPod(info, info.spec.node_name, assumed=False))
            return
        if placed_pod.node_name != info.spec.node_name or not _alike(placed_pod.info, info):
            self._unplace(placed_pod)
            self._place(PlacedPod(info, info.spec.node_name, assumed=False), bits=_POD_CHANGED)
            return
        placed_pod.assumed = False
        placed_pod.info = info
        row = self.nodes.rows.get(placed_pod.node_name)
        if row is None:
            self._strays[placed_pod.node_name][info.uid] = info
        elif self.nodes.replace_pod(row, info):
            self.journal.write(row, _POD_STARTED)

    def remove_pod(self, uid: str) -> None:
        """A pod is gone from its node, or was never on one."""
        placed_pod = self._placements.get(uid)
        if placed_pod is not None:
            self._unplace(placed_pod)

    def _place(self, placed_pod: PlacedPod, bits: int = _POD_ADDED) -> None:
        info = placed_pod.info
        self._placements[info.uid] = placed_pod
        if self._census.add(info.uid, placed_pod) and info.shape.carried_terms:
            self.carried_terms.add(info.shape.carried_terms)
            self.journal.write(EVERY_ROW, _TERMS_CARRIED)
        self.drop_nomination(info.uid)
        row = self.nodes.rows.get(placed_pod.node_name)
        if row is None:
            self._strays.setdefault(placed_pod.node_name, {})[info.uid] = info
            return
        self._put_on(row, info)
        self.journal.write(row, bits)

    def _unplace(self, placed_pod: PlacedPod) -> None:
        info = placed_pod.info
        del self._placements[info.uid]
        row = self.nodes.rows.get(placed_pod.node_name)
        if row is None:
            strays = self._strays[placed_pod.node_name]
            del strays[info.uid]
            if not strays:
                del self._strays[placed_pod.node_name]
        else:
            self._take_off(row, info)
            self.journal.write(row, _POD_DELETED)
        if self._census.remove(info.uid, placed_pod):
            if info.shape.carried_terms:
                self.carried_terms.remove(info.shape.carried_terms)
                self.journal.write(EVERY_ROW, _TERMS_CARRIED)
            self.counters.forget(info.shape)

    def _put_on(self, row: int, info: PodInfo) -> None:
        self.nodes.add_pod(row, info)
        self.counters.count(row, info, +1)
        if info.spec.volumes:
            self.volumes.pod_came(self.nodes.names[row], info)

    def _take_off(self, row: int, info: PodInfo) -> None:
        self.nodes.remove_pod(row, info)
        self.counters.count(row, info, -1)
        if info.spec.volumes:
            self.volumes.pod_left(self.nodes.names[row], info)

    # -- nominations ---------------------------------------------------------------------------------------------

    def nominate(self, info: PodInfo, node_name: str) -> None:
        """A pending pod has been promised a node, in place of any earlier promise."""
        self.drop_nomination(info.uid)
        self._nominations[info.uid] = node_name
        self._nominated_to.setdefault(node_name, {})[info.uid] = info
        row = self.nodes.rows.get(node_name)
        if row is not None:
            self.nodes.promise(row, info)
            self.journal.write(row, _NOMINATED)

    def drop_nomination(self, uid: str) -> None:
        """A pod's promise is over, if it had one."""
        node_name = self._nominations.pop(uid, None)
        if node_name is not None:
            promised = self._nominated_to[node_name]
            del promised[uid]
            if not promised:
                del self._nominated_to[node_name]
            row = self.nodes.rows.get(node_name)
            if row is not None:
                self.nodes.break_promise(row, uid)
                self.journal.write(row, _NOMINATED)

    def nomination(self, uid: str) -> str | None:
        """The node a pod has been promised."""
        return self._nominations.get(uid)

    def nominated_to(self, node_name: str) -> Sequence[PodInfo]:
        """The pods that have been promised a node."""
        return list(self._nominated_to.get(node_name, {}).values())

    @property
    def has_nominations(self) -> bool:
        """Whether any node has been promised to anybody."""
        return bool(self._nominations)

    # -- everything else -----------------------------------------------------------------------------------------

    def put_namespace(self, name: str, labels: Mapping[str, str]) -> None:
        """A namespace is there, with these labels."""
        if self.namespaces.get(name) != labels:
            self.namespaces[name] = labels
            self.namespaces_version += 1
            self.journal.write(EVERY_ROW, ClusterEvent(EventResource.NAMESPACE, Action.UPDATE).bits)

    def remove_namespace(self, name: str) -> None:
        """A namespace is gone."""
        if self.namespaces.pop(name, None) is not None:
            self.namespaces_version += 1
            self.journal.write(EVERY_ROW, ClusterEvent(EventResource.NAMESPACE, Action.DELETE).bits)


def _event_resource(kind: type) -> str | None:
    if issubclass(kind, CustomObject):
        return kind.resource
    return _EVENT_RESOURCES.get(kind.__name__)


def _alike(old: PodInfo, new: PodInfo) -> bool:
    """Whether two states of a pod are the same to everybody who decides about others."""
    return (
        old.shape is new.shape
        and old.requests == new.requests
        and old.nonzero_requests == new.nonzero_requests
        and old.terminating == new.terminating
    )
