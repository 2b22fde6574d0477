"""The resource requests and limits of pods: the metrics of /metrics/resources (semantics 10.4).

They are computed at a scrape from the pods of the watch; pods of one shape share the sums.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from weakref import WeakKeyDictionary

from prometheus_client.core import GaugeMetricFamily, Metric

from kubestow.cluster.pods.shapes import PodInfo, Shape
from kubestow.errors import InvalidObject
from kubestow.rules.requests import CPU, limits_by_spec

_LABELS = ("namespace", "pod", "node", "scheduler", "priority", "resource", "unit")
_REQUESTS = "[STABLE] Resources requested by pods, as the scheduler counts them."
_LIMITS = "[STABLE] Resource limits of pods, aggregated as their requests."


class PodResourceCollector:
    """Collects the requests and limits of pods for prometheus_client."""

    def __init__(self) -> None:
        self._limits: WeakKeyDictionary[Shape, Mapping[str, int]] = WeakKeyDictionary()

    def collect(self, pods: Iterable[PodInfo]) -> Iterator[Metric]:
        """The metrics of limits and requests, for these pods."""
        requests = GaugeMetricFamily("kube_pod_resource_request", _REQUESTS, labels=_LABELS)
        limits = GaugeMetricFamily("kube_pod_resource_limit", _LIMITS, labels=_LABELS)
        for info in pods:
            priority = "" if info.spec.priority is None else str(info.spec.priority)
            labels = (info.namespace, info.name, info.spec.node_name, info.spec.scheduler_name, priority)
            _add(requests, labels, info.requests)
            _add(limits, labels, self._limits_of(info))
        yield limits
        yield requests

    def _limits_of(self, info: PodInfo) -> Mapping[str, int]:
        limits = self._limits.get(info.shape)
        if limits is None:
            try:
                limits = limits_by_spec(info.pod)
            except InvalidObject:  # only these metrics read limits, so they are not validated earlier
                limits = {}
            self._limits[info.shape] = limits
        return limits


def _add(family: GaugeMetricFamily, labels: tuple[str, ...], amounts: Mapping[str, int]) -> None:
    for resource, amount in amounts.items():
        if amount:
            value = amount / 1000 if resource == CPU else amount
            family.add_metric((*labels, resource, _unit(resource)), value)


def _unit(resource: str) -> str:
    if resource == CPU:
        return "cores"
    if resource in ("memory", "storage", "ephemeral-storage") or resource.startswith("hugepages-"):
        return "bytes"
    return "integer" if resource.startswith("attachable-volumes-") else ""
