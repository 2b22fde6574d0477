"""PrioritySort orders the active queue: higher priority first, then who has waited longer (semantics 8.2)."""

from __future__ import annotations

from kubestow.framework.interface import Queued, QueueSortPlugin

__all__ = ["PrioritySort"]


class PrioritySort(QueueSortPlugin):
    """By priority, then by the time of entering the queue."""

    name = "PrioritySort"
    events_to_register = ()

    def sort_key(self, queued: Queued) -> tuple[int, float]:
        """The smallest key goes first."""
        return -queued.info.priority, queued.timestamp
