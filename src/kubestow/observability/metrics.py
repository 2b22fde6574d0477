"""Every metric there is: kube-scheduler's names, labels, buckets and stability (semantics 10), in words of our own.

What counts is moved by :mod:`kubestow.observability.metrics_recorder`; what is read at a scrape is given in by
:mod:`kubestow.observability.state_gauges`. There is no registry but the one that a :class:`SchedulerMetrics` makes.

Not here, because they have no meaning in this scheduler: ``batch_*``, ``get_node_hint_*`` and
``store_schedule_results_*`` (answers are remembered instead of node lists), ``volume_binder_cache_requests_total``
(there is no such cache) and ``go_*``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TypeVar

from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector
from prometheus_client.core import Metric

from kubestow.observability.instruments import Counter, Gauge, Histogram, LabelAllowList, Stability, exponential

__all__ = ["SchedulerMetrics"]

_STABLE, _BETA, _ALPHA = Stability.STABLE, Stability.BETA, Stability.ALPHA

_ATTEMPT = exponential(0.001, 2, 15)
_EXTENSION_POINT = exponential(0.0001, 2, 12)
_PLUGIN = exponential(0.00001, 1.5, 20)
_REQUEST = (0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60)


F = TypeVar("F", Counter, Histogram, Gauge)


class SchedulerMetrics:
    """The metrics of one process. ``registry`` exposes them; nothing is shared with another instance.

    ``disabled`` names metrics that are not exposed, ``allowed`` the values of labels that are told apart, by metric.
    """

    def __init__(
        self,
        *,
        disabled: Collection[str] = (),
        allowed: Mapping[str, LabelAllowList] | None = None,
        process: bool = True,
    ) -> None:
        self._families: dict[str, Counter | Histogram | Gauge] = {}
        self._disabled, self._allowed = frozenset(disabled), allowed or {}
        self._attempts()
        self._queue()
        self._framework()
        self._preemption()
        self._requests()
        self._serving()
        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(self)
        if process:
            ProcessCollector(registry=self.registry)
            GCCollector(registry=self.registry)

    def _attempts(self) -> None:
        self.schedule_attempts = self._counter(
            "schedule_attempts_total", "Attempts to schedule a pod, by how they ended.", _STABLE, "result", "profile"
        )
        self.attempt_duration = self._histogram(
            "scheduling_attempt_duration_seconds",
            "From taking a pod off the queue until it is bound or given back.",
            _STABLE,
            "result",
            "profile",
            bounds=_ATTEMPT,
        )
        self.algorithm_duration = self._histogram(
            "scheduling_algorithm_duration_seconds",
            "Deciding about one pod, PostFilter included.",
            _ALPHA,
            bounds=_ATTEMPT,
        )
        self.sli_duration = self._histogram(
            "pod_scheduling_sli_duration_seconds",
            "From the moment a pod could first be tried until it was bound, by the number of attempts.",
            _BETA,
            "attempts",
            bounds=exponential(0.01, 2, 20),
        )
        self.pod_attempts = self._histogram(
            "pod_scheduling_attempts",
            "Attempts that it took to schedule a pod.",
            _STABLE,
            bounds=exponential(1, 2, 5),
        )
        self.gang_attempts = self._counter(
            "podgroup_schedule_attempts_total",
            "Attempts to schedule a pod group, by how they ended.",
            _ALPHA,
            "result",
            "profile",
        )
        self.gang_attempt_duration = self._histogram(
            "podgroup_scheduling_attempt_duration_seconds",
            "From gathering a pod group until all its pods have nodes or are given back.",
            _ALPHA,
            "result",
            "profile",
            bounds=_ATTEMPT,
        )
        self.gang_algorithm_duration = self._histogram(
            "podgroup_scheduling_algorithm_duration_seconds",
            "Deciding about one pod group, whatever has to be tried for it.",
            _ALPHA,
            bounds=_ATTEMPT,
        )
        self.scheduled_after_flush = self._counter(
            "pod_scheduled_after_flush_total",
            "Pods scheduled only after they were tried again because they had waited so long: events that were missed.",
            _ALPHA,
        )

    def _queue(self) -> None:
        self.incoming_pods = self._counter(
            "queue_incoming_pods_total",
            "Pods that entered a part of the scheduling queue, by the event that brought them there.",
            _STABLE,
            "queue",
            "event",
        )
        self.hint_duration = self._histogram(
            "queueing_hint_execution_duration_seconds",
            "Asking one queueing hint of a plugin.",
            _ALPHA,
            "plugin",
            "event",
            "hint",
            bounds=_PLUGIN,
        )
        self.event_duration = self._histogram(
            "event_handling_duration_seconds",
            "Taking in one event of the watch, moving pods included.",
            _ALPHA,
            "event",
            bounds=_EXTENSION_POINT,
        )

    def _framework(self) -> None:
        self.extension_point_duration = self._histogram(
            "framework_extension_point_duration_seconds",
            "Asking all plugins of an extension point.",
            _STABLE,
            "extension_point",
            "status",
            "profile",
            bounds=_EXTENSION_POINT,
        )
        self.plugin_duration = self._histogram(
            "plugin_execution_duration_seconds",
            "Asking one plugin at one extension point, about any number of nodes; every tenth cycle is measured.",
            _ALPHA,
            "plugin",
            "extension_point",
            "status",
            bounds=_PLUGIN,
        )
        self.plugin_evaluations = self._counter(
            "plugin_evaluation_total",
            "Times that a plugin was asked, about any number of nodes; remembered answers are not asked for.",
            _BETA,
            "plugin",
            "extension_point",
            "profile",
        )
        self.permit_wait_duration = self._histogram(
            "permit_wait_duration_seconds",
            "How long pods were held back by Permit plugins.",
            _BETA,
            "result",
            bounds=_ATTEMPT,
        )
        self.volume_stage_errors = self._counter(
            "volume_scheduling_stage_error_total",
            "Failures of volume binding, by stage.",
            _ALPHA,
            "operation",
        )

        self.claim_creations = self._counter(
            "resourceclaim_creates_total", "Claims made for pods' extended resources.", _ALPHA, "status"
        )
        self.device_wait_ended = self._counter(
            "dra_bindingconditions_allocations_total",
            "Attempts that had to wait for devices of a driver to be made ready, by how that ended.",
            _ALPHA,
            "profile",
            "driver",
            "status",
        )
        self.device_wait_duration = self._histogram(
            "dra_bindingconditions_wait_duration_seconds",
            "Waiting for devices of a driver to be made ready.",
            _ALPHA,
            "profile",
            "driver",
            "status",
            bounds=exponential(0.1, 2, 14),
        )

    def _preemption(self) -> None:
        self.preemption_attempts = self._counter(
            "preemption_attempts_total", "Times that room was looked for by preemption.", _STABLE
        )
        self.preemption_victims = self._histogram(
            "preemption_victims", "Pods chosen to go by one preemption.", _STABLE, bounds=exponential(1, 2, 7)
        )
        self.evictions_duration = self._histogram(
            "preemption_goroutines_duration_seconds",
            "Carrying out one preemption in the background.",
            _ALPHA,
            "result",
            bounds=exponential(0.01, 2, 20),
        )
        self.evictions = self._counter(
            "preemption_goroutines_execution_total",
            "Preemptions carried out in the background, by how that ended.",
            _ALPHA,
            "result",
        )

    def _requests(self) -> None:
        self.writes = self._counter(
            "async_api_call_execution_total",
            "Writes to the API server, each try by itself, by how they ended.",
            _ALPHA,
            "call_type",
            "result",
        )
        self.write_duration = self._histogram(
            "async_api_call_execution_duration_seconds",
            "Writes to the API server, each try by itself, until they were answered.",
            _ALPHA,
            "call_type",
            "result",
            bounds=_ATTEMPT,
        )
        self.client_requests = self._counter(
            "rest_client_requests_total", "Requests to an API server.", _ALPHA, "code", "method", "host", prefix=""
        )
        self.client_duration = self._histogram(
            "rest_client_request_duration_seconds",
            "Requests to an API server until their headers were answered.",
            _ALPHA,
            "verb",
            "host",
            bounds=_REQUEST,
            prefix="",
        )

    def _serving(self) -> None:
        self.authentication_duration = self._histogram(
            "authentication_duration_seconds",
            "Finding out who sent a request.",
            _ALPHA,
            "result",
            bounds=_ATTEMPT,
            prefix="",
        )
        self.authorization_attempts = self._counter(
            "authorization_attempts_total", "Requests by whether they were allowed.", _ALPHA, "result", prefix=""
        )
        self.authorization_duration = self._histogram(
            "authorization_duration_seconds",
            "Finding out whether a request is allowed.",
            _ALPHA,
            "result",
            bounds=_ATTEMPT,
            prefix="",
        )

    def answered(self, method: str, host: str, code: str, seconds: float) -> None:
        """An API server has answered a request; ``code`` is its status, or ``<error>`` when there was no answer."""
        self.client_requests.at(code, method, host).value += 1
        self.client_duration.at(method, host).observe(seconds)

    # -- making them -----------------------------------------------------------------------------------------------

    def _counter(
        self, name: str, meaning: str, stability: Stability, *labels: str, prefix: str = "scheduler_"
    ) -> Counter:
        return self._add(Counter(prefix + name, meaning, stability, labels))

    def _histogram(
        self,
        name: str,
        meaning: str,
        stability: Stability,
        *labels: str,
        bounds: Collection[float],
        prefix: str = "scheduler_",
    ) -> Histogram:
        return self._add(Histogram(prefix + name, meaning, stability, labels, bounds=tuple(bounds)))

    def add(self, gauge: Gauge) -> None:
        """A metric that is read when it is asked for."""
        self._add(gauge)

    def _add(self, family: F) -> F:
        family.allow(self._allowed.get(family.name, {}))
        self._families[family.name] = family
        return family

    @property
    def families(self) -> Collection[Counter | Histogram | Gauge]:
        """Every metric, exposed or not."""
        return self._families.values()

    # -- for prometheus_client -------------------------------------------------------------------------------------

    def collect(self) -> Iterator[Metric]:
        """All families as they are now."""
        return (family.collect() for name, family in self._families.items() if name not in self._disabled)

    def clear(self) -> None:
        """Begin again at nothing, as DELETE /metrics asks."""
        for family in self._families.values():
            family.clear()
