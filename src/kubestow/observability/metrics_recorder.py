"""What passes in the scheduler, counted: the observer that moves the metrics.

Everything here is called for every pod, so what a call needs is looked up once and kept: one dictionary access and an
addition are the rule. Asks of single plugins are measured in every tenth scheduling cycle (semantics 10.3); that they
happened is always counted.
"""

from __future__ import annotations

from typing import Any

from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import PluginError
from kubestow.framework.observer import PluginObserver
from kubestow.framework.status import Code, Status, Verdict
from kubestow.observability.instruments import CounterCell, HistogramCell
from kubestow.observability.metrics import SchedulerMetrics
from kubestow.scheduling.decision.pipeline import Decision
from kubestow.scheduling.observer import Call, Observer, Result
from kubestow.scheduling.queue.queued_pod import QueuedPod

__all__ = ["MetricsRecorder"]

#: One scheduling cycle in so many is measured plugin by plugin.
_SAMPLED = 10
#: Extension points at which it is counted how often plugins are asked.
_EVALUATED = frozenset({"PreFilter", "Filter", "PreScore", "Score"})
_VOLUME_STAGES = {"Filter": "predicate", "Reserve": "assume", "PreBind": "bind"}
_MANY_ATTEMPTS = 15
_SUCCESS, _ERROR = Code.SUCCESS.value, Code.ERROR.value


class MetricsRecorder(Observer):
    """Moves the metrics of one scheduler."""

    def __init__(self, metrics: SchedulerMetrics) -> None:
        self.metrics = metrics
        #: Whether the asks of single plugins are measured now.
        self.sampling = False
        self._cycles = 0
        self._algorithm = metrics.algorithm_duration.at()
        self._pod_attempts = metrics.pod_attempts.at()
        self._written: dict[tuple[Call, bool], tuple[CounterCell, HistogramCell]] = {}

    def of_profile(self, scheduler_name: str) -> PluginObserver:
        return _ProfileRecorder(self, scheduler_name)

    def attempted(self, decision: Decision, seconds: float) -> None:
        self._cycles += 1
        self.sampling = self._cycles % _SAMPLED == 0
        self._algorithm.observe(seconds)

    def ended(self, queued: QueuedPod, result: Result, message: str, seconds: float) -> None:
        profile = queued.info.spec.scheduler_name
        self.metrics.schedule_attempts.at(result, profile).value += 1
        self.metrics.attempt_duration.at(result, profile).observe(seconds)

    def bound(self, queued: QueuedPod, node_name: str, seconds: float) -> None:
        attempts = queued.attempts
        self._pod_attempts.observe(attempts)
        told = str(attempts) if attempts < _MANY_ATTEMPTS else f"{_MANY_ATTEMPTS}+"
        self.metrics.sli_duration.at(told).observe(seconds)
        if queued.was_flushed:
            self.metrics.scheduled_after_flush.at().value += 1

    def waited(self, info: PodInfo, code: Code, seconds: float) -> None:
        self.metrics.permit_wait_duration.at(code.value).observe(seconds)

    def preempted(self, preemptor: PodInfo, node_name: str, victims: int) -> None:
        self.metrics.preemption_victims.at().observe(victims)

    def evicted(self, preemptor: PodInfo, *, succeeded: bool, seconds: float) -> None:
        result = "success" if succeeded else "error"
        self.metrics.evictions.at(result).value += 1
        self.metrics.evictions_duration.at(result).observe(seconds)

    def written(self, call: Call, *, succeeded: bool, seconds: float) -> None:
        cells = self._written.get((call, succeeded))
        if cells is None:
            labels, metrics = (call.value, "success" if succeeded else "error"), self.metrics
            cells = self._written[call, succeeded] = metrics.writes.at(*labels), metrics.write_duration.at(*labels)
        cells[0].value += 1
        cells[1].observe(seconds)

    def claim_created(self, *, succeeded: bool) -> None:
        self.metrics.claim_creations.at("success" if succeeded else "failure").value += 1

    def device_wait_ended(self, pod: PodInfo, driver: str, outcome: str, seconds: float) -> None:
        labels = (pod.spec.scheduler_name, driver, outcome)
        self.metrics.device_wait_ended.at(*labels).value += 1
        self.metrics.device_wait_duration.at(*labels).observe(seconds)

    def enqueued(self, place: str, event: str) -> None:
        self.metrics.incoming_pods.at(place, event).value += 1

    def hinted(self, plugin: str, event: str, hint: str, seconds: float) -> None:
        self.metrics.hint_duration.at(plugin, event, hint).observe(seconds)

    def handled(self, event: str, seconds: float) -> None:
        self.metrics.event_duration.at(event).observe(seconds)


class _Asked:
    """What moves when one plugin is asked at one extension point."""

    __slots__ = ("attempts", "durations", "evaluations", "failures", "is_special", "prepares_scoring")

    def __init__(self, metrics: SchedulerMetrics, plugin: str, extension_point: str, profile: str) -> None:
        evaluated = extension_point in _EVALUATED
        preempts = (plugin, extension_point) == ("DefaultPreemption", "PostFilter")
        binds_volumes = plugin == "VolumeBinding" and extension_point in _VOLUME_STAGES
        self.evaluations: CounterCell = (
            metrics.plugin_evaluations.at(plugin, extension_point, profile) if evaluated else CounterCell()
        )
        self.attempts = metrics.preemption_attempts.at() if preempts else None
        self.failures = metrics.volume_stage_errors.at(_VOLUME_STAGES[extension_point]) if binds_volumes else None
        self.durations: dict[str, HistogramCell] = {}
        self.prepares_scoring = extension_point == "PreScore"
        #: Whether anything but ``evaluations`` moves outside of measured cycles.
        self.is_special = preempts or binds_volumes or self.prepares_scoring


class _ProfileRecorder(PluginObserver):
    def __init__(self, recorder: MetricsRecorder, profile: str) -> None:
        self._recorder, self._metrics, self._profile = recorder, recorder.metrics, profile
        self._asked: dict[tuple[str, str], _Asked] = {}
        self._points: dict[tuple[str, str], HistogramCell] = {}
        #: Seconds spent in PreScore of the cycle under way: the runtime asks for it and for Score alternately.
        self._preparing = 0.0

    def asked(self, plugin: str, extension_point: str, answer: Any, seconds: float) -> None:
        key = (plugin, extension_point)
        asked = self._asked.get(key)
        if asked is None:
            asked = self._asked[key] = _Asked(self._metrics, plugin, extension_point, self._profile)
        asked.evaluations.value += 1
        if asked.is_special:
            self._count(asked, answer, seconds)
        if self._recorder.sampling:
            self._measure(asked, key, answer, seconds)

    def _count(self, asked: _Asked, answer: Any, seconds: float) -> None:
        if asked.prepares_scoring:
            self._preparing += seconds
        if asked.attempts is not None:
            asked.attempts.value += 1
        if asked.failures is not None and _failed(answer):
            asked.failures.value += 1

    def _measure(self, asked: _Asked, key: tuple[str, str], answer: Any, seconds: float) -> None:
        code = _code(answer)
        if code is None:
            return
        cell = asked.durations.get(code)
        if cell is None:
            cell = asked.durations[code] = self._metrics.plugin_duration.at(*key, code)
        cell.observe(seconds)

    def passed(self, extension_point: str, code: Code, seconds: float) -> None:
        if extension_point == "Score":
            self._point("PreScore", _SUCCESS).observe(self._preparing)
            seconds = max(0.0, seconds - self._preparing)
            self._preparing = 0.0
        cell = self._points.get((extension_point, code._value_))
        if cell is None:
            cell = self._point(extension_point, code._value_)
        cell.observe(seconds)

    def attempt_ended(self, outcome: str, seconds: float, *, deciding: float | None) -> None:
        self._metrics.gang_attempts.at(outcome, self._profile).value += 1
        self._metrics.gang_attempt_duration.at(outcome, self._profile).observe(seconds)
        if deciding is not None:
            self._metrics.gang_algorithm_duration.at().observe(deciding)

    def _point(self, extension_point: str, status: str) -> HistogramCell:
        key = (extension_point, status)
        cell = self._points.get(key)
        if cell is None:
            cell = self._points[key] = self._metrics.extension_point_duration.at(*key, self._profile)
        return cell


def _failed(answer: Any) -> bool:
    kind = type(answer)
    if kind is Status:
        return answer.code is Code.ERROR
    return kind is PluginError or (kind is Verdict and answer.has_errors and _code(answer) == _ERROR)


def _code(answer: Any) -> str | None:
    """The status that an answer amounts to; None for one that is still to come."""
    kind = type(answer)
    if kind is Status:
        return answer.code._value_  # type: ignore[no-any-return]
    if kind is Verdict:
        return _verdict_code(answer)
    if kind is PluginError:
        return _ERROR
    status = getattr(answer, "status", None)  # PostFilter and Permit answer with more than a status
    if isinstance(status, Status):
        return str(status.code.value)
    return None if hasattr(answer, "__await__") else _SUCCESS


def _verdict_code(verdict: Verdict) -> str:
    """Many nodes in one word: a success when any of them passes."""
    passes = verdict.passes
    if verdict.has_errors and any(status.code is Code.ERROR for status, _ in verdict.tally(~passes)):
        return _ERROR
    return _SUCCESS if passes.any() or not len(passes) else Code.UNSCHEDULABLE.value
