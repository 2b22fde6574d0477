"""Heaps of queued pods, ordered by the end of their backoff, then by rank, then first in, first out.

Removing a pod leaves its entry in the heap as a stale one, dropped when it reaches the top. A standby scheduler pops
nothing while pods are added and removed, so the heap is also compacted whenever it has doubled. Ranks are keys of the
QueueSort plugin; if they turn out not to be comparable, the heap stops using them.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Hashable
from typing import Any

from kubestow.framework.queueing_runtime import QueueingRuntime
from kubestow.log_fields import fields
from kubestow.scheduling.queued_pod import Place, QueuedPod

_log = logging.getLogger(__name__)

#: A heap with fewer entries than this is not compacted.
_MIN_COMPACTED = 64
#: The rank of every pod once ranks have proved not to be comparable.
_UNRANKED = (1, 0.0)
#: Fewer subqueues than this are not looked through for empty ones.
_MIN_PRUNED = 64


class PodHeap:
    """The pods of one place of the queue."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._entries: list[tuple[float, Any, int, QueuedPod]] = []
        #: How many entries there may be before the heap is compacted.
        self._limit = _MIN_COMPACTED
        self._is_ranked = True

    def __bool__(self) -> bool:
        """Whether there is a pod."""
        return self.peek() is not None

    def push(self, rank: Any, ticket: int, queued: QueuedPod, *, until: float = 0.0) -> None:
        """Move a pod here from wherever it was; ``ticket`` must be greater than any before."""
        queued.place, queued.ticket = self._place, ticket
        self._change(heapq.heappush, (until, rank if self._is_ranked else _UNRANKED, ticket, queued))
        if len(self._entries) > self._limit:
            self._compact()

    def _compact(self) -> None:
        self._entries = [entry for entry in self._entries if self._is_current(entry)]
        self._change(heapq.heapify)
        self._limit = max(_MIN_COMPACTED, 2 * len(self._entries))

    def _is_current(self, entry: tuple[float, Any, int, QueuedPod]) -> bool:
        _, _, ticket, queued = entry
        return queued.place is self._place and queued.ticket == ticket

    def peek(self) -> QueuedPod | None:
        """The first pod; None when there is none."""
        while self._entries:
            if self._is_current(self._entries[0]):
                return self._entries[0][3]
            self._change(heapq.heappop)
        return None

    def pop(self) -> QueuedPod | None:
        """Remove and return the first pod; None when there is none."""
        while self._entries:
            first = self._entries[0]
            self._change(heapq.heappop)
            if self._is_current(first):
                return first[3]
        return None

    def _change(self, change: Callable[..., Any], *entry: Any) -> None:
        """Apply a heapq operation. One that fails halfway loses no entry, only their order."""
        try:
            change(self._entries, *entry)
        except Exception:
            _log.exception(
                "keys of the QueueSort plugin cannot be compared; pods are ordered by arrival from now on",
                extra=fields(pods=len(self._entries)),
            )
            self._is_ranked = False
            self._entries = [(until, _UNRANKED, ticket, queued) for until, _, ticket, queued in self._entries]
            heapq.heapify(self._entries)


class Subqueues:
    """activeQ in subqueues: a heap for each, and the QueueSort plugin names the next one at every pop.

    A heap keeps the order that its keys had when they were pushed. Subqueues are for orders that depend on what has
    been scheduled meanwhile, such as the shares of queues (:class:`kubestow.framework.interface.SubqueueOrder`).
    ``sort`` is the runtime of the QueueSort plugin.
    """

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
