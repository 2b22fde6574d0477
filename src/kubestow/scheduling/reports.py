"""What a pod is told: the events about it, and the condition that says why it is pending (reference 1.7, 5.9)."""

from __future__ import annotations

from kubestow.api.core import PodCondition
from kubestow.api.timestamps import timestamp
from kubestow.cluster.pods import PodInfo
from kubestow.framework.status import Status
from kubestow.scheduling.ports import Clock, ClusterAPI, EventRecord, PodStatusPatch, reference
from kubestow.scheduling.status_writer import StatusWriter

__all__ = ["Reports", "event_of", "reason_of"]


class Reports:
    """Writes down what becomes of pods. Nothing here waits."""

    def __init__(self, api: ClusterAPI, statuses: StatusWriter, clock: Clock) -> None:
        self._api, self._statuses, self._clock = api, statuses, clock

    def bound(self, info: PodInfo, node_name: str) -> None:
        """The pod has its node for good."""
        self._api.record(event_of(info, "Scheduled", "Binding", f"Successfully assigned {info.key} to {node_name}"))

    def failed(self, info: PodInfo, message: str) -> None:
        """An event: an attempt has failed, or is not made."""
        self._api.record(event_of(info, "FailedScheduling", "Scheduling", message, "Warning"))

    def pending(self, info: PodInfo, reason: str, message: str, nomination: str | None) -> None:
        """Put the PodScheduled condition and the nomination on the pod, as far as they change."""
        condition = self._condition(info, reason, message)
        if nomination == info.status.nominated_node_name:
            nomination = None
        if condition is not None or nomination is not None:
            self._statuses.patch(reference(info), PodStatusPatch(condition, nomination))

    def _condition(self, info: PodInfo, reason: str, message: str) -> PodCondition | None:
        current = next((c for c in info.status.conditions if c.type == "PodScheduled"), None)
        generation = info.metadata.generation
        if current is not None and current.status == "False":
            since = current.last_transition_time
            if (current.reason, current.message, current.observed_generation) == (reason, message, generation):
                return None
        else:
            since = timestamp(self._clock.now())
        return PodCondition(
            type="PodScheduled",
            status="False",
            reason=reason,
            message=message,
            observed_generation=generation,
            last_transition_time=since,
        )


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
