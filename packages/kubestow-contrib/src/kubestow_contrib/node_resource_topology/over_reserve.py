"""The over-reserving cache: what pods request is taken from every zone of their node until a report accounts for them.

Which zone a pod gets is the kubelet's choice, and the agent of the node reports it later. Until then the pod counts in
all zones, so that no zone is used twice; a node may be rejected that has room. A report is used once the fingerprint of
its pods is that of the pods on the node. A node on which another scheduler has placed a pod is not used until then.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from kubestow.cluster.changes.events import Action, ClusterEvent
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.interface import Handle
from kubestow_contrib.node_resource_topology.agent_reports import fingerprint
from kubestow_contrib.node_resource_topology.alignment import Amounts, PodRequests, is_exclusive
from kubestow_contrib.node_resource_topology.args import CacheArgs
from kubestow_contrib.node_resource_topology.zones import (
    Layout,
    NodeResourceTopology,
    Zones,
    read_available,
    read_layout,
)

RESYNCED = "topology.node.k8s.io/Resynced"

_ATTRIBUTE, _METHOD = "nodeTopologyPodsFingerprint", "nodeTopologyPodsFingerprintMethod"
_ANNOTATION = "topology.node.k8s.io/fingerprint"
_WITH_EXCLUSIVE_RESOURCES = "with-exclusive-resources"
_EXCLUSIVE_ONLY = "OnlyExclusiveResources"

Available = Mapping[str, Mapping[int, int]]


class OverReserve:
    """Keeps ``zones``: the last reports that were used, less what is reserved since."""

    def __init__(
        self, handle: Handle, zones: Zones, args: CacheArgs, period: float, requests: Callable[[PodInfo], PodRequests]
    ) -> None:
        self._handle, self._zones, self._args, self._requests_of = handle, zones, args, requests
        self._topologies = handle.cluster.catalog(NodeResourceTopology)
        #: The reports that are in use, by node.
        self._used: dict[str, tuple[Layout, Available]] = {}
        #: What pods reserve in every zone, by node and uid.
        self._reserved: dict[str, dict[str, Amounts]] = {}
        #: The nodes on which pods have come or gone that this plugin has not placed.
        self.foreign: set[str] = set()
        #: The pods that this plugin has placed, and the nodes of the others.
        self._own: set[str] = set()
        self._foreign_pods: dict[str, str] = {}
        #: Pods that were there before belong to what is reported first.
        self._has_started = False
        self._topologies.subscribe(self._reported)
        handle.cluster.listen_to_pods(self)
        handle.run_periodically(period, self._resync)

    # -- pods --------------------------------------------------------------------------------------------------------

    def reserve(self, pod: PodInfo, node: str) -> None:
        """Take what a pod requests from every zone of its node."""
        self._own.add(pod.uid)
        if node in self._used:
            self._reserved.setdefault(node, {})[pod.uid] = self._requests_of(pod).together
            self._show(node)

    def release(self, pod: PodInfo, node: str) -> None:
        """Give it back: the pod is not placed."""
        self._own.discard(pod.uid)
        if self._reserved.get(node, {}).pop(pod.uid, None) is not None:
            self._show(node)

    def pod_observed(self, info: PodInfo) -> None:
        """Whether a pod is on a node without having been placed here."""
        node, mode = info.spec.node_name, self._args.foreign_pods_detect or "All"
        if not node or info.uid in self._own or info.uid in self._foreign_pods:
            return
        if not (mode == "All" or (mode == _EXCLUSIVE_ONLY and self._is_exclusive(info, node))):
            return
        self._foreign_pods[info.uid] = node
        if self._has_started:
            self._mark(node)

    def pod_ended(self, uid: str) -> None:
        """A pod that was placed by others leaves what only the next report says."""
        self._own.discard(uid)
        node = self._foreign_pods.pop(uid, None)
        if node is not None:
            self._mark(node)

    def _mark(self, node: str) -> None:
        if node in self._used:
            self.foreign.add(node)

    def _is_exclusive(self, pod: PodInfo, node: str) -> bool:
        """Whether a container has CPUs, memory or devices for itself as long as it runs."""
        requests = self._requests_of(pod)
        listed: Collection[str] = self._used[node][1] if node in self._used else ()
        return any(
            is_exclusive(name, amount, listed, is_guaranteed=requests.is_guaranteed)
            for container in requests.containers
            if container.kind != "init"
            for name, amount in container.amounts.items()
        )

    # -- reports -----------------------------------------------------------------------------------------------------

    def _reported(self, before: NodeResourceTopology | None, after: NodeResourceTopology | None) -> None:
        changed = after or before
        assert changed is not None
        name = changed.metadata.name
        if after is None:
            self._used.pop(name, None)
            self._reserved.pop(name, None)
            self.foreign.discard(name)
            self._zones.put(name, None)
        elif name not in self._used or not self.is_pending(name):
            self._use(after)
        elif self._args.resync_scope != "OnlyResources" and read_layout(after) != self._used[name][0]:
            self._use(after)  # the kubelet was configured anew

    def is_pending(self, node: str) -> bool:
        """Whether the next report has to account for pods of which the last one did not know."""
        return bool(self._reserved.get(node)) or node in self.foreign

    def _use(self, topology: NodeResourceTopology) -> None:
        name = topology.metadata.name
        self._used[name] = read_layout(topology), read_available(topology)
        self._show(name)

    def _show(self, node: str) -> None:
        layout, available = self._used[node]
        reserved = self._reserved.get(node, {}).values()
        self._zones.put(node, (layout, _less(available, reserved) if reserved else available))

    async def _resync(self) -> None:
        """Use the reports that account for all pods on their node."""
        self._has_started = True
        for node in [*self.foreign, *(name for name in self._reserved if name not in self.foreign)]:
            topology = self._topologies.get("", node)
            if topology is None or not self.is_pending(node):
                continue
            starting = self._starting_pods(topology)
            if starting is None:
                continue
            # A pod that has not started is in no report, and one that has ended may never have been in any.
            left = {uid: requests for uid, requests in self._reserved.get(node, {}).items() if uid in starting}
            self._reserved[node] = left
            self.foreign.discard(node)
            self._use(topology)
            self._handle.report_change(ClusterEvent(RESYNCED, Action.UPDATE), node)
        self._reserved = {node: pods for node, pods in self._reserved.items() if pods}

    def _starting_pods(self, topology: NodeResourceTopology) -> set[str] | None:
        """The uids of the pods on the node that have not started; None unless the report accounts for all others."""
        attributes = {each.name: each.value for each in topology.attributes}
        expected = attributes.get(_ATTRIBUTE) or topology.metadata.annotations.get(_ANNOTATION, "")
        cluster, node = self._handle.cluster, topology.metadata.name
        row = cluster.nodes.rows.get(node)
        if not expected or row is None:
            return None
        placed = [each.info for uid in cluster.nodes.pods[row] if (each := cluster.placed_pod(uid)) is not None]
        starting = {info.uid for info in placed if info.status.phase in ("", "Pending")}
        started = [info for info in placed if info.uid not in starting]
        method = self._args.resync_method
        hinted = method in (None, "Autodetect") and attributes.get(_METHOD) == _WITH_EXCLUSIVE_RESOURCES
        if _ATTRIBUTE in attributes and (method == _EXCLUSIVE_ONLY or hinted):
            compared = [info for info in started if self._is_exclusive(info, node)]
        else:
            compared = started
        if fingerprint((info.namespace, info.name) for info in compared) != expected:
            return None
        return starting


def _less(available: Available, reserved: Iterable[Amounts]) -> Available:
    """What is available in each zone, less what is reserved in all of them."""
    total: dict[str, int] = {}
    for amounts in reserved:
        for name, amount in amounts.items():
            total[name] = total.get(name, 0) + amount
    return {
        name: {zone: max(0, amount - total.get(name, 0)) for zone, amount in by_zone.items()}
        for name, by_zone in available.items()
    }
