"""What is written on a pod about its scheduling: events, the PodScheduled condition, and its nomination.

Nothing here waits: events go to the recorder, status changes to the dispatcher (semantics 1.7, 5.9).
"""

from __future__ import annotations

from kubestow import config
from kubestow.api.core import PodCondition
from kubestow.api.formats.timestamps import timestamp
from kubestow.api.reports import REASON_SCHEDULER_ERROR, REASON_UNSCHEDULABLE, ConditionType, EventType
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.status import Status
from kubestow.scheduling.api_calls.dispatcher import Dispatcher
from kubestow.scheduling.environment import Environment
from kubestow.scheduling.interfaces import EventRecord, PodStatusPatch, reference

_SCHEDULED = EventType(
    "Scheduled", "Binding", "Successfully assigned {pod} to {node}", help="The pod is bound to the node."
)
_FAILED_SCHEDULING = EventType(
    "FailedScheduling",
    "Scheduling",
    "{message}",
    type="Warning",
    help="An attempt to schedule the pod failed, or the pod is held back. The note is the message of the condition.",
)
_POD_SCHEDULED = ConditionType(
    "PodScheduled",
    "Pod",
    {
        #: A pod that no plugin rejected, because there are no nodes, is retried after a backoff instead.
        REASON_UNSCHEDULABLE: "The pod fits on no node, or a plugin rejected it or holds it back. It is retried after"
        " an event that may help, and after some minutes in any case.",
        REASON_SCHEDULER_ERROR: "A plugin, an extender or the API server failed. The pod is retried after a backoff.",
    },
)


class PodReports:
    """Writes events, conditions and nominations of pods."""

    def __init__(self, environment: Environment, dispatcher: Dispatcher, gates: config.FeatureGates) -> None:
        self._api, self._clock, self._dispatcher = environment.api, environment.clock, dispatcher
        self._nominates_before_binding = gates.enabled("NominatedNodeNameForExpectation")
        self._tracks_generation = gates.enabled("PodObservedGenerationTracking")

    def record_binding(self, pod: PodInfo, node_name: str) -> None:
        """Record a Scheduled event: the pod is bound."""
        note = _SCHEDULED.note.format(pod=pod.key, node=node_name)
        self._api.record(pod_event(pod, _SCHEDULED.reason, _SCHEDULED.action, note))

    def record_failure(self, pod: PodInfo, message: str) -> None:
        """Record a FailedScheduling event: an attempt failed, or none is made."""
        event = _FAILED_SCHEDULING
        self._api.record(pod_event(pod, event.reason, event.action, event.note.format(message=message), event.type))

    def report_unscheduled(self, pod: PodInfo, reason: str, message: str, nomination: str | None) -> None:
        """Set the PodScheduled condition to False, and the nomination (None leaves it alone, "" clears it)."""
        conditions = (c for c in pod.status.conditions if c.type == _POD_SCHEDULED.type and c.status == "False")
        current = next(conditions, None)
        condition = PodCondition(
            type=_POD_SCHEDULED.type,
            status="False",
            reason=reason,
            message=message,
            observed_generation=condition_generation(pod, _POD_SCHEDULED, always=self._tracks_generation),
            last_transition_time=timestamp(self._clock.now()) if current is None else current.last_transition_time,
        )
        self._dispatcher.patch_status(reference(pod), PodStatusPatch((condition,), nomination))

    def nominate_expected(self, pod: PodInfo, node_name: str) -> None:
        """Nominate the node that a pod is about to be bound to (gate NominatedNodeNameForExpectation)."""
        if self._nominates_before_binding:
            self._dispatcher.patch_status(reference(pod), PodStatusPatch(nominated_node_name=node_name))


def condition_generation(pod: PodInfo, condition: ConditionType, *, always: bool) -> int:
    """The ``observedGeneration`` of a condition of a pod, 0 for none: without the gate PodObservedGenerationTracking
    (not ``always``) it is kept up to date where it is set.
    """
    is_set = always or any(c.type == condition.type and c.observed_generation for c in pod.status.conditions)
    return pod.metadata.generation if is_set else 0


def pod_event(pod: PodInfo, reason: str, action: str, note: str, kind: str = "Normal") -> EventRecord:
    """An event about a pod, reported by its scheduler."""
    return EventRecord(
        regarding=reference(pod),
        reason=reason,
        action=action,
        note=note,
        type=kind,
        reporting_controller=pod.spec.scheduler_name,
    )


def condition_reason(status: Status) -> str:
    """The reason of the PodScheduled condition after a status that is no success."""
    return REASON_UNSCHEDULABLE if status.code.is_rejection else REASON_SCHEDULER_ERROR
