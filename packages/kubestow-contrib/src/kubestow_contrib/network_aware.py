"""The network-aware plugins of scheduler-plugins: dependencies between the workloads of an application.

AppGroup and NetworkTopology objects, TopologicalSort, which orders the pods of an application by its topology, and
NetworkOverhead, which keeps pods close to those that they depend on.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from kubestow.api.custom import CustomObject
from kubestow.api.meta import APIObject
from kubestow.cluster.cache import Cluster
from kubestow.cluster.changes.events import Action, EventResource
from kubestow.cluster.nodes.views import HypotheticalNodes, Nodes
from kubestow.cluster.pods.shapes import PodInfo, Shape
from kubestow.cluster.topology.counters import PodCounter
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.event_registration import Invalidation, on
from kubestow.framework.interface import FilterPlugin, PreFilterPlugin, Queued, QueueSortPlugin, ScorePlugin
from kubestow.framework.status import Status, Verdict
from kubestow_contrib.range_normalization import inverted_range

GROUP_LABEL = "appgroup.diktyo.x-k8s.io"
"""The label of a pod that names its AppGroup."""
WORKLOAD_LABEL = "appgroup.diktyo.x-k8s.io.workload"
"""The label of a pod that is the selector of its workload."""

REGION, ZONE = "topology.kubernetes.io/region", "topology.kubernetes.io/zone"

T = TypeVar("T", bound=CustomObject)


class Workload(APIObject, frozen=True):
    """A workload, by the value of its pods' label."""

    selector: str = ""


class Dependency(APIObject, frozen=True):
    """A workload that another depends on, and the network cost up to which that is good."""

    workload: Workload = Workload()
    max_network_cost: int = 0


class AppGroupWorkload(APIObject, frozen=True):
    """``spec.workloads[]``."""

    workload: Workload = Workload()
    dependencies: list[Dependency] = []


class AppGroupSpec(APIObject, frozen=True):
    """``spec`` of an AppGroup."""

    workloads: list[AppGroupWorkload] = []


class TopologyInfo(APIObject, frozen=True):
    """``status.topologyOrder[]``: the position of a workload."""

    workload: Workload = Workload()
    index: int = 0


class AppGroupStatus(APIObject, frozen=True):
    """``status`` of an AppGroup."""

    topology_order: list[TopologyInfo] = []


class AppGroup(CustomObject, frozen=True):
    """An application."""

    resource: ClassVar[str] = "appgroups.v1alpha1.appgroup.diktyo.x-k8s.io"
    spec: AppGroupSpec = AppGroupSpec()
    status: AppGroupStatus = AppGroupStatus()

    def dependencies(self, selector: str) -> list[Dependency]:
        """What a workload depends on."""
        return [
            dependency
            for workload in self.spec.workloads
            if workload.workload.selector == selector
            for dependency in workload.dependencies
        ]

    def position(self, selector: str) -> int:
        """The position of a workload in the order of the topology, -1 if it has none."""
        order = self.status.topology_order
        return next((entry.index for entry in order if entry.workload.selector == selector), -1)


class Cost(APIObject, frozen=True):
    """The cost from an origin to a destination."""

    destination: str = ""
    network_cost: int = 0


class Origin(APIObject, frozen=True):
    """The costs from a region or zone."""

    origin: str = ""
    cost_list: list[Cost] = []


class TopologyCosts(APIObject, frozen=True):
    """The costs between the values of a topology key."""

    topology_key: str = ""
    origin_list: list[Origin] = []


class Weights(APIObject, frozen=True):
    """Named costs, such as those of the user or measured ones."""

    name: str = ""
    topology_list: list[TopologyCosts] = []


class NetworkTopologySpec(APIObject, frozen=True):
    """``spec`` of a NetworkTopology."""

    weights: list[Weights] = []


class NetworkTopology(CustomObject, frozen=True):
    """Costs between regions and between zones."""

    resource: ClassVar[str] = "networktopologies.v1alpha1.networktopology.diktyo.x-k8s.io"
    spec: NetworkTopologySpec = NetworkTopologySpec()

    def costs(self, weights_name: str, topology_key: str) -> Mapping[tuple[str, str], int]:
        """The costs by origin and destination."""
        return {
            (origin.origin, cost.destination): cost.network_cost
            for weights in self.spec.weights
            if weights.name == weights_name
            for topology in weights.topology_list
            if topology.topology_key == topology_key
            for origin in topology.origin_list
            for cost in origin.cost_list
        }


def first_of(cluster: Cluster, kind: type[T], namespaces: Iterable[str], name: str) -> T | None:
    """The object of a name in the first of some namespaces that has one."""
    catalog = cluster.catalog(kind)
    return next((obj for namespace in namespaces if (obj := catalog.get(namespace, name)) is not None), None)


class TopologicalSortArgs(msgspec.Struct, frozen=True):
    """The namespaces in which AppGroups are looked for."""

    namespaces: list[str] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class _Key:
    """The place of a pod: by ``position`` among the pods of its group, else by ``otherwise``.

    As upstream, this is no total order: pods of one group may be separated by others.
    """

    group: str
    position: int
    otherwise: tuple[int, float]

    def __lt__(self, other: _Key) -> bool:
        if self.group and self.group == other.group and self.position != other.position:
            return self.position < other.position
        return self.otherwise < other.otherwise

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and not self < other and not other < self


class TopologicalSort(QueueSortPlugin):
    """Pods that others of the application depend on later or earlier, as the AppGroup's status says."""

    name = "TopologicalSort"
    Args = TopologicalSortArgs
    events_to_register = ()
    kinds = (AppGroup,)

    def sort_key(self, queued: Queued) -> _Key:
        """The key with the position that the AppGroup has now; a pod without AppGroup is like one without label."""
        labels, otherwise = queued.info.labels, (-queued.info.priority, queued.timestamp)
        name = labels.get(GROUP_LABEL, "")
        group = None
        if name:
            group = first_of(self.handle.cluster, AppGroup, self.args.namespaces or ["default"], name)
        if group is None:
            return _Key("", 0, otherwise)
        return _Key(name, group.position(labels.get(WORKLOAD_LABEL, "")), otherwise)


Int64s = NDArray[np.int64]

_MAX_COST = 100
_SAME_ZONE = 1
_REJECTED = Status.unschedulable("node(s) did not meet network requirements from Workload dependencies")


class NetworkOverheadArgs(msgspec.Struct, rename="camel", frozen=True):
    """The namespaces of AppGroups and NetworkTopologies, the name of the topology, and which of its weights to use."""

    namespaces: list[str] | None = None
    weights_name: str | None = None
    network_topology_name: str | None = None


class _Location(NamedTuple):
    """The region and the zone of a node, empty if it has no such label."""

    region: str
    zone: str


@dataclass(frozen=True, slots=True, eq=False)
class _Dependencies:
    """The dependencies of a pod: counters of their pods, and per row of the table how they are met, int64.

    The arrays count pods on the row's own node like others of the same location; ``own`` is by how much they have to be
    corrected for each of them, as an array of shape (3, rows): satisfied, violated and cost.
    """

    counters: Sequence[PodCounter]
    satisfied: Int64s
    violated: Int64s
    cost: Int64s
    own: Int64s


class NetworkOverhead(PreFilterPlugin, FilterPlugin, ScorePlugin):
    """Filters and scores by the network costs to the pods that a pod depends on."""

    name = "NetworkOverhead"
    Args = NetworkOverheadArgs
    label_keys = (GROUP_LABEL, WORKLOAD_LABEL)
    events_to_register = (
        on(EventResource.ASSIGNED_POD, Action.ADD | Action.DELETE, invalidates=Invalidation.ALL),
        on(EventResource.ASSIGNED_POD, Action.ALL, invalidates=Invalidation.ALL, requeues=False),
        on(EventResource.NODE, Action.ADD | Action.DELETE | Action.UPDATE_NODE_LABEL, invalidates=Invalidation.ALL),
        on(AppGroup, Action.ADD | Action.UPDATE | Action.DELETE, invalidates=Invalidation.ALL),
        on(NetworkTopology, Action.ADD | Action.UPDATE | Action.DELETE, invalidates=Invalidation.ALL),
    )

    def applies_to(self, pod: PodInfo) -> bool:
        """Whether the pod belongs to an AppGroup."""
        return bool(pod.labels.get(GROUP_LABEL))

    def signature(self, pod: PodInfo) -> Hashable:
        """The AppGroup and the workload."""
        return pod.labels.get(GROUP_LABEL), pod.labels.get(WORKLOAD_LABEL)

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Status | None:
        """Finds the pods that the pod depends on, and what they cost from every node."""
        found = self._dependencies(pod)
        if found is not None:
            state.put(found)
        return None

    def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict | None:
        """Rejects nodes that violate more dependencies than they satisfy."""
        found = state.get(_Dependencies) or self._dependencies(pod)
        if found is None:
            return None
        satisfied, violated, _ = _on(found, nodes)
        if isinstance(nodes, HypotheticalNodes):
            # A pod more or less on the node itself satisfies one dependency more or less.
            satisfied = satisfied + sum(nodes.sum_of_changes(counter.weight) for counter in found.counters)
        return Verdict.rejecting(violated > satisfied, _REJECTED)

    def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> NDArray[np.int64]:
        """The sum of the costs."""
        found = state.get(_Dependencies) or self._dependencies(pod)
        return np.zeros(len(nodes), np.int64) if found is None else _on(found, nodes)[2]

    def normalize(self, state: CycleState, pod: PodInfo, scores: NDArray[np.int64], nodes: Nodes) -> NDArray[np.int64]:
        """100 for the lowest cost, 0 for the highest."""
        return inverted_range(scores)

    # -- dependencies ------------------------------------------------------------------------------------------------

    def _dependencies(self, pod: PodInfo) -> _Dependencies | None:
        """How the dependencies of a pod are met on each node; None if it has none."""
        name, selector = pod.labels.get(GROUP_LABEL, ""), pod.labels.get(WORKLOAD_LABEL, "")
        cluster, namespaces = self.handle.cluster, self.args.namespaces or ["default"]
        group = first_of(cluster, AppGroup, namespaces, name) if name else None
        dependencies = [] if group is None else group.dependencies(selector)
        if not dependencies:
            return None
        topology = first_of(cluster, NetworkTopology, namespaces, self.args.network_topology_name or "nt-default")
        weights = self.args.weights_name or "UserDefined"
        costs = _Costs(*({} if topology is None else topology.costs(weights, key) for key in (REGION, ZONE)))
        locations, location_of = _locations(cluster.all_nodes())
        counters = [self._counter(name, dependency.workload.selector) for dependency in dependencies]
        total = np.zeros((3, len(location_of)), np.int64)
        own = np.zeros((3, len(location_of)), np.int64)
        for dependency, counter in zip(dependencies, counters, strict=True):
            on_node = counter.by_row
            pods = np.zeros(len(locations), np.int64)
            np.add.at(pods, location_of, on_node)
            there = np.flatnonzero(pods).tolist()
            per_pod = np.zeros((3, len(locations), len(locations)), np.int64)
            for origin, here in enumerate(locations):
                for target in {*there, origin}:
                    per_pod[:, origin, target] = costs.overhead(here, locations[target], dependency)
            total += (per_pod @ pods)[:, location_of]
            same = per_pod[:, np.arange(len(locations)), np.arange(len(locations))][:, location_of]
            own += (np.array([[1], [0], [0]]) - same) * on_node
        satisfied, violated, cost = total
        return _Dependencies(counters, satisfied, violated, cost, own)

    def _counter(self, group: str, selector: str) -> PodCounter:
        def matches(shape: Shape) -> int:
            return int(shape.labels.get(GROUP_LABEL) == group and shape.labels.get(WORKLOAD_LABEL, "") == selector)

        return self.handle.cluster.counter((self.name, group, selector), matches, terminating=True)


def _on(found: _Dependencies, nodes: Nodes) -> tuple[Int64s, Int64s, Int64s]:
    """The satisfied and violated dependencies and the cost of some nodes."""
    rows = nodes.rows
    satisfied, violated, cost = found.own[:, rows]
    return found.satisfied[rows] + satisfied, found.violated[rows] + violated, found.cost[rows] + cost


def _locations(nodes: Nodes) -> tuple[list[_Location], NDArray[np.intp]]:
    """The distinct locations of nodes, and the number of each node's location (intp)."""
    regions, zones = nodes.label_values(REGION), nodes.label_values(ZONE)
    combined = nodes.label(REGION).astype(np.int64) * len(zones) + nodes.label(ZONE)
    distinct, location_of = np.unique(combined, return_inverse=True)
    pairs = (divmod(number, len(zones)) for number in distinct.tolist())
    return [_Location(regions[region] or "", zones[zone] or "") for region, zone in pairs], location_of


class _Costs(NamedTuple):
    """The costs between regions and between zones, by origin and destination."""

    regions: Mapping[tuple[str, str], int]
    zones: Mapping[tuple[str, str], int]

    def overhead(self, here: _Location, there: _Location, dependency: Dependency) -> tuple[int, int, int]:
        """What a pod on another node counts for: satisfied and violated dependencies, and the cost."""
        if not there.region and not there.zone:
            return 0, 1, _MAX_COST
        if here == there:
            return 1, 0, _SAME_ZONE
        if here.region == there.region:
            cost = self.zones.get((here.zone, there.zone))
        else:
            cost = self.regions.get((here.region, there.region))
        if cost is None:
            return 0, 0, _MAX_COST
        within = cost <= dependency.max_network_cost
        return int(within), int(not within), cost
