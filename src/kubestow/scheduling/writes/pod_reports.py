"""What a pod is told: the events about it, and the condition that says why it is pending (semantics 1.7, 5.9)."""

from __future__ import annotations

from kubestow.api.core import PodCondition
from kubestow.api.timestamps import timestamp
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.status import Status
from kubestow.scheduling.ports import Clock, ClusterAPI, EventRecord, PodStatusPatch, reference
from kubestow.scheduling.writes.dispatcher import Dispatcher

__all__ = ["Reports", "event_of", "reason_of"]


class Reports:
    """Writes down what becomes of pods. Nothing here waits."""

    def __init__(self, api: ClusterAPI, dispatcher: Dispatcher, clock: Clock) -> None:
        self._api, self._dispatcher, self._clock = api, dispatcher, clock

    def bound(self, info: PodInfo, node_name: str) -> None:
        """The pod has its node for good."""
        self._api.record(event_of(info, "Scheduled", "Binding", f"Successfully assigned {info.key} to {node_name}"))

    def failed(self, info: PodInfo, message: str) -> None:
        """An event: an attempt has failed, or is not made."""
        self._api.record(event_of(info, "FailedScheduling", "Scheduling", message, "Warning"))

    def pending(self, info: PodInfo, reason: str, message: str, nomination: str | None) -> None:
        """Put the PodScheduled condition and the nomination on the pod, as far as they change."""
        pending = (c for c in info.status.conditions if c.type == "PodScheduled" and c.status == "False")
        current = next(pending, None)
        condition = PodCondition(
            type="PodScheduled",
            status="False",
            reason=reason,
            message=message,
            observed_generation=info.metadata.generation,
            last_transition_time=timestamp(self._clock.now()) if current is None else current.last_transition_time,
        )
        self._dispatcher.patch_status(reference(info), PodStatusPatch((condition,), nomination))


def event_of(info: PodInfo, reason: str, action: str, note: str, kind: str = "Normal") -> EventRecord:
    """An event about a pod, in the name of its scheduler."""
    return EventRecord(
        regarding=reference(info),
        reason=reason,
        action=action,
        note=note,
        type=kind,
        reporting_controller=info.spec.scheduler_name,
    )


def reason_of(status: Status) -> str:
    """The reason of the condition of a pod that was not scheduled."""
    return "Unschedulable" if status.code.is_rejection else "SchedulerError"
