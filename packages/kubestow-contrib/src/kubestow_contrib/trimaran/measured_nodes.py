"""What the load-aware plugins of scheduler-plugins have in common: arguments, samples, and what pods ask for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import msgspec

from kubestow.api.core import Container
from kubestow.api.formats.quantity import Quantity
from kubestow.client.http_json import JSONServer
from kubestow.client.rest.kubeconfig import is_http_url
from kubestow.cluster.changes.events import Action, EventResource
from kubestow.cluster.pods.shapes import Shape, ShapeFamily
from kubestow.framework.event_registration import EventRegistration, on
from kubestow.framework.interface import Handle, ScorePlugin
from kubestow_contrib.node_load.collector import NEW_SAMPLES, Collector, UsageSource
from kubestow_contrib.node_load.sources import DEFAULT_ADDRESS, LoadWatcher, MetricsAPI, Prometheus
from kubestow_contrib.node_load.usage import amount_of

_METRICS_SERVER, _PROMETHEUS, _SIGNALFX = "KubernetesMetricsServer", "Prometheus", "SignalFx"


class MetricProvider(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """``metricProvider``: metrics-server by default, or Prometheus."""

    type: str = ""
    address: str | None = None
    token: str | None = None
    insecure_skip_verify: bool | None = None

    def __post_init__(self) -> None:
        if self.type == _SIGNALFX:
            raise ValueError("type SignalFx is not supported, run load-watcher as a service and set watcherAddress")
        if self.type not in ("", _METRICS_SERVER, _PROMETHEUS):
            raise ValueError(f'type is "{self.type}", expected {_METRICS_SERVER} or {_PROMETHEUS}')
        _require_url(self.address, "address")


class TrimaranArgs(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The source of metrics: the load-watcher service at ``watcherAddress``, or else the metric provider."""

    metric_provider: MetricProvider | None = None
    watcher_address: str | None = None

    def __post_init__(self) -> None:
        _require_url(self.watcher_address, "watcherAddress")

    def source(self, handle: Handle) -> UsageSource:
        """The source that the arguments name."""
        if self.watcher_address:
            return LoadWatcher(JSONServer(self.watcher_address))
        provider = self.metric_provider or MetricProvider()
        if provider.type == _PROMETHEUS:
            insecure = provider.insecure_skip_verify is not False  # as upstream
            server = JSONServer(provider.address or DEFAULT_ADDRESS, provider.token or "", insecure)
            return Prometheus(server, lambda name: name in handle.cluster.nodes.rows)
        return MetricsAPI(handle)


def _require_url(address: str | None, field: str) -> None:
    if address and not is_http_url(address):
        raise ValueError(f'{field} is "{address}", expected a URL such as http://prometheus:9090')


class MeasuredNodesPlugin(ScorePlugin):
    """The base of the plugins: scores by the samples of nodes, which a collector keeps up to date."""

    label_keys = ()
    events_to_register: Sequence[EventRegistration] = (
        on(EventResource.NODE, Action.ADD | Action.UPDATE_NODE_ALLOCATABLE, requeues=False),
        NEW_SAMPLES,
    )

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle)
        self._collector = Collector(self.name, handle, args.source(handle), self._react_to_collection)

    def _react_to_collection(self) -> bool:
        """Act after each collection; whether results may have changed for another reason than new samples."""
        return False


_requests: WeakKeyDictionary[ShapeFamily, tuple[int, int]] = WeakKeyDictionary()
_limits: WeakKeyDictionary[ShapeFamily, tuple[int, int]] = WeakKeyDictionary()


def requests(shape: Shape) -> tuple[int, int]:
    """CPU (millicores) and memory (bytes) that a pod requests."""
    found = _requests.get(shape.family)
    if found is None:
        found = _requests[shape.family] = _effective(shape, lambda container: container.resources.requests)
    return found


def limits(shape: Shape) -> tuple[int, int]:
    """The limits of a pod, CPU (millicores) and memory (bytes), at least what it requests."""
    found = _limits.get(shape.family)
    if found is None:
        cpu, memory = _effective(shape, lambda container: container.resources.limits)
        requested_cpu, requested_memory = requests(shape)
        found = _limits[shape.family] = max(cpu, requested_cpu), max(memory, requested_memory)
    return found


def cpu_and_memory(quantities: Mapping[str, Quantity]) -> tuple[int, int]:
    """CPU (millicores) and memory (bytes) of a list of resources, 0 if absent or malformed."""
    return amount_of("cpu", quantities.get("cpu", 0)), amount_of("memory", quantities.get("memory", 0))


def _effective(shape: Shape, resources: Callable[[Container], Mapping[str, Quantity]]) -> tuple[int, int]:
    spec = shape.spec
    cpu = memory = 0
    for container in spec.containers:
        container_cpu, container_memory = cpu_and_memory(resources(container))
        cpu, memory = cpu + container_cpu, memory + container_memory
    for container in spec.init_containers:
        container_cpu, container_memory = cpu_and_memory(resources(container))
        cpu, memory = max(cpu, container_cpu), max(memory, container_memory)
    overhead_cpu, overhead_memory = cpu_and_memory(spec.overhead)
    return cpu + overhead_cpu, memory + overhead_memory
