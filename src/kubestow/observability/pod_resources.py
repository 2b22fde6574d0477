"""What every pod asks for and may use at most: the metrics of /metrics/resources (semantics 10.4).

Worked out at a scrape from the pods that the watch has told of; copies of a pod share the sums.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from weakref import WeakKeyDictionary

from prometheus_client.core import GaugeMetricFamily, Metric

from kubestow.cluster.pods.requests import CPU, limits_by_spec
from kubestow.cluster.pods.shapes import PodInfo, Shape
from kubestow.errors import InvalidObject

__all__ = ["PodResourceCollector"]

_LABELS = ("namespace", "pod", "node", "scheduler", "priority", "resource", "unit")
_REQUESTS = "[STABLE] What a pod asks for, as scheduling counts it."
_LIMITS = "[STABLE] What a pod may use at most, added up as its requests are."


class PodResourceCollector:
    """Collects the requests and limits of pods for prometheus_client."""

    def __init__(self) -> None:
        self._limits: WeakKeyDictionary[Shape, Mapping[str, int]] = WeakKeyDictionary()

    def collect(self, pods: Iterable[PodInfo]) -> Iterator[Metric]:
        """Both families, over these pods."""
        requests = GaugeMetricFamily("kube_pod_resource_request", _REQUESTS, labels=_LABELS)
        limits = GaugeMetricFamily("kube_pod_resource_limit", _LIMITS, labels=_LABELS)
        for info in pods:
            priority = "" if info.spec.priority is None else str(info.spec.priority)
            of_pod = (info.namespace, info.name, info.spec.node_name, info.spec.scheduler_name, priority)
            _add(requests, of_pod, info.requests)
            _add(limits, of_pod, self._limits_of(info))
        yield limits
        yield requests

    def _limits_of(self, info: PodInfo) -> Mapping[str, int]:
        known = self._limits.get(info.shape)
        if known is None:
            try:
                known = limits_by_spec(info.pod)
            except InvalidObject:  # nothing but these metrics ever reads a limit, so nobody has refused it before
                known = {}
            self._limits[info.shape] = known
        return known


def _add(family: GaugeMetricFamily, of_pod: tuple[str, ...], amounts: Mapping[str, int]) -> None:
    for resource, amount in amounts.items():
        if amount:
            value = amount / 1000 if resource == CPU else amount
            family.add_metric((*of_pod, resource, _unit(resource)), value)


def _unit(resource: str) -> str:
    if resource == CPU:
        return "cores"
    if resource in ("memory", "storage", "ephemeral-storage") or resource.startswith("hugepages-"):
        return "bytes"
    return "integer" if resource.startswith("attachable-volumes-") else ""
