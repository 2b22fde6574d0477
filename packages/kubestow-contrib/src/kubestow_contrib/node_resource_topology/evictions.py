"""What victims of preemption leave in the NUMA zones that they run in (preemptionMode)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from kubestow.cluster.nodes.views import HypotheticalNodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.interface import Handle
from kubestow_contrib.node_resource_topology.placements import Container, read_placements
from kubestow_contrib.node_resource_topology.pod_requests import Amounts, PodRequests, is_exclusive
from kubestow_contrib.node_resource_topology.topologies import NodeResourceTopology
from kubestow_contrib.node_resource_topology.zones import Available

__all__ = ["Evictions"]


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
            listed = _resources(topology)
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


def _resources(topology: NodeResourceTopology) -> frozenset[str]:
    return frozenset(resource.name for zone in topology.zones for resource in zone.resources)
