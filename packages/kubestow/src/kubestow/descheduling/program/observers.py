"""What a descheduler shows of its evictions: metrics, log and events, and the paths of its secure port."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from kubestow.api.reports import EventType
from kubestow.descheduling.eviction import Eviction, EvictionObserver, EvictionOutcome
from kubestow.http.messages import Handler, HTTPResponse, PathMux
from kubestow.log_fields import fields
from kubestow.observability.instruments import Gauge, MetricDefinition, MetricSet, exposition
from kubestow.process import Heartbeat
from kubestow.scheduling.interfaces import EventRecord, ObjectReference
from kubestow.serving.healthz import PING, HealthCheck, HealthChecks, loop_check
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


def descheduler_mux(
    metrics: DeschedulerMetrics, heartbeat: Heartbeat, lease_problem: Callable[[], str | None]
) -> PathMux:
    """/metrics, /healthz, /livez and /readyz; ``lease_problem`` says what is wrong with the Lease, if anything is.

    ``heartbeat`` is that of the descheduler's event loop.
    """
    election, loop = HealthCheck("leaderElection", lease_problem), loop_check(heartbeat)
    health = HealthChecks({"healthz": [PING, election, loop], "livez": [PING, loop], "readyz": [PING, election, loop]})
    paths: dict[str, Handler] = {f"/{name}": partial(health.handle, name) for name in health.endpoints}
    paths["/metrics"] = lambda request: HTTPResponse(200, *exposition(metrics.registry, request.header("accept")))
    return PathMux(paths=paths, prefixes={}, deletions={})


_log = logging.getLogger(__name__)

REPORTING_CONTROLLER = "sigs.k8s.io.descheduler"
"""The reporting controller of all events, as the descheduler's."""

_DESCHEDULED = EventType(
    "{reason}",
    "Descheduled",
    "evicted from {node} by {profile}/{strategy}: {message}",
    help="The descheduler evicted the pod. The reason is the strategy's name, or what that gives as a reason.",
)
_EVICTION_FAILED = EventType(
    "EvictionFailed",
    "Descheduled",
    "not evicted from {node} by {profile}/{strategy}: {message}",
    type="Warning",
    help="The descheduler could not evict the pod, or a limit is reached; only with evictionFailureEventNotification.",
)


class EvictionLog(EvictionObserver):
    """Logs every eviction and why others were refused; in a dry run it says so."""

    def __init__(self, *, dry_run: bool) -> None:
        self._evicted = "Evicted pod in dry run" if dry_run else "Evicted pod"

    def evicted(self, eviction: Eviction) -> None:
        _log.info(self._evicted, extra=_fields(eviction))

    def refused(self, eviction: Eviction) -> None:
        refusal = eviction.refusal
        _log.info("Eviction refused", extra=_fields(eviction, err=refusal.message if refusal else ""))

    def limited(self, eviction: Eviction, limit: EvictionOutcome, most: int) -> None:
        _log.info("Eviction not requested: limit reached", extra=_fields(eviction, limit=limit.value, most=most))


def _fields(eviction: Eviction, **more: object) -> dict[str, object]:
    pod = eviction.pod
    return fields(
        pod=pod.key,
        node=pod.node_name,
        profile=eviction.profile,
        strategy=eviction.plugin,
        why=eviction.message,
        **more,
    )


class EvictionEvents(EvictionObserver):
    """Records an event for every evicted pod, and with ``failures`` for every one that could not be evicted."""

    def __init__(self, record: Callable[[EventRecord], None], *, failures: bool) -> None:
        self._record, self._failures = record, failures

    def evicted(self, eviction: Eviction) -> None:
        self._record_event(_DESCHEDULED, eviction, eviction.message)

    def refused(self, eviction: Eviction) -> None:
        if self._failures and eviction.refusal is not None:
            self._record_event(_EVICTION_FAILED, eviction, eviction.refusal.message)

    def limited(self, eviction: Eviction, limit: EvictionOutcome, most: int) -> None:
        if self._failures:
            self._record_event(_EVICTION_FAILED, eviction, f"{limit.value} of {most} reached")

    def _record_event(self, event: EventType, eviction: Eviction, message: str) -> None:
        pod = eviction.pod
        subject = ObjectReference(
            "Pod", pod.namespace, pod.name, pod.uid, resource_version=pod.metadata.resource_version
        )
        reason = event.reason.format(reason=eviction.reason or eviction.plugin)
        note = event.note.format(
            node=pod.node_name, profile=eviction.profile, strategy=eviction.plugin, message=message
        )
        controller = REPORTING_CONTROLLER
        self._record(EventRecord(subject, reason, event.action, note, event.type, reporting_controller=controller))
