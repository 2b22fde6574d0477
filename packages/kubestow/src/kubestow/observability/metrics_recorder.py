"""The observer that updates the metrics.

Its methods run for every pod, so cells are looked up once and cached: most calls are one dictionary access and one
addition. The duration of single plugin calls is sampled in every tenth scheduling cycle (semantics 10.3); the number of
calls is always counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import PluginError
from kubestow.framework.runtime.plugin_caller import PluginObserver
from kubestow.framework.status import Code, Status, Verdict
from kubestow.observability.instruments import CounterCell, HistogramCell
from kubestow.observability.metrics import SchedulerMetrics
from kubestow.rules.minors import Behaviour
from kubestow.scheduling.decision.result import Decision
from kubestow.scheduling.observer import Call, Disruption, Observer, Offer, Preemptor, Result
from kubestow.scheduling.queued_pod import QueuedPod

#: One in this many scheduling cycles records the durations of single plugin calls.
_SAMPLING_INTERVAL = 10
#: The extension points of plugin_evaluation_total.
_EVALUATED = frozenset({"PreFilter", "Filter", "PreScore", "Score"})
_VOLUME_STAGES = {"Filter": "predicate", "Reserve": "assume", "PreBind": "bind"}
_MAX_ATTEMPTS_LABEL = 15
#: The labels of events before ``EVENT_LABELS_NAME_RESOURCE_AND_ACTION`` that are not those of the events as they are
#: now without the API group.
_FORMER_LABELS = {
    "NodeUpdateNodeAllocatable": "NodeAllocatableChange",
    "NodeUpdateNodeLabel": "NodeLabelChange",
    "NodeUpdateNodeTaint": "NodeTaintChange",
    "NodeUpdateNodeCondition": "NodeConditionChange",
    "NodeUpdateNodeAnnotation": "NodeAnnotationChange",
    "AssignedPodUpdatePodLabel": "PodLabelChange",
    "AssignedPodUpdatePodScaleDown": "PodRequestScaledDown",
    "PersistentVolumeAdd": "PvAdd",
    "PersistentVolumeUpdate": "PvUpdate",
    "PersistentVolumeClaimAdd": "PvcAdd",
    "PersistentVolumeClaimUpdate": "PvcUpdate",
}
#: The same where pods enter the queue.
_FORMER_QUEUE_LABELS = {"UnschedulablePodAdd": "PodAdd", "UnschedulablePodUpdate": "PodUpdate"}
#: The labels since ``EVENT_LABELS_NAME_UNSCHEDULED_PODS`` begin otherwise: updates are those of the pod itself.
_NEWER_BEGINNINGS = {
    "UnschedulablePodAdd": "UnscheduledPodAdd",
    "UnschedulablePodDelete": "UnscheduledPodDelete",
    "UnschedulablePodUpdate": "TargetPodUpdate",
}
_SUCCESS, _ERROR = Code.SUCCESS.value, Code.ERROR.value


class MetricsRecorder(Observer):
    """Updates the metrics of one scheduler."""

    def __init__(self, metrics: SchedulerMetrics) -> None:
        self.metrics = metrics
        #: Whether the durations of single plugin calls are recorded in this cycle.
        self.sampling = False
        self._cycles = 0
        self._algorithm_duration = metrics.algorithm_duration.labels()
        self._pod_attempts = metrics.pod_attempts.labels()
        has_pre_flight = metrics.minor.has(Behaviour.PRE_BIND_PRE_FLIGHT_IS_MEASURED)
        #: The extension points that the emulated minor version does not measure.
        self.unmeasured: frozenset[str] = frozenset() if has_pre_flight else frozenset({"PreBindPreFlight"})
        #: None where it does not exist.
        self._scheduling_duration = (
            metrics.scheduling_duration if metrics.scheduling_duration in metrics.families else None
        )
        has_group_preemption = metrics.group_preemption_victims in metrics.families
        #: The victims of groups, which count as those of pods where they have no metric of their own.
        self._group_victims = metrics.group_preemption_victims if has_group_preemption else metrics.preemption_victims
        self._writes: dict[tuple[Call, bool], tuple[CounterCell, HistogramCell]] = {}

    def plugin_observer(self, scheduler_name: str) -> PluginObserver:
        return _ProfileRecorder(self, scheduler_name)

    def decision_made(self, decision: Decision, seconds: float) -> None:
        self._cycles += 1
        self.sampling = self._cycles % _SAMPLING_INTERVAL == 0
        self._algorithm_duration.observe(seconds)

    def attempt_ended(self, queued: QueuedPod, result: Result, message: str, seconds: float) -> None:
        profile = queued.info.spec.scheduler_name
        self.metrics.schedule_attempts.labels(profile, result).value += 1
        self.metrics.attempt_duration.labels(profile, result).observe(seconds)

    def attempt_over_budget(self, queued: QueuedPod, plugin: str, extension_point: str, seconds: float) -> None:
        self.metrics.slow_attempts.labels(plugin, extension_point).value += 1

    def offer_ended(self, offer: Offer) -> None:
        self.metrics.partition_offers.labels(offer).value += 1

    def partition_handed_over(self) -> None:
        self.metrics.partition_hand_overs.labels().value += 1

    def pod_bound(self, queued: QueuedPod, node_name: str, seconds: float) -> None:
        attempts = queued.attempts
        self._pod_attempts.observe(attempts)
        label = str(attempts) if attempts < _MAX_ATTEMPTS_LABEL else f"{_MAX_ATTEMPTS_LABEL}+"
        self.metrics.sli_duration.labels(label).observe(seconds)
        if self._scheduling_duration is not None:
            self._scheduling_duration.labels(label).observe(seconds)
        if queued.was_flushed:
            self.metrics.scheduled_after_flush.labels().value += 1

    def permit_wait_ended(self, info: PodInfo, code: Code, seconds: float) -> None:
        self.metrics.permit_wait_duration.labels(code.value).observe(seconds)

    def preemption_started(
        self, preemptors: Sequence[PodInfo], node_name: str, victims: Sequence[PodInfo], disruption: Disruption
    ) -> None:
        preemptor = disruption.preemptor
        metric = self._group_victims if preemptor is Preemptor.POD_GROUP else self.metrics.preemption_victims
        metric.labels().observe(len(victims))
        if disruption.group_units:
            self.metrics.group_disruptions.labels(preemptor).observe(disruption.group_units)
        if disruption.violations:
            self.metrics.budget_violations.labels(preemptor).value += disruption.violations

    def evictions_ended(self, preemptor: PodInfo, *, kind: Preemptor, succeeded: bool, seconds: float) -> None:
        result = "success" if succeeded else "error"
        self.metrics.preemption_execution_duration.labels(kind, result).observe(seconds)
        self.metrics.evictions.labels(result).value += 1
        self.metrics.evictions_duration.labels(result).observe(seconds)

    def api_call_ended(self, call: Call, *, succeeded: bool, seconds: float) -> None:
        cells = self._writes.get((call, succeeded))
        if cells is None:
            labels, metrics = (call.value, "success" if succeeded else "error"), self.metrics
            cells = metrics.writes.labels(*labels), metrics.write_duration.labels(*labels)
            self._writes[call, succeeded] = cells
        cells[0].value += 1
        cells[1].observe(seconds)

    def claim_created(self, *, succeeded: bool) -> None:
        status = "success" if succeeded else "failure"
        self.metrics.claim_creations.labels(status).value += 1
        self.metrics.claim_creations_by_access.labels("false", status).value += 1

    def device_wait_ended(self, pod: PodInfo, driver: str, outcome: str, seconds: float) -> None:
        labels = (driver, pod.spec.scheduler_name, outcome)
        self.metrics.device_wait_ended.labels(*labels).value += 1
        self.metrics.device_wait_duration.labels(*labels).observe(seconds)

    def pod_enqueued(self, place: str, event: str) -> None:
        self.metrics.incoming_pods.labels(event, place).value += 1

    def group_enqueued(self, place: str, event: str, pods: int) -> None:
        self.metrics.incoming_pods.labels(event, place).value += pods
        self.metrics.incoming_entities.labels(event, place, "podgroup").value += 1

    def group_joined(self, place: str, event: str) -> None:
        self.metrics.incoming_pods.labels(event, place).value += 1

    def event_handled(self, event: str, seconds: float) -> None:
        self.metrics.event_duration.labels(event).observe(seconds)

    def event_handler_failed(self, kind: str) -> None:
        self.metrics.handler_failures.labels(kind).value += 1


class _PluginCells:
    """The cells that a call of one plugin at one extension point updates."""

    __slots__ = ("attempts", "durations", "errors", "evaluations", "is_pre_score", "is_special")

    def __init__(self, metrics: SchedulerMetrics, plugin: str, extension_point: str, profile: str) -> None:
        is_preemption = (plugin, extension_point) == ("DefaultPreemption", "PostFilter")
        is_volume_stage = plugin == "VolumeBinding" and extension_point in _VOLUME_STAGES
        self.evaluations: CounterCell = (
            metrics.plugin_evaluations.labels(extension_point, plugin, profile)
            if extension_point in _EVALUATED
            else CounterCell()
        )
        self.attempts = metrics.preemption_attempts.labels() if is_preemption else None
        self.errors = metrics.volume_stage_errors.labels(_VOLUME_STAGES[extension_point]) if is_volume_stage else None
        self.durations: dict[str, HistogramCell] = {}
        self.is_pre_score = extension_point == "PreScore"
        #: Whether a call updates more than ``evaluations`` in cycles that are not sampled.
        self.is_special = is_preemption or is_volume_stage or self.is_pre_score


class _ProfileRecorder(PluginObserver):
    def __init__(self, recorder: MetricsRecorder, profile: str) -> None:
        self._recorder, self._metrics, self._profile = recorder, recorder.metrics, profile
        self._plugin_cells: dict[tuple[str, str], _PluginCells] = {}
        self._points: dict[tuple[str, str], HistogramCell] = {}
        #: Seconds in PreScore of this cycle; the runtime calls PreScore and Score of each plugin in turn.
        self._pre_score_seconds = 0.0

    @property
    def is_sampling(self) -> bool:  # type: ignore[override]  # changes from cycle to cycle
        """Whether durations of single plugin calls are recorded in this cycle."""
        return self._recorder.sampling

    def plugin_called(self, plugin: str, extension_point: str, result: Any, seconds: float) -> None:
        key = (plugin, extension_point)
        cells = self._plugin_cells.get(key)
        if cells is None:
            cells = self._plugin_cells[key] = _PluginCells(self._metrics, plugin, extension_point, self._profile)
        cells.evaluations.value += 1
        if cells.is_special:
            if cells.is_pre_score:
                self._pre_score_seconds += seconds
            if cells.attempts is not None:
                cells.attempts.value += 1
                evaluation = self._metrics.preemption_evaluation_duration
                evaluation.labels(Preemptor.POD, _code(result) or _SUCCESS).observe(seconds)
            if cells.errors is not None and _is_error(result):
                cells.errors.value += 1
        if self._recorder.sampling:
            self._sample(cells, plugin, extension_point, result, seconds)

    def _sample(self, cells: _PluginCells, plugin: str, extension_point: str, result: Any, seconds: float) -> None:
        code = _code(result)
        if code is None:
            return
        cell = cells.durations.get(code)
        if cell is None:
            durations = self._metrics.plugin_duration
            is_measured = extension_point not in self._recorder.unmeasured
            cell = durations.labels(extension_point, plugin, code) if is_measured else durations.new_cell()
            cells.durations[code] = cell
        cell.observe(seconds)

    def extension_point_ended(self, extension_point: str, code: Code, seconds: float) -> None:
        if extension_point == "Score":
            self._point("PreScore", _SUCCESS).observe(self._pre_score_seconds)
            seconds = max(0.0, seconds - self._pre_score_seconds)
            self._pre_score_seconds = 0.0
        cell = self._points.get((extension_point, code._value_))
        if cell is None:
            cell = self._point(extension_point, code._value_)
        cell.observe(seconds)

    def queueing_hint_called(self, plugin: str, event: str, hint: str, seconds: float) -> None:
        self._metrics.hint_duration.labels(event, hint, plugin).observe(seconds)

    def gang_preemption_ended(self, code: Code, *, evaluating: float | None) -> None:
        self._metrics.group_preemption_attempts.labels(code.value).value += 1
        if evaluating is not None:
            self._metrics.preemption_evaluation_duration.labels(Preemptor.POD_GROUP, code.value).observe(evaluating)

    def gang_attempt_ended(self, outcome: str, seconds: float, *, deciding: float | None) -> None:
        self._metrics.gang_attempts.labels(self._profile, outcome).value += 1
        self._metrics.gang_attempt_duration.labels(self._profile, outcome).observe(seconds)
        if deciding is not None:
            self._metrics.gang_algorithm_duration.labels().observe(deciding)

    def _point(self, extension_point: str, status: str) -> HistogramCell:
        cell = self._points.get((extension_point, status))
        if cell is None:
            durations = self._metrics.extension_point_duration
            is_measured = extension_point not in self._recorder.unmeasured
            cell = durations.labels(extension_point, self._profile, status) if is_measured else durations.new_cell()
            self._points[extension_point, status] = cell
        return cell


# -- labels of other minor versions --------------------------------------------------------------------------------


def metrics_recorder(metrics: SchedulerMetrics) -> MetricsRecorder:
    """The recorder of metrics with the labels of their minor version."""
    if not metrics.minor.has(Behaviour.EVENT_LABELS_NAME_RESOURCE_AND_ACTION):
        return _RecorderOfOtherLabels(metrics, _former_label, _former_queue_label)
    if metrics.minor.has(Behaviour.EVENT_LABELS_NAME_UNSCHEDULED_PODS):
        return _RecorderOfOtherLabels(metrics, _newer_label, _newer_label)
    return MetricsRecorder(metrics)


class _RecorderOfOtherLabels(MetricsRecorder):
    """A recorder that gives events labels of its own: ``label``, and ``queue_label`` where pods enter the queue."""

    def __init__(
        self, metrics: SchedulerMetrics, label: Callable[[str], str], queue_label: Callable[[str], str]
    ) -> None:
        super().__init__(metrics)
        self.label, self._queue_label = label, queue_label
        self._counts_entities = metrics.incoming_entities in metrics.families

    def plugin_observer(self, scheduler_name: str) -> PluginObserver:
        return _ProfileRecorderOfOtherLabels(self, scheduler_name)

    def pod_enqueued(self, place: str, event: str) -> None:
        super().pod_enqueued(place, label := self._queue_label(event))
        if self._counts_entities:
            self.metrics.incoming_entities.labels(label, place, "pod").value += 1

    def group_enqueued(self, place: str, event: str, pods: int) -> None:
        super().group_enqueued(place, self._queue_label(event), pods)

    def group_joined(self, place: str, event: str) -> None:
        super().group_joined(place, self._queue_label(event))

    def event_handled(self, event: str, seconds: float) -> None:
        super().event_handled(self.label(event), seconds)


class _ProfileRecorderOfOtherLabels(_ProfileRecorder):
    def __init__(self, recorder: _RecorderOfOtherLabels, profile: str) -> None:
        super().__init__(recorder, profile)
        self._label = recorder.label

    def queueing_hint_called(self, plugin: str, event: str, hint: str, seconds: float) -> None:
        super().queueing_hint_called(plugin, self._label(event), hint, seconds)


def _former_label(event: str) -> str:
    return _FORMER_LABELS.get(event, event.rpartition("/")[2])


def _former_queue_label(event: str) -> str:
    return _FORMER_QUEUE_LABELS.get(event) or _former_label(event)


@cache
def _newer_label(event: str) -> str:
    for beginning, newer in _NEWER_BEGINNINGS.items():
        if event.startswith(beginning):
            return newer + event.removeprefix(beginning)
    return event


# -- codes of results ----------------------------------------------------------------------------------------------


def _is_error(result: Any) -> bool:
    kind = type(result)
    if kind is Status:
        return result.code is Code.ERROR
    return kind is PluginError or (kind is Verdict and result.has_errors and _code(result) == _ERROR)


def _code(result: Any) -> str | None:
    """The status code that a plugin's result stands for; None for an awaitable. The result is not validated yet."""
    try:
        return _code_of_result(result)
    except Exception:
        return _ERROR


def _code_of_result(result: Any) -> str | None:
    kind = type(result)
    if kind is Status:
        return result.code._value_  # type: ignore[no-any-return]
    if kind is Verdict:
        # One code for all nodes: success if any node passes.
        passes = result.passes
        if result.has_errors and any(status.code is Code.ERROR for status, _, _ in result.tally(~passes)):
            return _ERROR
        return _SUCCESS if passes.any() or not len(passes) else Code.UNSCHEDULABLE.value
    if kind is PluginError:
        return _ERROR
    status = getattr(result, "status", None)  # the results of PostFilter and Permit contain a status
    if isinstance(status, Status):
        return str(status.code.value)
    return None if hasattr(result, "__await__") else _SUCCESS
