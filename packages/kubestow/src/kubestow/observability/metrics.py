"""All metrics of a scheduler process: names, labels, buckets and stability are kube-scheduler's (semantics 10).

Those whose names begin with ``kubestow_`` are our own.

:mod:`kubestow.observability.metrics_recorder` updates counters and histograms,
:mod:`kubestow.observability.state_gauges` adds the gauges. Each :class:`SchedulerMetrics` has a registry of its own.

Not exposed, because nothing here corresponds to them: ``batch_*``, ``get_node_hint_*`` and ``store_schedule_results_*``
(results are cached per plugin, not as node lists), ``volume_binder_cache_requests_total`` (there is no such cache) and
``go_*``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from prometheus_client import GCCollector, ProcessCollector

from kubestow.observability.instruments import LabelAllowList, MetricDefinition, MetricSet, ReadCounter
from kubestow.observability.log_writer import dropped_lines
from kubestow.rules.minors import DEFAULT_MINOR, Minor


class SchedulerMetrics(MetricSet):
    """The metrics of a scheduler. With ``process`` they include the process and GC metrics of prometheus_client."""

    def __init__(
        self,
        *,
        disabled: Collection[str] = (),
        allowed: Mapping[str, LabelAllowList] | None = None,
        process: bool = True,
        minor: Minor = DEFAULT_MINOR,
    ) -> None:
        super().__init__(disabled=disabled, allowed=allowed, minor=minor)
        self._add_attempts()
        self._add_framework()
        self._add_requests()
        self.add_serving()
        if process:
            ProcessCollector(registry=self.registry)
            GCCollector(registry=self.registry)

    def _add_attempts(self) -> None:
        self.schedule_attempts = self.counter(
            "scheduler_schedule_attempts_total", "Number of attempts to schedule pods, by result."
        )
        self.attempt_duration = self.histogram(
            "scheduler_scheduling_attempt_duration_seconds",
            "Scheduling attempt latency in seconds, from the pop of the pod until it is bound or requeued.",
        )
        self.slow_attempts = self.counter(
            "kubestow_slow_attempts_total",
            "Number of scheduling cycles of more than a second, by the plugin that took most of it and where.",
            MetricDefinition(labels=("plugin", "extension_point")),
        )
        self.partition_offers = self.counter(
            "kubestow_partition_offers_total",
            "Number of pods offered to the schedulers of other partitions, by result.",
            MetricDefinition(labels=("result",)),
        )
        self.partition_hand_overs = self.counter(
            "kubestow_partition_hand_overs_total",
            "Number of partitions that were handed over to another scheduler.",
            MetricDefinition(),
        )
        self.algorithm_duration = self.histogram(
            "scheduler_scheduling_algorithm_duration_seconds",
            "Scheduling algorithm latency in seconds for one pod, PostFilter included.",
        )
        self.sli_duration = self.histogram(
            "scheduler_pod_scheduling_sli_duration_seconds",
            "Latency in seconds from the first time a pod enters the queue ungated until it is bound, by attempts.",
        )
        self.scheduling_duration = self.histogram(
            "scheduler_pod_scheduling_duration_seconds",
            "Latency in seconds from the first time a pod enters the queue ungated until it is bound, by attempts.",
        )
        self.pod_attempts = self.histogram(
            "scheduler_pod_scheduling_attempts", "Number of attempts to successfully schedule a pod."
        )
        self.gang_attempts = self.counter(
            "scheduler_podgroup_schedule_attempts_total", "Number of attempts to schedule pod groups, by result."
        )
        self.gang_attempt_duration = self.histogram(
            "scheduler_podgroup_scheduling_attempt_duration_seconds",
            "Pod group scheduling attempt latency in seconds, until all its pods are assigned or requeued.",
        )
        self.gang_algorithm_duration = self.histogram(
            "scheduler_podgroup_scheduling_algorithm_duration_seconds",
            "Scheduling algorithm latency in seconds for one pod group.",
        )
        self.scheduled_after_flush = self.counter(
            "scheduler_pod_scheduled_after_flush_total",
            "Number of pods scheduled after the flush of unschedulable pods; indicates missed events.",
        )
        self.incoming_pods = self.counter(
            "scheduler_queue_incoming_pods_total", "Number of pods added to the scheduling queues, by queue and event."
        )
        self.incoming_entities = self.counter(
            "scheduler_queue_incoming_entities_total",
            "Number of pods and of pod groups added to the scheduling queues as entities, by queue and event.",
        )
        self.hint_duration = self.histogram(
            "scheduler_queueing_hint_execution_duration_seconds",
            "Latency in seconds of a queueing hint function of a plugin.",
        )
        self.event_duration = self.histogram(
            "scheduler_event_handling_duration_seconds",
            "Event handling latency in seconds, including the move of pods in the queue.",
        )
        self.handler_failures = self.counter(
            "kubestow_event_handler_failures_total",
            "Number of objects whose event handler failed, by kind; the log names them.",
            MetricDefinition(labels=("kind",)),
        )

    def _add_framework(self) -> None:
        self.extension_point_duration = self.histogram(
            "scheduler_framework_extension_point_duration_seconds",
            "Latency in seconds of all plugins of an extension point.",
        )
        self.plugin_duration = self.histogram(
            "scheduler_plugin_execution_duration_seconds",
            "Latency in seconds of one plugin call for any number of nodes, sampled in every tenth scheduling cycle.",
        )
        self.plugin_evaluations = self.counter(
            "scheduler_plugin_evaluation_total",
            "Number of plugin calls, each for any number of nodes; cached results are not counted.",
        )
        self.permit_wait_duration = self.histogram(
            "scheduler_permit_wait_duration_seconds", "Duration in seconds of waiting on permit."
        )
        self.volume_stage_errors = self.counter(
            "scheduler_volume_scheduling_stage_error_total", "Number of volume scheduling errors, by stage."
        )
        self.claim_creations = self.counter(
            "scheduler_resourceclaim_creates_total",
            "Number of ResourceClaims created for extended resources of pods, by result.",
        )
        self.claim_creations_by_access = self.counter(
            "dynamic_resource_allocation_resourceclaim_creates_total",
            "Number of ResourceClaims created for extended resources of pods, by result; none has admin access.",
        )
        self.device_wait_ended = self.counter(
            "scheduler_dra_bindingconditions_allocations_total",
            "Number of attempts that waited for binding conditions of devices, by driver and result.",
        )
        self.device_wait_duration = self.histogram(
            "scheduler_dra_bindingconditions_wait_duration_seconds",
            "Duration in seconds of waiting for binding conditions of devices.",
        )
        self.preemption_attempts = self.counter("scheduler_preemption_attempts_total", "Number of preemption attempts.")
        self.preemption_victims = self.histogram(
            "scheduler_preemption_victims", "Number of victims selected by one preemption."
        )
        self.group_preemption_attempts = self.counter(
            "scheduler_workload_preemption_attempts_total", "Number of preemption attempts for pod groups, by result."
        )
        self.group_preemption_victims = self.histogram(
            "scheduler_workload_preemption_victims", "Number of victims selected by one preemption for a pod group."
        )
        self.preemption_evaluation_duration = self.histogram(
            "scheduler_preemption_evaluation_duration_seconds",
            "Duration in seconds of choosing the victims of a preemption, by what it is for and status code.",
        )
        self.preemption_execution_duration = self.histogram(
            "scheduler_preemption_execution_duration_seconds",
            "Duration in seconds of evicting the victims of a preemption, by what it is for and result.",
        )
        self.group_disruptions = self.histogram(
            "scheduler_preemption_workload_disruptions",
            "Number of pod groups that one preemption evicts as a whole, and of single pods of other groups.",
        )
        self.budget_violations = self.counter(
            "scheduler_preemption_pdb_violations_total",
            "Number of victims of preemption whose eviction violates a disruption budget.",
        )
        self.evictions_duration = self.histogram(
            "scheduler_preemption_goroutines_duration_seconds",
            "Duration in seconds of the background task that evicts the victims of one preemption.",
        )
        self.evictions = self.counter(
            "scheduler_preemption_goroutines_execution_total",
            "Number of background tasks that evicted the victims of one preemption, by result.",
        )

    def _add_requests(self) -> None:
        self.writes = self.counter(
            "scheduler_async_api_call_execution_total",
            "Number of write requests to the API server, by call type and result; each try is counted.",
        )
        self.write_duration = self.histogram(
            "scheduler_async_api_call_execution_duration_seconds",
            "Duration in seconds of write requests to the API server, each try by itself.",
        )
        self.client_requests = self.counter(
            "rest_client_requests_total", "Number of HTTP requests, by status code, method, and host."
        )
        self.client_duration = self.histogram(
            "rest_client_request_duration_seconds",
            "Request latency in seconds until the response headers, by verb and host.",
        )
        self.dropped_events = self.counter(
            "kubestow_events_dropped_total",
            "Number of Kubernetes events that were not written because too many were waiting to be written.",
            MetricDefinition(),
        )
        self.traced_attempts = self.counter(
            "kubestow_traced_attempts_total",
            "Number of records of traced attempts by result: exported, failed if the collector did not accept their"
            " spans, dropped if too many were waiting to be exported.",
            MetricDefinition(labels=("result",)),
        )

        self.add(
            ReadCounter(
                "kubestow_log_lines_dropped_total",
                "Number of log lines that were not written because the reader of the log did not read.",
                read=dropped_lines,
            )
        )

    def record_client_request(self, method: str, host: str, code: str, seconds: float) -> None:
        """Count a request to an API server; ``code`` is the status, or ``<error>`` without a response."""
        self.client_requests.labels(code, host, method).value += 1
        self.client_duration.labels(host, method).observe(seconds)

    def record_traces(self, result: str, records: int) -> None:
        """Count records of traced attempts: ``exported``, ``failed`` or ``dropped``."""
        self.traced_attempts.labels(result).value += records

    def record_dropped_event(self) -> None:
        """Count a Kubernetes event that is lost."""
        self.dropped_events.labels().value += 1
