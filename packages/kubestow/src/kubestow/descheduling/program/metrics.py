"""The metrics of the descheduler, under its names, and the observer that updates them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric

from kubestow.descheduling.eviction import Eviction, EvictionObserver, Outcome
from kubestow.observability.instruments import Counter, Gauge, Histogram, Stability
from kubestow.version import VERSION

__all__ = ["DeschedulerMetrics", "MetricsObserver"]

_LOOP_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500)
_STRATEGY_BUCKETS = _LOOP_BUCKETS[:-2]
_REQUEST_BUCKETS = (0.001, 0.01, 0.1, 1, 10)
_LABELS = ("result", "strategy", "profile", "namespace", "node")
_SUCCESS, _ERROR = "success", "error"
_LIMITS = {
    Outcome.TOTAL_LIMIT: "maximum number of evicted pods per a descheduling cycle reached",
    Outcome.NODE_LIMIT: "maximum number of evicted pods per node reached",
    Outcome.NAMESPACE_LIMIT: "maximum number of evicted pods per namespace reached",
}


class DeschedulerMetrics:
    """The metrics of one process; ``registry`` is what a scrape reads."""

    def __init__(self) -> None:
        self.pods_evicted = Counter(
            "descheduler_pods_evicted_total",
            "Number of evictions, by result, strategy, profile, namespace and node; error for those refused.",
            Stability.ALPHA,
            _LABELS,
        )
        self.loop_duration = Histogram(
            "descheduler_loop_duration_seconds",
            "Duration of a descheduling loop.",
            Stability.ALPHA,
            (),
            buckets=_LOOP_BUCKETS,
        )
        self.strategy_duration = Histogram(
            "descheduler_strategy_duration_seconds",
            "Duration of a strategy in a loop, by strategy and profile.",
            Stability.ALPHA,
            ("strategy", "profile"),
            buckets=_STRATEGY_BUCKETS,
        )
        build_info = Gauge(
            "descheduler_build_info",
            "The version of the program; always 1.",
            Stability.ALPHA,
            ("DeschedulerVersion",),
            read=lambda: [((f"kubestow {VERSION}",), 1.0)],
        )
        self.authentication_duration = Histogram(
            "authentication_duration_seconds",
            "Authentication duration in seconds, by result.",
            Stability.ALPHA,
            ("result",),
            buckets=_REQUEST_BUCKETS,
        )
        self.authorization_duration = Histogram(
            "authorization_duration_seconds",
            "Authorization duration in seconds, by result.",
            Stability.ALPHA,
            ("result",),
            buckets=_REQUEST_BUCKETS,
        )
        self.authorization_attempts = Counter(
            "authorization_attempts_total",
            "Number of authorization attempts, by result.",
            Stability.ALPHA,
            ("result",),
        )
        self._all = (
            self.pods_evicted,
            self.loop_duration,
            self.strategy_duration,
            build_info,
            self.authentication_duration,
            self.authorization_duration,
            self.authorization_attempts,
        )
        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """All metrics, for prometheus_client."""
        return (metric.collect() for metric in self._all)


class MetricsObserver(EvictionObserver):
    """Counts evictions and measures strategies; ``monotonic`` is a clock in seconds."""

    def __init__(self, metrics: DeschedulerMetrics, monotonic: Callable[[], float]) -> None:
        self._metrics, self._monotonic, self._started = metrics, monotonic, 0.0

    def evicted(self, eviction: Eviction) -> None:
        self._count(eviction, _SUCCESS)

    def refused(self, eviction: Eviction) -> None:
        self._count(eviction, _ERROR)

    def limited(self, eviction: Eviction, limit: Outcome, most: int) -> None:
        self._count(eviction, _LIMITS[limit])

    def _count(self, eviction: Eviction, result: str) -> None:
        pod = eviction.pod
        labels = (result, eviction.plugin, eviction.profile, pod.namespace, pod.node_name)
        self._metrics.pods_evicted.labels(*labels).value += 1

    def plugin_started(self, profile: str, plugin: str) -> None:
        self._started = self._monotonic()

    def plugin_finished(self, profile: str, plugin: str) -> None:
        self._metrics.strategy_duration.labels(plugin, profile).observe(self._monotonic() - self._started)
