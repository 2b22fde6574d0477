"""The active queue in subqueues: a heap for each, and the QueueSort plugin names the next one at every pop.

A heap keeps the order that its keys had when they were pushed. Subqueues are for orders that depend on what has been
scheduled meanwhile, such as the shares of queues (:class:`kubestow.framework.interface.SubqueueOrder`).
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from kubestow.framework.queueing_runtime import QueueingRuntime
from kubestow.scheduling.queue.heap import PodHeap
from kubestow.scheduling.queued_pod import Place, QueuedPod

__all__ = ["Subqueues"]

#: Fewer subqueues than this are not looked through for empty ones.
_MIN_PRUNED = 64


class Subqueues:
    """The pods of activeQ by subqueue. ``sort`` is the runtime of the QueueSort plugin."""

    def __init__(self, sort: QueueingRuntime) -> None:
        self._sort = sort
        self._heaps: dict[Hashable, PodHeap] = {}
        #: How many subqueues there may be before those without pods are dropped.
        self._limit = _MIN_PRUNED

    def __len__(self) -> int:
        """How many subqueues there are, some of which may have lost their pods."""
        return len(self._heaps)

    def __bool__(self) -> bool:
        """Whether there is a pod."""
        while self._heaps:
            subqueue, heap = next(iter(self._heaps.items()))
            if heap:
                return True
            del self._heaps[subqueue]
        return False

    def push(self, rank: Any, ticket: int, queued: QueuedPod) -> None:
        """Move a pod here from wherever it was; ``ticket`` must be greater than any before."""
        subqueue = self._sort.subqueue_of(queued.info)
        heap = self._heaps.get(subqueue)
        if heap is None:
            heap = self._heaps[subqueue] = PodHeap(Place.ACTIVE)
            self._sort.subqueue_opened(subqueue)
        heap.push(rank, ticket, queued)
        if len(self._heaps) > self._limit:  # a standby scheduler pops nothing while pods are added and removed
            self._heaps = {name: other for name, other in self._heaps.items() if other}
            self._limit = max(_MIN_PRUNED, 2 * len(self._heaps))

    def pop(self) -> QueuedPod | None:
        """Remove and return the first pod of the subqueue that is next; None when there is no pod."""
        while self._heaps:
            subqueue = self._sort.first_subqueue(self._heaps.keys())
            heap = self._heaps[subqueue]
            queued = heap.pop()
            if not heap:
                del self._heaps[subqueue]
            if queued is not None:
                return queued
        return None
