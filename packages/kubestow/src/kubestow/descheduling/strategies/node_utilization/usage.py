"""What is used of the nodes' resources, absolute and in per cent: as requested by their pods, or as measured.

Arrays have one entry per row of the nodes that descheduling is about. CPU is in millicores, memory in bytes, all else
in counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from kubestow.api.formats import quantity
from kubestow.descheduling.cluster_state import AssignedPod, ClusterState
from kubestow.descheduling.objects import Node
from kubestow.descheduling.strategies.node_utilization.measurements import (
    MeasurementError,
    measured_node,
    measured_pod,
    queried_percentages,
)
from kubestow.descheduling.strategies.node_utilization.thresholds import Thresholds
from kubestow.rules.requests import CPU, MEMORY, PODS

__all__ = ["METRIC_RESOURCE", "NodeUsage"]

METRIC_RESOURCE = "MetricResource"
"""What a Prometheus query measures, in per cent of the node; it is no resource of nodes and pods."""

_BASIC = (CPU, MEMORY, PODS)


class NodeUsage:
    """The usage of the ready nodes of a cluster: of CPU, memory, pods, and the resources that have thresholds.

    With a Prometheus ``query`` it is the usage of METRIC_RESOURCE alone, and what pods use of it is not known.
    """

    def __init__(
        self, cluster: ClusterState, resources: Iterable[str], *, measured: bool = False, query: str = ""
    ) -> None:
        """Raises MeasurementError if a node is not ``measured``, or a resource is that cannot be."""
        self._cluster, self._measured, self._query = cluster, measured, query
        self.rows = cluster.ready
        self.resources = (METRIC_RESOURCE,) if query else tuple(dict.fromkeys((*_BASIC, *resources)))
        nodes = [cluster.nodes[row] for row in self.rows.tolist()]
        names = [node.metadata.name for node in nodes]
        self.used: dict[str, NDArray[np.int64]]
        if query:
            self.used = {METRIC_RESOURCE: np.array(queried_percentages(cluster, query, names), np.int64)}
        else:
            self.used = self._measurements(names) if measured else self._requests()
        #: The allocatable amounts, and where a node knows the resource at all (bool).
        self._capacity = {name: np.array([_amount(node, name) for node in nodes], np.int64) for name in self.resources}
        self._known = {name: np.array([_knows(node, name) for node in nodes], np.bool_) for name in self.resources}

    def _requests(self) -> dict[str, NDArray[np.int64]]:
        cluster = self._cluster
        return {
            name: (cluster.pod_count if name == PODS else cluster.requested(name))[self.rows].copy()
            for name in self.resources
        }

    def _measurements(self, names: Sequence[str]) -> dict[str, NDArray[np.int64]]:
        unmeasured = [name for name in self.resources if name not in _BASIC]
        if unmeasured:
            raise MeasurementError(f"the utilization of {', '.join(unmeasured)} is not measured")
        found = [measured_node(self._cluster, name) for name in names]
        measured = {resource: np.array([one[resource] for one in found], np.int64) for resource in (CPU, MEMORY)}
        return measured | {PODS: self._cluster.pod_count[self.rows].copy()}

    @property
    def schedulable(self) -> NDArray[np.bool_]:
        """Which of the nodes are not cordoned, bool."""
        unschedulable: NDArray[np.bool_] = self._cluster.view().unschedulable[self.rows]
        return ~unschedulable

    def percent(self, resource: str) -> NDArray[np.float64]:
        """The used share of a resource in per cent, float64; 0 where a node has none of it."""
        used, capacity = self.used[resource].astype(np.float64), self._capacity[resource].astype(np.float64)
        share = np.divide(used, capacity, out=np.zeros_like(used), where=capacity > 0)
        return share * 100

    def below(self, thresholds: Thresholds) -> NDArray[np.bool_]:
        """Which nodes use at most the thresholds of all resources, bool."""
        below = np.ones(len(self.rows), np.bool_)
        for name, percent in thresholds.items():
            below &= self.percent(name) <= percent
        return below

    def above(self, thresholds: Thresholds) -> NDArray[np.bool_]:
        """Which nodes use more than the threshold of any resource, bool."""
        above = np.zeros(len(self.rows), np.bool_)
        for name, percent in thresholds.items():
            above |= self.percent(name) > percent
        return above

    def around_average(self, below: Thresholds, above: Thresholds) -> tuple[Thresholds, Thresholds]:
        """Thresholds that are distances from the average usage as shares, between 0 and 100 per cent."""
        low, high = {}, {}
        for name in below:
            known = self._known[name]
            if not known.any():
                continue
            average = float(self.percent(name)[known].sum()) / int(np.count_nonzero(known))
            low[name] = min(max(average - below[name], 0.0), 100.0)
            high[name] = min(max(average + above[name], 0.0), 100.0)
        return low, high

    def capped(self, thresholds: Thresholds) -> dict[str, NDArray[np.int64]]:
        """The capacities up to the thresholds, int64 by resource; whole ones where no threshold is given."""
        return {
            name: (thresholds[name] * 0.01 * capacity.astype(np.float64)).astype(np.int64)
            if name in thresholds
            else capacity
            for name, capacity in self._capacity.items()
        }

    def total(self) -> NDArray[np.int64]:
        """The sum of all used amounts, by which nodes are ordered, int64; memory decides, as it is in bytes."""
        total: NDArray[np.int64] = np.sum(list(self.used.values()), axis=0)
        return total

    def of_pod(self, pod: AssignedPod) -> Mapping[str, int] | None:
        """What a pod uses, None if that has not been measured; nothing of what a query measures."""
        if self._query:
            return {}
        amounts = measured_pod(self._cluster, pod) if self._measured else pod.shape.requests
        if amounts is None:
            return None
        return {name: 1 if name == PODS else amounts.get(name, 0) for name in self.resources}


def _capacity(node: Node) -> Mapping[str, quantity.Quantity]:
    return node.status.allocatable or node.status.capacity


def _knows(node: Node, resource: str) -> bool:
    return resource == METRIC_RESOURCE or resource in _capacity(node)


def _amount(node: Node, resource: str) -> int:
    amount = 100 if resource == METRIC_RESOURCE else _capacity(node).get(resource)
    if amount is None:
        return 0
    return quantity.millis(amount) if resource == CPU else quantity.units(amount)
