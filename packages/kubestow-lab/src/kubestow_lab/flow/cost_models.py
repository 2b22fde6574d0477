"""Cost models: what it costs to place a pod on a node, to let it wait, and to evict or move it.

Costs are integers without a unit; only comparisons within one model mean anything. The models are those of Firmament
and Poseidon, in terms of what a cluster reports: requests for slots, container images for input data.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.nodes.columns import normalized
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.rules.requests import CPU, MEMORY
from kubestow_lab.flow.problem import NodeCosts

Costs = NDArray[np.int64]

_GB = 10**9
#: The resource of nodes and pods that stands for network bandwidth, in Mbit/s.
BANDWIDTH = "kubestow.dev/network-mbps"


class CostModel(ABC):
    """The costs of one policy."""

    name: str
    #: What evicting a pod costs, beside what it then costs to let it wait.
    preemption: int
    #: What moving a running pod costs, beside its new place.
    migration: int
    #: The plugins whose scores are preferences that the model heeds, where a profile scores by them, and what it costs
    #: to place a pod where such a plugin gives it the lowest score.
    preferences: frozenset[str] = frozenset()
    preference_cost = 0

    @abstractmethod
    def placement(self, pod: PodInfo, nodes: Nodes) -> Costs:
        """The cost of the pod on each node, int64, not negative."""

    @abstractmethod
    def nodes(self, nodes: Nodes) -> NodeCosts:
        """The cost of a further pod on each node, whichever it is."""

    @abstractmethod
    def unscheduled(self, seconds: float) -> int:
        """The cost of a pod that has waited so long and waits on. Does not fall with time."""

    def continuation(self, placement: int, seconds: float) -> int:
        """The cost of leaving a pod where it has run so long, given its placement cost there."""
        return 0


class CpuMem(CostModel):
    """Poseidon's: spreads pods over nodes by the shares of CPU and memory that are requested.

    As in Poseidon, preferred node and pod affinity, PreferNoSchedule taints, and the balance of CPU and memory cost as
    much as the shares: 1,000 each where they are worst.
    """

    name = "cpu-mem"
    preemption = 50_000
    migration = 5_000
    preferences = frozenset({"InterPodAffinity", "NodeAffinity", "NodeResourcesBalancedAllocation", "TaintToleration"})
    preference_cost = 1_000

    #: A node that is requested entirely costs this much; more than ten times as much is not distinguished.
    _FULL, _MOST = 1_000, 10_000
    _STEP = 100

    def placement(self, pod: PodInfo, nodes: Nodes) -> Costs:
        """The mean share of CPU and memory that is requested with the pod on the node, in thousandths."""
        shares = np.zeros(len(nodes), np.float64)
        for resource in (CPU, MEMORY):
            requested = nodes.requested(resource) + pod.requests.get(resource, 0)
            shares += requested / np.maximum(nodes.allocatable(resource), 1)
        return np.clip(shares / 2 * self._FULL, 0, self._MOST).astype(np.int64)

    def nodes(self, nodes: Nodes) -> NodeCosts:
        """100 for the first pod, 200 for the second and so on, so that one solution spreads the load."""
        return NodeCosts(np.full(len(nodes), self._STEP, np.int64), self._STEP)

    def unscheduled(self, seconds: float) -> int:
        """More than any placement costs, and growing."""
        return 100_000 + min(int(seconds * 100), 900_000)


class Octopus(CostModel):
    """Firmament's load balancing: nodes with few pods first."""

    name = "octopus"
    preemption = 1_000_000
    migration = 1_000

    def placement(self, pod: PodInfo, nodes: Nodes) -> Costs:
        """1, wherever it is."""
        return np.ones(len(nodes), np.int64)

    def nodes(self, nodes: Nodes) -> NodeCosts:
        """100 for each pod that the node has already."""
        return NodeCosts(100 * nodes.pod_count, 100)

    def unscheduled(self, seconds: float) -> int:
        """A million, and growing."""
        return 1_000_000 + min(int(seconds * 100), 9_000_000)


class Quincy(CostModel):
    """Quincy's: a pod goes where its data is, or waits until waiting costs more than fetching it.

    The data of a pod are its container images. A node is preferred if it has a tenth of them or more. Quincy's unit of
    data is the GB, so that costs are comparable with those of waiting: seconds.
    """

    name = "quincy"
    preemption = 100_000
    migration = 1_000

    #: The cost of fetching a GB over the core switch, and the share of the data from which a node is preferred.
    _CORE, _PREFERRED = 2, 0.1
    #: Costs are integers, so these are thousandths of Quincy's.
    _SCALE = 1_000

    def placement(self, pod: PodInfo, nodes: Nodes) -> Costs:
        """2,000 for each GB of the pod's images that the node lacks; images that no node has count nowhere."""
        local = np.zeros(len(nodes), np.int64)
        total = 0
        for container in (*pod.spec.init_containers, *pod.spec.containers):
            image = nodes.image(normalized(container.image))
            if image is not None:
                size, _, present = image
                total += size
                local += present * np.int64(size)
        local[local < self._PREFERRED * total] = 0
        return self._CORE * self._SCALE * (total - local) // _GB

    def nodes(self, nodes: Nodes) -> NodeCosts:
        """None: data alone decides."""
        return NodeCosts(np.zeros(len(nodes), np.int64))

    def unscheduled(self, seconds: float) -> int:
        """500 for each second, from 1 on."""
        return 1 + int(seconds * self._SCALE / 2)

    def continuation(self, placement: int, seconds: float) -> int:
        """The data has been fetched; what it cost is forgotten as the pod runs."""
        return max(0, placement - int(seconds * self._SCALE / 2))


class NetworkAware(CostModel):
    """Firmament's network-aware policy: nodes with the least bandwidth requested first.

    Bandwidth is the resource :data:`BANDWIDTH` of nodes and pods, of which no node gives more than it has.
    """

    name = "network-aware"
    preemption = 1_000_000
    migration = 1_000

    #: What a node costs of whose bandwidth all is requested.
    _FULL = 1_000

    def placement(self, pod: PodInfo, nodes: Nodes) -> Costs:
        """The share of the bandwidth that is requested with the pod on the node, in thousandths; all of it if none."""
        requested = nodes.requested(BANDWIDTH) + pod.requests.get(BANDWIDTH, 0)
        allocatable = nodes.allocatable(BANDWIDTH)
        share = np.divide(requested, allocatable, out=np.ones(len(nodes)), where=allocatable > 0)
        costs: Costs = np.minimum(self._FULL * share, self._FULL).astype(np.int64)
        return costs

    def nodes(self, nodes: Nodes) -> NodeCosts:
        """100 more for each further pod of a solution."""
        return NodeCosts(np.zeros(len(nodes), np.int64), 100)

    def unscheduled(self, seconds: float) -> int:
        """A million, and growing."""
        return 1_000_000 + min(int(seconds * 100), 9_000_000)


COST_MODELS: dict[str, type[CostModel]] = {model.name: model for model in (CpuMem, Octopus, Quincy, NetworkAware)}
"""The cost models by name."""
