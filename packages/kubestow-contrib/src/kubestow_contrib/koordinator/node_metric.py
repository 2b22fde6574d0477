"""NodeMetric: what the koordlet of a node reports about it and its pods.

Usage that is negative or malformed counts as not reported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from kubestow.api.custom import CustomObject
from kubestow.api.formats.duration import Duration
from kubestow.api.formats.quantity import Quantity, millis, units
from kubestow.api.meta import APIObject, Time
from kubestow.errors import InvalidQuantity
from kubestow_contrib.koordinator.estimation import PROD

Vector = tuple[int, ...]
"""An amount per resource: millicores of CPU, bytes, or counts."""

AggregationKey = tuple[str, float]
"""The type of an aggregation (``p95``), and its duration in seconds; 0 stands for the longest one."""

_DEFAULT_REPORT_INTERVAL = 60.0


class ResourceMap(APIObject, frozen=True):
    """Amounts of resources."""

    resources: dict[str, Quantity] = {}


class AggregatedUsage(APIObject, frozen=True):
    """Percentiles of the usage over a duration, by the type of aggregation."""

    usage: dict[str, ResourceMap] = {}
    duration: str = ""


class NodeMetricInfo(APIObject, frozen=True):
    """``status.nodeMetric``."""

    node_usage: ResourceMap = ResourceMap()
    aggregated_node_usages: list[AggregatedUsage] = []
    system_usage: ResourceMap = ResourceMap()


class PodMetricInfo(APIObject, frozen=True):
    """``status.podsMetric[]``."""

    name: str = ""
    namespace: str = ""
    pod_usage: ResourceMap = ResourceMap()
    priority: str = ""


class CollectPolicy(APIObject, frozen=True):
    """``spec.metricCollectPolicy``."""

    report_interval_seconds: int | None = None


class NodeMetricSpec(APIObject, frozen=True):
    """``spec``."""

    metric_collect_policy: CollectPolicy | None = None


class NodeMetricStatus(APIObject, frozen=True):
    """``status``."""

    update_time: Time | None = None
    node_metric: NodeMetricInfo | None = None
    pods_metric: list[PodMetricInfo | None] = []


class NodeMetric(CustomObject, frozen=True):
    """The report of a node; it has the name of the node."""

    resource: ClassVar[str] = "nodemetrics.v1alpha1.slo.koordinator.sh"
    is_about_node: ClassVar[bool] = True
    spec: NodeMetricSpec = NodeMetricSpec()
    status: NodeMetricStatus = NodeMetricStatus()


@dataclass(frozen=True, slots=True)
class NodeReport:
    """What scheduling reads of a NodeMetric, as vectors over some resources.

    ``update_time`` is in seconds since the Unix epoch, None if there was no update. ``usage`` is None if the node's
    usage has not been reported, and so are aggregations and pods that are missing from the mappings.
    """

    update_time: float | None
    report_interval: float
    usage: Vector | None
    aggregated: Mapping[AggregationKey, Vector]
    system_usage: Vector
    #: By namespace and name.
    pods: Mapping[tuple[str, str], Vector]
    prod_pods: frozenset[tuple[str, str]]


def read_report(metric: NodeMetric, resources: Sequence[str]) -> NodeReport:
    """The report of a NodeMetric."""
    status, policy = metric.status, metric.spec.metric_collect_policy
    interval = None if policy is None else policy.report_interval_seconds
    info = status.node_metric
    pods: dict[tuple[str, str], Vector] = {}
    prod_pods = set()
    for pod in status.pods_metric:
        usage = None if pod is None else _vector(pod.pod_usage, resources)
        if pod is not None and usage is not None and pod.pod_usage.resources:
            pods[pod.namespace, pod.name] = usage
            if pod.priority == PROD:
                prod_pods.add((pod.namespace, pod.name))
    nothing = (0,) * len(resources)
    return NodeReport(
        None if status.update_time is None else status.update_time.timestamp(),
        _DEFAULT_REPORT_INTERVAL if interval is None else float(interval),
        None if info is None else _vector(info.node_usage, resources),
        {} if info is None else _aggregated(info.aggregated_node_usages, resources),
        nothing if info is None else _vector(info.system_usage, resources) or nothing,
        pods,
        frozenset(prod_pods),
    )


def _aggregated(reported: Sequence[AggregatedUsage], resources: Sequence[str]) -> dict[AggregationKey, Vector]:
    found: dict[AggregationKey, Vector] = {}
    longest: dict[str, float] = {}
    for aggregated in reported:
        try:
            duration = Duration.parse(aggregated.duration or "0").seconds
        except ValueError:
            continue
        if duration < 0:
            continue
        for kind, usage in aggregated.usage.items():
            vector = _vector(usage, resources)
            if usage.resources and vector is not None:
                found[kind, duration] = vector
                longest[kind] = max(longest.get(kind, 0.0), duration)
    return found | {(kind, 0.0): found[kind, duration] for kind, duration in longest.items()}


def _vector(usage: ResourceMap, resources: Sequence[str]) -> Vector | None:
    """The amounts of some resources; None if one of them is negative or malformed."""
    amounts = []
    for name in resources:
        quantity = usage.resources.get(name, 0)
        try:
            amount = millis(quantity) if name == "cpu" else units(quantity)
        except InvalidQuantity:
            return None
        if amount < 0:
            return None
        amounts.append(amount)
    return tuple(amounts)
