"""The arguments that all trimaran plugins have: where metrics come from."""

from __future__ import annotations

import msgspec

from kubestow.client.http_json import JSONServer, is_http_url
from kubestow.framework.interface import Handle
from kubestow_contrib.node_load.collector import UsageSource
from kubestow_contrib.node_load.load_watcher import LoadWatcher
from kubestow_contrib.node_load.metrics_api import MetricsAPI
from kubestow_contrib.node_load.prometheus import DEFAULT_ADDRESS, Prometheus

__all__ = ["MetricProvider", "TrimaranArgs"]

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
