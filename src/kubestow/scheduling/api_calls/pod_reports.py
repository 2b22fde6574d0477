"""What is written on a pod about its scheduling: events, the PodScheduled condition, and its nomination.

Nothing here waits: events go to the recorder, status changes to the dispatcher (semantics 1.7, 5.9).
"""

from __future__ import annotations

from kubestow import config
from kubestow.api.core import PodCondition
from kubestow.api.formats.timestamps import timestamp
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.status import Status
from kubestow.scheduling.api_calls.dispatcher import Dispatcher
from kubestow.scheduling.environment import Environment
from kubestow.scheduling.interfaces import EventRecord, PodStatusPatch, reference

__all__ = ["PodReports", "condition_reason", "pod_event"]


class PodReports:
    """Writes events, conditions and nominations of pods."""

    def __init__(self, environment: Environment, dispatcher: Dispatcher, gates: config.FeatureGates) -> None:
        self._api, self._clock, self._dispatcher = environment.api, environment.clock, dispatcher
        self._nominates_before_binding = gates.enabled("NominatedNodeNameForExpectation")

    def bound(self, pod: PodInfo, node_name: str) -> None:
        """A Scheduled event: the pod is bound."""
        self._api.record(pod_event(pod, "Scheduled", "Binding", f"Successfully assigned {pod.key} to {node_name}"))

    def failed(self, pod: PodInfo, message: str) -> None:
        """A FailedScheduling event: an attempt failed, or none is made."""
        self._api.record(pod_event(pod, "FailedScheduling", "Scheduling", message, "Warning"))

    def pending(self, pod: PodInfo, reason: str, message: str, nomination: str | None) -> None:
        """Set the PodScheduled condition to False, and the nomination (None leaves it alone, "" clears it)."""
        conditions = (c for c in pod.status.conditions if c.type == "PodScheduled" and c.status == "False")
        current = next(conditions, None)
        condition = PodCondition(
            type="PodScheduled",
            status="False",
            reason=reason,
            message=message,
            observed_generation=pod.metadata.generation,
            last_transition_time=timestamp(self._clock.now()) if current is None else current.last_transition_time,
        )
        self._dispatcher.patch_status(reference(pod), PodStatusPatch((condition,), nomination))

    def expected_on(self, pod: PodInfo, node_name: str) -> None:
        """Nominate the node that a pod is about to be bound to (gate NominatedNodeNameForExpectation)."""
        if self._nominates_before_binding:
            self._dispatcher.patch_status(reference(pod), PodStatusPatch(nominated_node_name=node_name))


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
    return "Unschedulable" if status.code.is_rejection else "SchedulerError"
