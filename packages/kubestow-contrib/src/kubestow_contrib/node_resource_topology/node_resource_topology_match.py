"""NodeResourceTopologyMatch rejects nodes whose kubelet could not align a pod with a NUMA zone, and scores zones.

The zones are what NodeResourceTopology objects report. Nodes with the policy ``single-numa-node`` are rejected if no
zone has what a container requests, or what the pod requests with the scope ``pod``. Other nodes, and nodes without a
topology, pass. Guaranteed pods are scored, by the configured strategy; for others all nodes score 100."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.changes.events import Action, ClusterEvent, EventResource
from kubestow.cluster.nodes.views import HypotheticalNodes, Nodes
from kubestow.cluster.pods.shapes import PodInfo, ShapeFamily
from kubestow.config import ExtensionPoint
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.event_registration import Invalidation, on
from kubestow.framework.interface import MAX_SCORE, FilterPlugin, Handle, PostBindPlugin, ReservePlugin, ScorePlugin
from kubestow.framework.status import Status, Verdict
from kubestow_contrib.node_resource_topology.agent_reports import Container, read_placements
from kubestow_contrib.node_resource_topology.alignment import (
    CONTAINER_KINDS,
    POD,
    Amounts,
    PodRequests,
    is_exclusive,
    unaligned_containers,
    unaligned_pods,
)
from kubestow_contrib.node_resource_topology.args import CacheArgs, NodeResourceTopologyMatchArgs
from kubestow_contrib.node_resource_topology.over_reserve import RESYNCED, OverReserve
from kubestow_contrib.node_resource_topology.scoring import score_containers, score_pods, score_zones_needed
from kubestow_contrib.node_resource_topology.zones import Available, Layout, NodeResourceTopology, Zones


class Evictions:
    """Returns resources to zones. ``is_pending`` says whether the report of a node lacks pods that are on it."""

    def __init__(
        self, handle: Handle, requests_of: Callable[[PodInfo], PodRequests], is_pending: Callable[[str], bool]
    ) -> None:
        self._cluster, self._requests_of, self._is_pending = handle.cluster, requests_of, is_pending
        self._topologies = handle.cluster.catalog(NodeResourceTopology)
        #: The zones of the containers on a node, with the report and the pods that they are of.
        self._placements: dict[str, tuple[NodeResourceTopology, frozenset[str], Mapping[Container, int]]] = {}

    def release(self, nodes: HypotheticalNodes, available: Available) -> None:
        """Add what the removed pods have for themselves to their zones; nothing on nodes that do not report zones."""
        for position, change in enumerate(nodes.changes):
            topology = self._topologies.get("", nodes.name(position)) if change.removed else None
            if topology is None or self._is_pending(nodes.name(position)):
                continue
            listed = frozenset(resource.name for zone in topology.zones for resource in zone.resources)
            placements = self._placements_of(topology, listed)
            for victim in change.removed:
                for container, amounts in self._exclusive(victim, listed, with_sidecars=False):
                    if (zone := placements.get(container)) is not None:
                        for name, amount in amounts.items():
                            available.add(name, zone, position, amount)

    def _placements_of(self, topology: NodeResourceTopology, listed: frozenset[str]) -> Mapping[Container, int]:
        cluster, node = self._cluster, topology.metadata.name
        placed = [cluster.placed_pod(uid) for uid in cluster.nodes.pods[cluster.nodes.rows[node]]]
        started = [each.info for each in placed if each is not None and each.info.status.phase not in ("", "Pending")]
        uids = frozenset(info.uid for info in started)
        cached = self._placements.get(node)
        if cached is None or cached[0] is not topology or cached[1] != uids:
            containers = [c for info in started for c, _ in self._exclusive(info, listed, with_sidecars=True)]
            cached = self._placements[node] = topology, uids, read_placements(topology, containers)
            if len(self._placements) > len(cluster.nodes):
                self._placements = {name: of for name, of in self._placements.items() if name in cluster.nodes.rows}
        return cached[2]

    def _exclusive(
        self, pod: PodInfo, listed: frozenset[str], *, with_sidecars: bool
    ) -> Iterator[tuple[Container, Amounts]]:
        """The containers that have something for themselves, and what."""
        requests, spec = self._requests_of(pod), pod.spec
        for container, of in zip((*spec.init_containers, *spec.containers), requests.containers, strict=True):
            if of.kind == "init" or (of.kind and not with_sidecars):
                continue
            own = {
                name: amount
                for name, amount in of.amounts.items()
                if is_exclusive(name, amount, listed, is_guaranteed=requests.is_guaranteed)
            }
            if own:
                yield (pod.namespace, pod.name, container.name), own


_RESERVATION_ENDED = "topology.node.k8s.io/ReservationEnded"
_RESERVED = POD + len(CONTAINER_KINDS) + 1
_STATUSES = {
    POD: Status.unschedulable("cannot align pod"),
    **{
        key: Status.unschedulable(f"cannot align {kind} container" if kind else "cannot align container")
        for kind, key in CONTAINER_KINDS.items()
    },
    _RESERVED: Status.unschedulable("invalid node topology data"),
}

Int64s = NDArray[np.int64]


class NodeResourceTopologyMatch(FilterPlugin, ScorePlugin, ReservePlugin, PostBindPlugin):
    """Aligns pods with the NUMA zones of nodes."""

    name = "NodeResourceTopologyMatch"
    Args = NodeResourceTopologyMatchArgs
    inert_at = (ExtensionPoint.PRE_FILTER,)
    label_keys = ()

    def __init__(self, args: NodeResourceTopologyMatchArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        self.events_to_register = [
            on(EventResource.ASSIGNED_POD, Action.DELETE, invalidates=Invalidation.NOTHING),
            on(EventResource.NODE, Action.ADD | Action.UPDATE_NODE_ALLOCATABLE),
            on(NodeResourceTopology, Action.ADD | Action.UPDATE | Action.DELETE),
        ]
        if args.depends_on_pods:
            self.events_to_register += [
                on(EventResource.ASSIGNED_POD, Action.ADD | Action.DELETE, requeues=False),
                on(_RESERVATION_ENDED, Action.UPDATE),
                on(RESYNCED, Action.UPDATE),
            ]
        self._zones = Zones(handle)
        self._requests: WeakKeyDictionary[ShapeFamily, PodRequests] = WeakKeyDictionary()
        #: The pods that are being placed on a node, uids by name of the node; for ``discardReservedNodes``.
        self._reserved: dict[str, set[str]] = {}
        self._cache: OverReserve | None = None
        if args.resync_period:
            self._cache = OverReserve(
                handle, self._zones, args.cache or CacheArgs(), args.resync_period, self._requests_of
            )
        else:
            handle.cluster.catalog(NodeResourceTopology).subscribe(self._zones.report)
        self._evictions: Evictions | None = None
        if args.preemption_mode == "Enabled":
            self._evictions = Evictions(handle, self._requests_of, self._is_pending)

    def signature(self, pod: PodInfo) -> Hashable:
        """The requests of the containers."""
        return self._requests_of(pod).signature()

    def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict | None:
        """Rejects nodes with the policy ``single-numa-node`` on which the pod cannot be aligned."""
        requests = self._requests_of(pod)
        if not requests.is_aligned:
            return None
        keys = np.zeros(len(nodes), np.int32)
        for aligns_pods, unaligned in ((True, unaligned_pods), (False, unaligned_containers)):
            positions = np.flatnonzero(self._zones.layouts(nodes, _needs_single_zone(aligns_pods)))
            if len(positions):
                some = nodes.select(positions)
                available = self._zones.available(some, requests.together)
                if self._evictions is not None and isinstance(some, HypotheticalNodes):
                    self._evictions.release(some, available)
                keys[positions] = unaligned(requests, some, available)
        keys[self._is_reserved(nodes)] = _RESERVED
        return Verdict(keys, _STATUSES.__getitem__)

    def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Int64s:
        """100 for pods that are not Guaranteed; 0 on nodes without a topology."""
        requests = self._requests_of(pod)
        if not requests.is_guaranteed:
            return np.full(len(nodes), MAX_SCORE, np.int64)
        strategy = self.args.scoring_strategy
        if strategy.type == "LeastNUMANodes":
            scores = self._score_zones_needed(requests, nodes)
        else:
            scores = np.zeros(len(nodes), np.int64)
            for aligns_pods, score in ((True, score_pods), (False, score_containers)):
                positions = np.flatnonzero(self._zones.layouts(nodes, _needs_single_zone(aligns_pods)))
                if len(positions):
                    some = nodes.select(positions)
                    scores[positions] = score(requests, self._zones.available(some, requests.together), strategy)
        scores[self._is_reserved(nodes)] = 0
        return scores

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """With ``discardReservedNodes`` the node is rejected until the pod is bound; with a cache, zones have less."""
        if self._cache is not None:
            self._cache.reserve(pod, node_name)
        if self.args.discard_reserved_nodes:
            self._reserved.setdefault(node_name, set()).add(pod.uid)

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """End the reservation; that the pod leaves the node is an event."""
        if self._cache is not None:
            self._cache.release(pod, node_name)
        self._end_reservation(pod, node_name)

    def post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """End the reservation."""
        if self._end_reservation(pod, node_name):
            self.handle.report_change(ClusterEvent(_RESERVATION_ENDED, Action.UPDATE), node_name)

    def _end_reservation(self, pod: PodInfo, node_name: str) -> bool:
        """Whether the last reservation of the node has ended."""
        pods = self._reserved.get(node_name, set())
        pods.discard(pod.uid)
        return not pods and self._reserved.pop(node_name, None) is not None

    def _is_pending(self, node_name: str) -> bool:
        """Whether pods have been placed on a node since the report that is used."""
        return self._cache is not None and self._cache.is_pending(node_name)

    def _is_reserved(self, nodes: Nodes) -> NDArray[np.intp]:
        """The positions of the nodes on which a pod is being placed, or others have placed pods, intp."""
        rows = self.handle.cluster.nodes.rows
        names = self._reserved if self._cache is None else self._cache.foreign
        reserved = [rows[name] for name in names if name in rows]
        return np.flatnonzero(np.isin(nodes.row_numbers, reserved)) if reserved else np.zeros(0, np.intp)

    def _score_zones_needed(self, requests: PodRequests, nodes: Nodes) -> Int64s:
        scores = np.zeros(len(nodes), np.int64)
        kinds: list[Layout] = []

        def number(layout: Layout | None) -> int:
            if layout is None:
                return -1
            kinds.append(layout)
            return len(kinds) - 1

        of_nodes = self._zones.layouts(nodes, number, np.int64)
        for kind, layout in enumerate(kinds):
            positions = np.flatnonzero(of_nodes == kind)
            if len(positions):
                available = self._zones.available(nodes.select(positions), requests.together)
                scores[positions] = score_zones_needed(requests, available, layout)
        return scores

    def _requests_of(self, pod: PodInfo) -> PodRequests:
        family = pod.shape.family
        found = self._requests.get(family)
        if found is None:
            found = self._requests[family] = PodRequests.of(pod.shape)
        return found


def _needs_single_zone(aligns_pods: bool) -> Callable[[Layout | None], bool]:
    """Whether a layout needs a single zone, for pods or for containers."""
    return lambda layout: layout is not None and layout.needs_single_zone and layout.aligns_pods == aligns_pods
