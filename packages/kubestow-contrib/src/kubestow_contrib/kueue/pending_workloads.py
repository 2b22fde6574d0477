"""The Workloads that wait for quota, in the order in which they are considered.

A ClusterQueue has *active* Workloads, of which the first one is the head, and *inadmissible* ones, which were tried and
wait until quota may be free again. With ``StrictFIFO`` a Workload that was tried stays the head; with
``BestEffortFIFO`` it makes way for the next, and all that equal it with it. (Source: Kueue ``pkg/cache/queue``.)
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum, auto

from kubestow_contrib.kueue.quota_tree import CohortNode, QuotaNode, root_of
from kubestow_contrib.kueue.workload_info import WorkloadInfo, seconds_of


class Requeue(Enum):
    """Why a Workload goes back to its queue, which decides where to."""

    GENERIC = auto()
    FAILED_AFTER_NOMINATION = auto()
    NAMESPACE_MISMATCH = auto()
    PENDING_PREEMPTION = auto()
    NO_FIT = auto()
    NO_PREEMPTION_CANDIDATES = auto()


_IMMEDIATE = (Requeue.FAILED_AFTER_NOMINATION, Requeue.PENDING_PREEMPTION)
_CONCERNS_ALL_EQUAL = (Requeue.NO_FIT, Requeue.NO_PREEMPTION_CANDIDATES)

LocalQueueUsage = Callable[[tuple[str, str]], float]
"""The decayed usage by weight of a LocalQueue, named by namespace and name."""


@dataclass
class PendingQueue:
    """The waiting Workloads of one ClusterQueue.

    ``usage`` is given where admission fair sharing orders Workloads: those of LocalQueues that used less come first.
    """

    is_strict: bool = False
    usage: LocalQueueUsage | None = None
    inadmissible: dict[str, WorkloadInfo] = field(default_factory=dict)
    _active: dict[str, WorkloadInfo] = field(default_factory=dict, init=False)
    #: The keys of active Workloads in order, by LocalQueue; those of Workloads that left included.
    _heaps: dict[tuple[str, str], list[tuple[tuple[float, float, str, str], str]]] = field(
        default_factory=dict, init=False
    )
    #: A Workload that waits for the end of those that it preempts; it is the next one of a BestEffortFIFO queue.
    _preemptor: str = field(default="", init=False)
    _refused_shapes: set[object] = field(default_factory=set, init=False)
    _pops: int = field(default=0, init=False)
    _requeued_at_pop: int = field(default=-1, init=False)

    def active(self) -> list[WorkloadInfo]:
        """The active Workloads in order; the head is the first."""
        return sorted(self._active.values(), key=self._order)

    def waiting(self) -> list[WorkloadInfo]:
        """All Workloads: the active ones in order, then the inadmissible ones in the same order."""
        return [*self.active(), *sorted(self.inadmissible.values(), key=self._order)]

    def _order(self, info: WorkloadInfo) -> tuple[float, bool, tuple[float, float, str, str]]:
        used = 0.0 if self.usage is None else self.usage(info.local_queue)
        return used, info.key != self._preemptor, _age(info)

    def push(self, info: WorkloadInfo, now: float) -> None:
        """Add a Workload that was created, or that lost its quota."""
        if _must_wait(info, now) or (not self.is_strict and info.shape in self._refused_shapes):
            self.inadmissible[info.key] = info
        else:
            self._activate(info)

    def pop(self) -> WorkloadInfo | None:
        """Take the head."""
        self._pops += 1
        heads = []
        for queue, heap in self._heaps.items():
            while heap and (heap[0][1] not in self._active or heap[0][0] != _age(self._active[heap[0][1]])):
                heapq.heappop(heap)
            if heap:
                used = 0.0 if self.usage is None else self.usage(queue)
                heads.append((used, True, heap[0][0], heap[0][1]))
        if preemptor := self._active.get(self._preemptor):
            heads.append((*self._order(preemptor), preemptor.key))
        return self._active.pop(min(heads)[-1]) if heads else None

    def requeue(self, info: WorkloadInfo, why: Requeue, now: float) -> None:
        """Put the head back after it was tried and not admitted."""
        if why is Requeue.PENDING_PREEMPTION:
            self._preemptor = "" if self.is_strict else info.key
        immediate = why is not Requeue.NAMESPACE_MISMATCH if self.is_strict else why in _IMMEDIATE
        goes_on = info.scan is not None and info.scan.is_unfinished
        if not _must_wait(info, now) and (immediate or self._requeued_at_pop >= self._pops or goes_on):
            self._activate(info)
            return
        self.inadmissible[info.key] = info
        if not self.is_strict and why in _CONCERNS_ALL_EQUAL:
            self._refused_shapes.add(info.shape)
            for other in [one for one in self._active.values() if one.shape == info.shape]:
                self.inadmissible[other.key] = self._active.pop(other.key)

    def retry_inadmissible(self, now: float, is_eligible: Callable[[WorkloadInfo], bool] = lambda info: True) -> int:
        """Make inadmissible Workloads active again, after quota may have become free; how many that were."""
        self._requeued_at_pop = self._pops
        self._refused_shapes.clear()
        moved = [info for info in self.inadmissible.values() if is_eligible(info) and not _must_wait(info, now)]
        for info in moved:
            self._activate(self.inadmissible.pop(info.key))
        return len(moved)

    def _activate(self, info: WorkloadInfo) -> None:
        self._active[info.key] = info
        heapq.heappush(self._heaps.setdefault(info.local_queue, []), (_age(info), info.key))


def _age(info: WorkloadInfo) -> tuple[float, float, str, str]:
    """Higher priority first, then the oldest."""
    return -info.priority, info.queued_at, info.uid, info.key


def _must_wait(info: WorkloadInfo, now: float) -> bool:
    """Whether a Workload backs off, or may not be queued again yet."""
    status = info.workload.status
    if any(one.type == "Requeued" and one.status == "False" for one in status.conditions):
        return True
    again = status.requeue_state.requeue_at
    return again is not None and seconds_of(again) > now


def queues_of_tree(node: QuotaNode) -> Iterable[str]:
    """The names of the ClusterQueues that may admit more when quota of one becomes free: all of its tree."""
    root = root_of(node)
    return [one.name for one in root.subtree_queues()] if isinstance(root, CohortNode) else [root.name]
