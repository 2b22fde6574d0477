"""What nodes and pods use, as measured by a metrics server.

Measurements that cannot be true make no pod leave its node: without a recent, plausible measurement of every node the
strategy fails in this loop, and a pod without one stays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

from kubestow.api.formats import quantity
from kubestow.api.formats.quantity import Quantity
from kubestow.descheduling.cluster_state import AssignedPod, ClusterState
from kubestow.descheduling.query_results import QuerySample
from kubestow.errors import InvalidQuantity
from kubestow.rules.requests import CPU, MEMORY, Amounts

__all__ = ["MeasurementError", "measured_node", "measured_pod", "queried_percentages"]

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
