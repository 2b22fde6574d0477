"""The active queue of a QueueSort plugin with lanes: a heap per lane, and the plugin names the next at every pop.

A heap keeps the order that its keys had when they were pushed. Lanes are for orders that depend on what has been
scheduled meanwhile, such as the shares of queues (:class:`kubestow.framework.interface.Lanes`).
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from kubestow.framework.runtime import FrameworkRuntime
from kubestow.scheduling.queue.heap import PodHeap
from kubestow.scheduling.queued_pod import Place, QueuedPod

__all__ = ["PodLanes"]


class PodLanes:
    """The pods of activeQ by lane. ``sort`` is the runtime of the QueueSort plugin."""

    def __init__(self, sort: FrameworkRuntime) -> None:
        self._sort = sort
        self._heaps: dict[Hashable, PodHeap] = {}

    def __bool__(self) -> bool:
        """Whether there is a pod."""
        while self._heaps:
            lane, heap = next(iter(self._heaps.items()))
            if heap:
                return True
            del self._heaps[lane]
        return False

    def push(self, rank: Any, ticket: int, queued: QueuedPod) -> None:
        """Move a pod here from wherever it was; ``ticket`` must be greater than any before."""
        lane = self._sort.lane_of(queued.info)
        heap = self._heaps.get(lane)
        if heap is None:
            heap = self._heaps[lane] = PodHeap(Place.ACTIVE)
            self._sort.lane_opened(lane)
        heap.push(rank, ticket, queued)

    def pop(self) -> QueuedPod | None:
        """Remove and return the first pod of the lane that is next; None when there is no pod."""
        while self._heaps:
            lane = self._sort.first_lane(self._heaps.keys())
            heap = self._heaps[lane]
            queued = heap.pop()
            if not heap:
                del self._heaps[lane]
            if queued is not None:
                return queued
        return None
