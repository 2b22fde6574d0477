"""The scheduling queue: how many pods wait where, which come next, and groups that wait for the same reason.

Pods are listed up to a number per place, those that are tried next first; groups count all of them.
"""

from __future__ import annotations

import heapq
from typing import Any

from kubestow.dashboard.queue_rows import WAITING_ON_PERMIT, QueueRows, Reason, next_first
from kubestow.dashboard.sections.section import WholeSection
from kubestow.scheduling.queued_pod import Place, QueuedPod
from kubestow.scheduling.scheduler import Scheduler

__all__ = ["QueueSection"]

#: Pods listed per place, groups, and example pods of a group.
_MOST_PODS, _MOST_GROUPS, _MOST_EXAMPLES = 50, 100, 5


class QueueSection(WholeSection):
    """The queue and the pods after it."""

    name = "queue"

    def __init__(self, scheduler: Scheduler, rows: QueueRows) -> None:
        super().__init__()
        self._scheduler, self._rows = scheduler, rows
        #: Groups by reason as they were sent, without what changes: the texts are made once.
        self._texts: dict[Reason, dict[str, Any]] = {}

    def _read(self) -> dict[str, Any]:
        by_place: dict[Place, list[QueuedPod]] = {place: [] for place in Place}
        by_reason: dict[Reason, list[QueuedPod]] = {}
        for queued in self._scheduler.queue.pods.values():
            by_place[queued.place].append(queued)
            if queued.place is not Place.ACTIVE:
                by_reason.setdefault(self._rows.reason(queued), []).append(queued)
        waiting, in_flight = list(self._rows.waiting_on_permit()), list(self._rows.in_flight())
        counts: dict[str, int] = {place.value: len(pods) for place, pods in by_place.items()}
        counts |= {Place.IN_FLIGHT.value: len(in_flight), WAITING_ON_PERMIT: len(waiting)}
        next_pods = [heapq.nsmallest(_MOST_PODS, pods, key=next_first) for pods in by_place.values()]
        return {
            "counts": counts,
            "groups": self._groups(by_reason),
            "pods": [
                *(self._rows.queued(queued) for pods in next_pods for queued in pods),
                *waiting[:_MOST_PODS],
                *in_flight[:_MOST_PODS],
            ],
        }

    def _groups(self, by_reason: dict[Reason, list[QueuedPod]]) -> list[dict[str, Any]]:
        """The largest groups, each with the texts that its pods have in common."""
        largest = heapq.nlargest(_MOST_GROUPS, by_reason.items(), key=lambda item: len(item[1]))
        self._texts = {reason: self._texts.get(reason) or self._rows.describe(reason) for reason, _ in largest}
        return [
            {
                **self._texts[reason],
                "count": len(pods),
                "oldest": self._rows.time(min(queued.timestamp for queued in pods)),
                "examples": [queued.info.key for queued in pods[:_MOST_EXAMPLES]],
            }
            for reason, pods in largest
        ]
