"""All metrics of a scheduler process: names, labels, buckets and stability are kube-scheduler's (semantics 10).

``kubestow_events_dropped_total`` is our own.

:mod:`kubestow.observability.metrics_recorder` updates counters and histograms,
:mod:`kubestow.observability.state_gauges` adds the gauges. Each :class:`SchedulerMetrics` has a registry of its own.

Not exposed, because nothing here corresponds to them: ``batch_*``, ``get_node_hint_*`` and ``store_schedule_results_*``
(results are cached per plugin, not as node lists), ``volume_binder_cache_requests_total`` (there is no such cache) and
``go_*``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from prometheus_client import GCCollector, ProcessCollector

from kubestow.observability.instruments import LabelAllowList, MetricSet, Stability, exponential_buckets

_STABLE, _BETA, _ALPHA = Stability.STABLE, Stability.BETA, Stability.ALPHA

_ATTEMPT = exponential_buckets(0.001, 2, 15)
_EXTENSION_POINT = exponential_buckets(0.0001, 2, 12)
_PLUGIN = exponential_buckets(0.00001, 1.5, 20)
_REQUEST = (0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60)


class SchedulerMetrics(MetricSet):
    """The metrics of a scheduler. With ``process`` they include the process and GC metrics of prometheus_client."""

    def __init__(
        self,
        *,
        disabled: Collection[str] = (),
        allowed: Mapping[str, LabelAllowList] | None = None,
        process: bool = True,
    ) -> None:
        super().__init__("scheduler_", disabled=disabled, allowed=allowed)
        self._add_attempts()
        self._add_queue()
        self._add_framework()
        self._add_preemption()
        self._add_requests()
        self.add_serving(_ATTEMPT)
        if process:
            ProcessCollector(registry=self.registry)
            GCCollector(registry=self.registry)

    def _add_attempts(self) -> None:
        self.schedule_attempts = self.counter(
            "schedule_attempts_total", "Number of attempts to schedule pods, by result.", _STABLE, "result", "profile"
        )
        self.attempt_duration = self.histogram(
            "scheduling_attempt_duration_seconds",
            "Scheduling attempt latency in seconds, from the pop of the pod until it is bound or requeued.",
            _STABLE,
            "result",
            "profile",
            buckets=_ATTEMPT,
        )
        self.algorithm_duration = self.histogram(
            "scheduling_algorithm_duration_seconds",
            "Scheduling algorithm latency in seconds for one pod, PostFilter included.",
            _ALPHA,
            buckets=_ATTEMPT,
        )
        self.sli_duration = self.histogram(
            "pod_scheduling_sli_duration_seconds",
            "Latency in seconds from the first time a pod enters the queue ungated until it is bound, by attempts.",
            _BETA,
            "attempts",
            buckets=exponential_buckets(0.01, 2, 20),
        )
        self.pod_attempts = self.histogram(
            "pod_scheduling_attempts",
            "Number of attempts to successfully schedule a pod.",
            _STABLE,
            buckets=exponential_buckets(1, 2, 5),
        )
        self.gang_attempts = self.counter(
            "podgroup_schedule_attempts_total",
            "Number of attempts to schedule pod groups, by result.",
            _ALPHA,
            "result",
            "profile",
        )
        self.gang_attempt_duration = self.histogram(
            "podgroup_scheduling_attempt_duration_seconds",
            "Pod group scheduling attempt latency in seconds, until all its pods are assigned or requeued.",
            _ALPHA,
            "result",
            "profile",
            buckets=_ATTEMPT,
        )
        self.gang_algorithm_duration = self.histogram(
            "podgroup_scheduling_algorithm_duration_seconds",
            "Scheduling algorithm latency in seconds for one pod group.",
            _ALPHA,
            buckets=_ATTEMPT,
        )
        self.scheduled_after_flush = self.counter(
            "pod_scheduled_after_flush_total",
            "Number of pods scheduled after the flush of unschedulable pods; indicates missed events.",
            _ALPHA,
        )

    def _add_queue(self) -> None:
        self.incoming_pods = self.counter(
            "queue_incoming_pods_total",
            "Number of pods added to the scheduling queues, by queue and event.",
            _STABLE,
            "queue",
            "event",
        )
        self.hint_duration = self.histogram(
            "queueing_hint_execution_duration_seconds",
            "Latency in seconds of a queueing hint function of a plugin.",
            _ALPHA,
            "plugin",
            "event",
            "hint",
            buckets=_PLUGIN,
        )
        self.event_duration = self.histogram(
            "event_handling_duration_seconds",
            "Event handling latency in seconds, including the move of pods in the queue.",
            _ALPHA,
            "event",
            buckets=_EXTENSION_POINT,
        )

    def _add_framework(self) -> None:
        self.extension_point_duration = self.histogram(
            "framework_extension_point_duration_seconds",
            "Latency in seconds of all plugins of an extension point.",
            _STABLE,
            "extension_point",
            "status",
            "profile",
            buckets=_EXTENSION_POINT,
        )
        self.plugin_duration = self.histogram(
            "plugin_execution_duration_seconds",
            "Latency in seconds of one plugin call for any number of nodes, sampled in every tenth scheduling cycle.",
            _ALPHA,
            "plugin",
            "extension_point",
            "status",
            buckets=_PLUGIN,
        )
        self.plugin_evaluations = self.counter(
            "plugin_evaluation_total",
            "Number of plugin calls, each for any number of nodes; cached results are not counted.",
            _BETA,
            "plugin",
            "extension_point",
            "profile",
        )
        self.permit_wait_duration = self.histogram(
            "permit_wait_duration_seconds",
            "Duration in seconds of waiting on permit.",
            _BETA,
            "result",
            buckets=_ATTEMPT,
        )
        self.volume_stage_errors = self.counter(
            "volume_scheduling_stage_error_total",
            "Number of volume scheduling errors, by stage.",
            _ALPHA,
            "operation",
        )
        self.claim_creations = self.counter(
            "resourceclaim_creates_total",
            "Number of ResourceClaims created for extended resources of pods, by result.",
            _ALPHA,
            "status",
        )
        self.device_wait_ended = self.counter(
            "dra_bindingconditions_allocations_total",
            "Number of attempts that waited for binding conditions of devices, by driver and result.",
            _ALPHA,
            "profile",
            "driver",
            "status",
        )
        self.device_wait_duration = self.histogram(
            "dra_bindingconditions_wait_duration_seconds",
            "Duration in seconds of waiting for binding conditions of devices.",
            _ALPHA,
            "profile",
            "driver",
            "status",
            buckets=exponential_buckets(0.1, 2, 14),
        )

    def _add_preemption(self) -> None:
        self.preemption_attempts = self.counter("preemption_attempts_total", "Number of preemption attempts.", _STABLE)
        self.preemption_victims = self.histogram(
            "preemption_victims",
            "Number of victims selected by one preemption.",
            _STABLE,
            buckets=exponential_buckets(1, 2, 7),
        )
        self.evictions_duration = self.histogram(
            "preemption_goroutines_duration_seconds",
            "Duration in seconds of the background task that evicts the victims of one preemption.",
            _ALPHA,
            "result",
            buckets=exponential_buckets(0.01, 2, 20),
        )
        self.evictions = self.counter(
            "preemption_goroutines_execution_total",
            "Number of background tasks that evicted the victims of one preemption, by result.",
            _ALPHA,
            "result",
        )

    def _add_requests(self) -> None:
        self.writes = self.counter(
            "async_api_call_execution_total",
            "Number of write requests to the API server, by call type and result; each try is counted.",
            _ALPHA,
            "call_type",
            "result",
        )
        self.write_duration = self.histogram(
            "async_api_call_execution_duration_seconds",
            "Duration in seconds of write requests to the API server, each try by itself.",
            _ALPHA,
            "call_type",
            "result",
            buckets=_ATTEMPT,
        )
        self.client_requests = self.counter(
            "rest_client_requests_total",
            "Number of HTTP requests, by status code, method, and host.",
            _ALPHA,
            "code",
            "method",
            "host",
            prefix="",
        )
        self.client_duration = self.histogram(
            "rest_client_request_duration_seconds",
            "Request latency in seconds until the response headers, by verb and host.",
            _ALPHA,
            "verb",
            "host",
            buckets=_REQUEST,
            prefix="",
        )
        self.dropped_events = self.counter(
            "kubestow_events_dropped_total",
            "Number of Kubernetes events that were not written because too many were waiting to be written.",
            _ALPHA,
            prefix="",
        )

    def record_client_request(self, method: str, host: str, code: str, seconds: float) -> None:
        """Count a request to an API server; ``code`` is the status, or ``<error>`` without a response."""
        self.client_requests.labels(code, method, host).value += 1
        self.client_duration.labels(method, host).observe(seconds)

    def record_dropped_event(self) -> None:
        """Count a Kubernetes event that is lost."""
        self.dropped_events.labels().value += 1
