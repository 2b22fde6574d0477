"""What the nodes use: requested amounts, measured amounts, or the results of Prometheus queries, against thresholds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from kubestow.api.formats import quantity
from kubestow.api.formats.quantity import Quantity
from kubestow.descheduling.cluster_state import AssignedPod, ClusterState
from kubestow.descheduling.snapshot import Node, QuerySample
from kubestow.errors import InvalidQuantity
from kubestow.rules.requests import CPU, MEMORY, PODS, Amounts

Thresholds = Mapping[str, float]
"""Per cent by resource name."""


_MEASURED = (CPU, MEMORY)
#: A measurement is used for this long; the clock of another machine may be ahead by so much.
_MAX_AGE, _MAX_AHEAD = timedelta(minutes=5), timedelta(minutes=1)


class MeasurementError(Exception):
    """A node has no measurement, or an impossible one; the message names it and says why."""


def measured_node(cluster: ClusterState, name: str) -> Amounts:
    """The CPU (millicores) and memory (bytes) that a node uses. Raises MeasurementError."""
    metrics = cluster.node_metrics.get(name)
    if metrics is None:
        raise MeasurementError(f"node {name} has no metrics; is KubernetesMetrics in metricsProviders?")
    try:
        _check_age(metrics.timestamp, cluster.now)
        return {resource: _amount(metrics.usage, resource) for resource in _MEASURED}
    except ValueError as error:
        raise MeasurementError(f"the metrics of node {name} {error}") from None


def measured_pod(cluster: ClusterState, pod: AssignedPod) -> Amounts | None:
    """The CPU (millicores) and memory (bytes) that a pod uses, None if that is not known."""
    metrics = cluster.pod_metrics.get((pod.namespace, pod.name))
    if metrics is None or not metrics.containers:
        return None
    try:
        _check_age(metrics.timestamp, cluster.now)
        return {
            resource: sum(_amount(container.usage, resource) for container in metrics.containers)
            for resource in _MEASURED
        }
    except ValueError:
        return None


def queried_percentages(cluster: ClusterState, query: str, names: Sequence[str]) -> list[int]:
    """What a Prometheus query says about nodes, in whole per cent, rounded down. Raises MeasurementError."""
    result = cluster.query_results.get(query)
    if result is None:
        raise MeasurementError("Prometheus was not asked; is it in metricsProviders? Files have no measurements of it")
    if result.problem:
        raise MeasurementError(f"the Prometheus query failed: {result.problem}")
    samples: dict[str, list[QuerySample]] = {}
    for sample in result.samples:
        samples.setdefault(sample.instance, []).append(sample)
    return [_percentage(name, samples.get(name, ()), cluster.now) for name in names]


def _percentage(name: str, samples: Sequence[QuerySample], now: datetime) -> int:
    if len(samples) != 1:
        count = f"{len(samples)} samples" if samples else "no sample"
        raise MeasurementError(f'the Prometheus query returned {count} with the label instance="{name}", expected one')
    (sample,) = samples
    if not 0 <= sample.value <= 1:  # NaN, too
        raise MeasurementError(f"the Prometheus query returned {sample.value:g} for node {name}, expected 0 to 1")
    try:
        _check_moment(datetime.fromtimestamp(sample.time, UTC), now)
    except (ValueError, OverflowError, OSError) as error:
        raise MeasurementError(f"the samples of Prometheus for node {name} {error}") from None
    return int(sample.value * 100)


def _check_age(timestamp: str, now: datetime) -> None:
    """Raises ValueError for a measurement that is old, from the future, or of an unknown time."""
    try:
        moment = datetime.fromisoformat(timestamp)
        _ = now - moment
    except (ValueError, TypeError):
        raise ValueError(f"have no valid timestamp, but {timestamp!r}") from None
    _check_moment(moment, now)


def _check_moment(moment: datetime, now: datetime) -> None:
    """Raises ValueError for a measurement that is old or from the future."""
    age = now - moment
    if age > _MAX_AGE:
        raise ValueError(f"are {age.total_seconds():.0f} s old")
    if age < -_MAX_AHEAD:
        raise ValueError(f"are from {-age.total_seconds():.0f} s in the future")


def _amount(usage: Mapping[str, Quantity], resource: str) -> int:
    """Raises ValueError for an amount that is missing, invalid or negative."""
    if resource not in usage:
        raise ValueError(f"lack {resource}")
    try:
        amount = quantity.millis(usage[resource]) if resource == CPU else quantity.units(usage[resource])
    except InvalidQuantity as error:
        raise ValueError(f"have an invalid amount of {resource}: {error}") from None
    if amount < 0:
        raise ValueError(f"have a negative amount of {resource}: {usage[resource]}")
    return amount


METRIC_RESOURCE = "MetricResource"
"""What a Prometheus query measures, in per cent of the node; it is no resource of nodes and pods."""

_BASIC = (CPU, MEMORY, PODS)


class Utilization:
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
            self.used = (
                self._measurements(names)
                if measured
                else {
                    name: (cluster.pod_count if name == PODS else cluster.requested(name))[self.rows].copy()
                    for name in self.resources
                }
            )
        #: The allocatable amounts, and where a node knows the resource at all (bool).
        self._capacity = {
            name: np.array([_allocatable(node, name) for node in nodes], np.int64) for name in self.resources
        }
        self._known = {
            name: np.array([name == METRIC_RESOURCE or name in _capacity(node) for node in nodes], np.bool_)
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


def _allocatable(node: Node, resource: str) -> int:
    amount = 100 if resource == METRIC_RESOURCE else _capacity(node).get(resource)
    if amount is None:
        return 0
    return quantity.millis(amount) if resource == CPU else quantity.units(amount)
