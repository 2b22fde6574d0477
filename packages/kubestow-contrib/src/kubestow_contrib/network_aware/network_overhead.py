"""NetworkOverhead keeps the pods of an application close to those that they depend on.

Each pod that is placed already and that the new pod depends on counts by itself: on the same node it is free, in the
same zone it costs 1, between zones or regions as much as the NetworkTopology says, or 100 if it does not say. A node is
rejected if more of these pods are beyond the maximum cost of the dependency than within it. The sum is the score,
inverted. Pods without AppGroup or dependencies pass and score 0.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.events import Action, EventResource
from kubestow.cluster.nodes.views import HypotheticalNodes, Nodes
from kubestow.cluster.pods.shapes import PodInfo, Shape
from kubestow.cluster.topology.counters import PodCounter
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.event_registration import Invalidation, on
from kubestow.framework.interface import FilterPlugin, PreFilterPlugin, ScorePlugin
from kubestow.framework.status import Status, Verdict
from kubestow_contrib.network_aware.custom_resources import (
    GROUP_LABEL,
    REGION,
    WORKLOAD_LABEL,
    ZONE,
    AppGroup,
    Dependency,
    NetworkTopology,
    first_of,
)
from kubestow_contrib.range_normalization import inverted_range

__all__ = ["NetworkOverhead", "NetworkOverheadArgs"]

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


class _Overhead(NamedTuple):
    """What one pod at some distance counts for."""

    satisfied: int
    violated: int
    cost: int


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
        costs = _Costs.of(topology, self.args.weights_name or "UserDefined")
        locations, location_of = _locations(cluster.all_nodes())
        counters = [self._counter(name, dependency) for dependency in dependencies]
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

    def _counter(self, group: str, dependency: Dependency) -> PodCounter:
        selector = dependency.workload.selector

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

    regions: dict[tuple[str, str], int]
    zones: dict[tuple[str, str], int]

    @classmethod
    def of(cls, topology: NetworkTopology | None, weights_name: str) -> _Costs:
        """Those of a topology; none without one."""
        if topology is None:
            return cls({}, {})
        return cls(dict(topology.costs(weights_name, REGION)), dict(topology.costs(weights_name, ZONE)))

    def overhead(self, here: _Location, there: _Location, dependency: Dependency) -> _Overhead:
        """What a pod on another node counts for."""
        if not there.region and not there.zone:
            return _Overhead(0, 1, _MAX_COST)
        if here == there:
            return _Overhead(1, 0, _SAME_ZONE)
        if here.region == there.region:
            cost = self.zones.get((here.zone, there.zone))
        else:
            cost = self.regions.get((here.region, there.region))
        if cost is None:
            return _Overhead(0, 0, _MAX_COST)
        within = cost <= dependency.max_network_cost
        return _Overhead(int(within), int(not within), cost)
