"""The scheduler's cache: the cluster as observed from the API server, plus what has been decided since.

Its only writers are watch events and the scheduler's own decisions: assume, forget and nominate. A pod is *assumed*
from the moment it is placed until the watch confirms it, or until its binding fails and it is forgotten; readers do not
distinguish assumed pods from confirmed ones. Every change is recorded in the journal, which invalidates cached results.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol, TypeVar
from weakref import ReferenceType, ref

import numpy as np

from kubestow.api.core import Node
from kubestow.api.custom import CustomObject
from kubestow.api.resource import ResourceClaim
from kubestow.api.scheduling import CompositePodGroup, PodGroup
from kubestow.cluster.changes.catalog import Catalog, KubernetesObject
from kubestow.cluster.changes.events import Action, ClusterEvent, EventResource, notify
from kubestow.cluster.changes.journal import EVERY_ROW, ChangeWindow, Journal, UndoLog
from kubestow.cluster.nodes.table import NodeTable
from kubestow.cluster.nodes.views import GatheredNodes, NodeRows, Nodes
from kubestow.cluster.placed_pods import CHANGED, Nominations, PlacedPod, PlacedPods, PlacementListener
from kubestow.cluster.pods.affinity_terms import IndexKeys
from kubestow.cluster.pods.group_readiness import GroupReadiness
from kubestow.cluster.pods.hierarchies import Hierarchies
from kubestow.cluster.pods.placed_groups import PlacedGroups
from kubestow.cluster.pods.pod_groups import KUBERNETES, WORKLOADS, PodGroupAPI, PodGroups
from kubestow.cluster.pods.shapes import PodInfo, Shape, ShapeFamily, Shapes
from kubestow.cluster.resource_claims import ResourceClaimTracker
from kubestow.cluster.simulation import Simulation
from kubestow.cluster.storage.volumes import Volumes
from kubestow.cluster.topology.carried_terms import CarriedTerms
from kubestow.cluster.topology.counters import Counters, PlacedShapes, PodCounter
from kubestow.config import FeatureGates
from kubestow.errors import KubestowError
from kubestow.rules.minors import Behaviour
from kubestow.rules.requests import RequestRules

T = TypeVar("T", bound=KubernetesObject)

#: The event resources of kinds; changes of other kinds requeue no pod and invalidate no result.
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
    "Service": EventResource.WORKLOAD,
    "ReplicationController": EventResource.WORKLOAD,
    "ReplicaSet": EventResource.WORKLOAD,
    "StatefulSet": EventResource.WORKLOAD,
}


class PodListener(Protocol):
    """Is called with every pod that the API server has, of any scheduler, with a node or without."""

    def pod_observed(self, info: PodInfo) -> None:
        """A pod is new, or has changed."""

    def pod_ended(self, uid: str) -> None:
        """A pod has finished or was deleted."""


class Cluster:
    """Nodes, the pods on them, nominations, namespaces, and catalogs of all other objects.

    ``pod_group_apis`` are those of other projects whose groups count, beside Kubernetes' own. Pods and volumes are
    counted by the rules of the ``gates``' minor version.
    """

    def __init__(self, pod_group_apis: Iterable[PodGroupAPI] = (), *, gates: FeatureGates | None = None) -> None:
        gates = gates or FeatureGates()
        self.nodes = NodeTable()
        self.journal = Journal()
        #: What has changed since cached results were computed.
        self.change_window = ChangeWindow(self.journal, self.nodes)
        self.shapes = Shapes(RequestRules.of(gates))
        self.counters = Counters(self.nodes.columns)
        self.namespaces: dict[str, Mapping[str, str]] = {}
        #: Incremented with every change of the namespaces.
        self.namespaces_version = 0
        self._catalogs: dict[type, Catalog[Any]] = {}
        #: Volumes: in use, attached, and available.
        self.volumes = Volumes(self.nodes, self, gates.minor)
        #: Resource claims and the devices allocated to them.
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
        self.pod_groups = PodGroups(
            self._placed_pods.by_uid.keys(),
            pod_group_apis,
            own=KUBERNETES if gates.minor.has(Behaviour.POD_GROUPS_ARE_OBJECTS) else WORKLOADS,
        )
        self._pod_listeners: list[ReferenceType[PodListener]] = []
        #: The latest results of :meth:`some_nodes` and :meth:`few_nodes`, each with its rows and the journal position.
        self._viewed: tuple[list[int], int, Nodes] | None = None
        self._listed: tuple[list[int], int, NodeRows] | None = None

    # -- reading -------------------------------------------------------------------------------------------------

    def all_nodes(self) -> Nodes:
        """A view of all nodes."""
        return Nodes(self.nodes, slice(0, len(self.nodes)))

    def some_nodes(self, rows: list[int]) -> Nodes:
        """A view of some rows, to be used before anything changes; for the same list it is the same view."""
        viewed, position = self._viewed, self.journal.position
        if viewed is None or viewed[0] is not rows or viewed[1] != position:
            some = slice(rows[0], rows[0] + 1) if len(rows) == 1 else None
            nodes = Nodes(self.nodes, some) if some else GatheredNodes(self.nodes, np.array(rows, np.intp))
            viewed = self._viewed = rows, position, nodes
        return viewed[2]

    def few_nodes(self, rows: list[int]) -> NodeRows:
        """The same as tuples of numbers, which are faster than arrays for a few rows."""
        listed, position = self._listed, self.journal.position
        if listed is None or listed[0] is not rows or listed[1] != position:
            listed = self._listed = rows, position, NodeRows(self.nodes, rows)
        return listed[2]

    @property
    def carried_terms(self) -> CarriedTerms:
        """The distinct affinity and anti-affinity terms of all placed pods."""
        return self._placed_pods.carried_terms

    def placed_pod(self, uid: str) -> PlacedPod | None:
        """A pod with its node, None when it is not placed."""
        return self._placed_pods.by_uid.get(uid)

    def has_placed(self, family: ShapeFamily) -> bool:
        """Whether a pod of this family is placed."""
        return family in self._placed_pods.index

    def is_assumed(self, uid: str) -> bool:
        """Whether a pod is placed but not confirmed by the watch."""
        placed_pod = self._placed_pods.by_uid.get(uid)
        return placed_pod is not None and placed_pod.assumed

    @property
    def pod_count(self) -> int:
        """The number of placed pods, assumed ones included."""
        return len(self._placed_pods.by_uid)

    def assumed(self) -> Iterator[PlacedPod]:
        """The assumed pods, in the order in which they were placed."""
        return (placed_pod for placed_pod in self._placed_pods.by_uid.values() if placed_pod.assumed)

    def listen_to_placements(self, listener: PlacementListener) -> None:
        """Call a listener for every pod on a known node, and for every later change, as long as it is referred to.

        A simulation adds and removes pods as well; what it has done is undone by the opposite calls.
        """
        listeners = self._placed_pods.listeners
        listeners.append(ref(listener, listeners.remove))
        for row, pods in enumerate(self.nodes.pods):
            for info in pods.values():
                listener.pod_added(row, info)

    @cached_property
    def hierarchies(self) -> Hierarchies:
        """The trees of Kubernetes' pod groups."""
        return Hierarchies(self.catalog(PodGroup), self.catalog(CompositePodGroup))

    @cached_property
    def placed_groups(self) -> PlacedGroups:
        """The placed pods of Kubernetes' pod groups, which are kept as columns from the first use on."""
        groups, composites = self.catalog(PodGroup), self.catalog(CompositePodGroup)
        placed = PlacedGroups(self.nodes.pod_table, groups, composites, self.hierarchies)
        self.listen_to_placements(placed)
        return placed

    @cached_property
    def group_readiness(self) -> GroupReadiness:
        """How much of each tree of Kubernetes' pod groups is ready, which is counted from the first use on."""
        return GroupReadiness(self.pod_groups, self.catalog(PodGroup), self.catalog(CompositePodGroup))

    def listen_to_pods(self, listener: PodListener) -> None:
        """Call a listener for every pod that is observed from now on, as long as it is referred to."""
        self._pod_listeners.append(ref(listener, self._pod_listeners.remove))

    def counter(
        self,
        key: Hashable,
        weight_of: Callable[[Shape], int],
        *,
        index_keys: IndexKeys | None = None,
        terminating: bool = False,
    ) -> PodCounter:
        """The per-node counter of pods with a key (see :class:`kubestow.cluster.topology.counters.PodCounter`).

        ``weight_of`` returns the weight of a shape, 0 for one that does not count. Shapes without any of the
        ``index_keys`` must not count; None means that any shape may.
        """
        return self.counters.get(
            key, weight_of, self._placed_shapes(index_keys), index_keys=index_keys, terminating=terminating
        )

    def _placed_shapes(self, index_keys: IndexKeys | None) -> PlacedShapes:
        rows = self.nodes.rows
        for shape, pods in self._placed_pods.index.with_any_key(index_keys):
            yield shape, ((rows[p.node_name], p.info) for p in pods if p.node_name in rows)

    def catalog(self, kind: type[T]) -> Catalog[T]:
        """The objects of a kind other than Pod, Node and Namespace."""
        catalog = self._catalogs.get(kind)
        if catalog is None:
            catalog = self._catalogs[kind] = self._new_catalog(kind)
        return catalog

    def record_change(self, event: ClusterEvent, node_name: str | None) -> None:
        """Record in the journal that data of a plugin has changed, which concerns a node, or all of them (None)."""
        row = EVERY_ROW if node_name is None else self.nodes.rows.get(node_name, EVERY_ROW)
        self.journal.write(row, event.bits)

    def _new_catalog(self, kind: type[T]) -> Catalog[T]:
        if issubclass(kind, CustomObject) and kind.is_about_node:
            rows = self.nodes.rows
            return Catalog(self.journal, _event_resource(kind), lambda name: rows.get(name, EVERY_ROW))
        return Catalog(self.journal, _event_resource(kind))

    def catalogs(self) -> Iterator[Catalog[Any]]:
        """The catalogs that have been asked for."""
        return iter(self._catalogs.values())

    def simulate(self) -> Simulation:
        """A context manager that undoes every change made in its block (see :mod:`kubestow.cluster.simulation`)."""
        return Simulation(self._placed_pods, self.journal, self._undo_log)

    def _require_no_simulation(self) -> None:
        if self._undo_log.active:
            raise KubestowError("an observed change was applied during a simulation, whose block must not be suspended")

    # -- nodes ---------------------------------------------------------------------------------------------------

    def add_node(self, node: Node) -> None:
        """Add a node, with the pods and nominations that it has already. Raises InvalidQuantity."""
        self._require_no_simulation()
        row, name = self.nodes.add(node), node.metadata.name
        self.volumes.add_node(row)
        self._placed_pods.node_added(row, name)
        self._nominations.node_added(row, name)
        self.journal.write(row, ClusterEvent(EventResource.NODE, Action.ADD).bits)

    def update_node(self, node: Node) -> Action:
        """Replace a node; what differs is returned. Raises InvalidQuantity, in which case nothing changes."""
        self._require_no_simulation()
        changed = self.nodes.update(node)
        if changed:
            row = self.nodes.rows[node.metadata.name]
            if changed & Action.UPDATE_NODE_ALLOCATABLE:
                self.volumes.node_changed(row)
            self.journal.write(row, ClusterEvent(EventResource.NODE, changed).bits)
        return changed

    def remove_node(self, name: str) -> None:
        """Remove a node. Its pods stay placed, on an unknown node."""
        self._require_no_simulation()
        self._placed_pods.node_removed(self.nodes.rows[name], name)
        self.nodes.remove(name)
        self.journal.write(EVERY_ROW, ClusterEvent(EventResource.NODE, Action.DELETE).bits)

    # -- pods ----------------------------------------------------------------------------------------------------

    def assume(self, info: PodInfo, node_name: str) -> None:
        """Place a pod ahead of the API server; its nomination ends. Raises KubestowError if it is placed already."""
        self._placed_pods.place(PlacedPod(info, node_name, assumed=True))

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
        elif placed_pod.node_name != info.spec.node_name or not _counts_alike(placed_pod.info, info):
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

    def observe_pod(self, info: PodInfo) -> bool:
        """Take note of a pod, with a node or without; whether it has become a ready member of a pod group."""
        has_joined_group = self.pod_groups.put(info)
        for reference in self._pod_listeners:
            if (listener := reference()) is not None:
                notify(listener.pod_observed, info)
        return has_joined_group

    def end_pod(self, uid: str) -> None:
        """Take note that a pod has finished or was deleted."""
        self.pod_groups.remove(uid)
        for reference in self._pod_listeners:
            if (listener := reference()) is not None:
                notify(listener.pod_ended, uid)

    # -- nominations ---------------------------------------------------------------------------------------------

    def nominate(self, info: PodInfo, node_name: str) -> None:
        """Nominate a pending pod for a node, in place of an earlier nomination."""
        self._nominations.add(info, node_name)

    def drop_nomination(self, uid: str) -> None:
        """End a pod's nomination, if it has one."""
        self._nominations.drop(uid)

    def nomination(self, uid: str) -> str | None:
        """The node that a pod is nominated for."""
        return self._nominations.node_names.get(uid)

    def nominated_pods(self, node_name: str) -> Sequence[PodInfo]:
        """The pods nominated for a node, in the order of their nominations."""
        return self._nominations.pods(node_name)

    @property
    def has_nominations(self) -> bool:
        """Whether any pod is nominated."""
        return bool(self._nominations.node_names)

    # -- namespaces -----------------------------------------------------------------------------------------------

    def put_namespace(self, name: str, labels: Mapping[str, str]) -> None:
        """Add a namespace or replace its labels."""
        self._require_no_simulation()
        if self.namespaces.get(name) != labels:
            self.namespaces[name] = labels
            self.namespaces_version += 1
            self.journal.write(EVERY_ROW, ClusterEvent(EventResource.NAMESPACE, Action.UPDATE).bits)

    def remove_namespace(self, name: str) -> None:
        """Remove a namespace, if it is known."""
        self._require_no_simulation()
        if self.namespaces.pop(name, None) is not None:
            self.namespaces_version += 1
            self.journal.write(EVERY_ROW, ClusterEvent(EventResource.NAMESPACE, Action.DELETE).bits)


def _event_resource(kind: type) -> str | None:
    if issubclass(kind, CustomObject):
        return kind.resource
    return _EVENT_RESOURCES.get(kind.__name__)


def _counts_alike(old: PodInfo, new: PodInfo) -> bool:
    """Whether two states of a pod count alike in scheduling decisions about other pods."""
    return (
        old.shape is new.shape
        and old.requests == new.requests
        and old.nonzero_requests == new.nonzero_requests
        and old.terminating == new.terminating
    )
