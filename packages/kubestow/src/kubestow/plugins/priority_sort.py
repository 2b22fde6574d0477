"""PrioritySort orders the active queue by priority, then by the time of queueing (semantics 8.2)."""

from __future__ import annotations

from kubestow.framework.interface import Queued, QueueSortPlugin


class PrioritySort(QueueSortPlugin):
    """Pods of higher priority first; among equals, the pod that entered the queue earlier."""

    name = "PrioritySort"
    events_to_register = ()

    def sort_key(self, queued: Queued) -> tuple[int, float]:
        """Negative priority, then the time of queueing in seconds."""
        return -queued.info.priority, queued.timestamp
