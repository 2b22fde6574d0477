"""The metrics of the descheduler, under its names, the observer that updates them, and the paths of its secure port."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from kubestow.descheduling.eviction import Eviction, EvictionObserver, EvictionOutcome
from kubestow.http.messages import HTTPRequest, HTTPResponse
from kubestow.http.path_mux import Handler, PathMux
from kubestow.observability.instruments import Gauge, MetricDefinition, MetricSet, exposition
from kubestow.serving.healthz import PING, HealthCheck, HealthChecks
from kubestow.version import VERSION

_LOOP_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500)
_SUCCESS, _ERROR = "success", "error"
_LIMITS = {
    EvictionOutcome.TOTAL_LIMIT: "maximum number of evicted pods per a descheduling cycle reached",
    EvictionOutcome.NODE_LIMIT: "maximum number of evicted pods per node reached",
    EvictionOutcome.NAMESPACE_LIMIT: "maximum number of evicted pods per namespace reached",
}


class DeschedulerMetrics(MetricSet):
    """The metrics of one process."""

    def __init__(self) -> None:
        super().__init__()
        self.pods_evicted = self.counter(
            "descheduler_pods_evicted_total",
            "Number of evictions, by result, strategy, profile, namespace and node; error for those refused.",
            MetricDefinition(labels=("result", "strategy", "profile", "namespace", "node")),
        )
        self.loop_duration = self.histogram(
            "descheduler_loop_duration_seconds",
            "Duration of a descheduling loop.",
            MetricDefinition(buckets=_LOOP_BUCKETS),
        )
        self.strategy_duration = self.histogram(
            "descheduler_strategy_duration_seconds",
            "Duration of a strategy in a loop, by strategy and profile.",
            MetricDefinition(labels=("strategy", "profile"), buckets=_LOOP_BUCKETS[:-2]),
        )
        self.add(
            Gauge(
                "descheduler_build_info",
                "The version of the program; always 1.",
                MetricDefinition(labels=("DeschedulerVersion",)),
                read=lambda: [((f"kubestow {VERSION}",), 1.0)],
            )
        )
        self.add_serving(MetricDefinition(labels=("result",), buckets=(0.001, 0.01, 0.1, 1, 10)))


class EvictionMetrics(EvictionObserver):
    """Counts evictions and measures strategies; ``monotonic`` is a clock in seconds."""

    def __init__(self, metrics: DeschedulerMetrics, monotonic: Callable[[], float]) -> None:
        self._metrics, self._monotonic, self._started = metrics, monotonic, 0.0

    def evicted(self, eviction: Eviction) -> None:
        self._count(eviction, _SUCCESS)

    def refused(self, eviction: Eviction) -> None:
        self._count(eviction, _ERROR)

    def limited(self, eviction: Eviction, limit: EvictionOutcome, most: int) -> None:
        self._count(eviction, _LIMITS[limit])

    def _count(self, eviction: Eviction, result: str) -> None:
        pod = eviction.pod
        labels = (result, eviction.plugin, eviction.profile, pod.namespace, pod.node_name)
        self._metrics.pods_evicted.labels(*labels).value += 1

    def plugin_started(self, profile: str, plugin: str) -> None:
        self._started = self._monotonic()

    def plugin_finished(self, profile: str, plugin: str) -> None:
        self._metrics.strategy_duration.labels(plugin, profile).observe(self._monotonic() - self._started)


def descheduler_mux(metrics: DeschedulerMetrics, lease_problem: Callable[[], str | None]) -> PathMux:
    """/metrics, /healthz, /livez and /readyz; ``lease_problem`` says what is wrong with the Lease, if anything is."""
    election = HealthCheck("leaderElection", lease_problem)
    health = HealthChecks({"healthz": [PING, election], "livez": [PING], "readyz": [PING, election]})
    paths: dict[str, Handler] = {f"/{name}": partial(health.handle, name) for name in health.endpoints}

    def scrape(request: HTTPRequest) -> HTTPResponse:
        body, content_type = exposition(metrics.registry, request.header("accept"))
        return HTTPResponse(200, body, content_type)

    return PathMux(paths=paths | {"/metrics": scrape}, prefixes={}, deletions={})
