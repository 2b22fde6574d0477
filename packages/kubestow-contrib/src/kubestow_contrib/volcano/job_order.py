"""The order of queues and of their jobs: the queue with the lowest share comes first, and then its first job.

Jobs are subqueues of the active queue, because both orders change whenever a pod is placed. Each queue keeps a heap of
its jobs. A key that has grown since is put right when its job is the first; one that has shrunk, when a pod of the job
enters the active queue again. Pods that are no concern of Volcano's are one subqueue, before all jobs.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Collection, Hashable
from typing import Any

from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.interface import SubqueueOrder
from kubestow_contrib.volcano.accounts import Accounts, Job, JobKey, QueueAccount
from kubestow_contrib.volcano.configuration import VolcanoConfiguration
from kubestow_contrib.volcano.fair_share import dominant_share

__all__ = ["JobOrder"]

#: The subqueue of pods without a job.
_OTHERS = JobKey("", "")
#: A heap with fewer entries than this is not cleaned.
_MIN_CLEANED = 64


class JobOrder(SubqueueOrder):
    """Orders jobs as the plugins of the configuration do: priority, gang and drf by tiers, proportion for queues."""

    def __init__(self, configuration: VolcanoConfiguration, accounts: Accounts) -> None:
        self._accounts = accounts
        tiers = configuration.in_order("jobOrder", ("priority", "gang", "drf"))
        self._job_orders = list(itertools.chain.from_iterable(tiers))
        self._orders_queues = configuration.enabled("proportion", "queueOrder")
        #: The jobs of each queue, with the keys they had and their tickets.
        self._heaps: dict[str, list[tuple[Any, JobKey, int]]] = {}
        #: The ticket of the entry of each job that counts; others are stale.
        self._tickets: dict[JobKey, int] = {}
        self._next_ticket = itertools.count()
        self._pushed, self._limit = 0, _MIN_CLEANED

    # -- keys --------------------------------------------------------------------------------------------------------

    def queue_key(self, queue: QueueAccount) -> tuple[Any, ...]:
        """The place of a queue among queues; the lowest is first."""
        rules = self._accounts.rules.get(queue.name)
        if rules is None:
            return 0, 0.0, "", queue.name
        if not self._orders_queues:
            return 0, 0.0, rules.created, queue.name
        return -rules.priority, queue.share, rules.created, queue.name

    def job_key(self, job: Job) -> tuple[Any, ...]:
        """The place of a job among those of its queue; the lowest is first."""
        key: list[Any] = []
        for plugin in self._job_orders:
            if plugin == "priority":
                key.append(-job.priority)
            elif plugin == "gang":
                key.append(len(job.placed) >= job.min_member)
            else:
                key.append(dominant_share(job.allocated, self._accounts.total))
        return (*key, job.created, job.key)

    # -- subqueues ---------------------------------------------------------------------------------------------------

    def subqueue_of(self, pod: PodInfo) -> JobKey:
        """The job of a pod."""
        job = self._accounts.job(pod)
        return _OTHERS if job is None else job.key

    def opened(self, subqueue: Hashable) -> None:
        """Give a job an entry in the heap of its queue, with its present key."""
        job = self._accounts.jobs.get(subqueue)  # type: ignore[call-overload]
        if job is not None:
            self._push(job)
        if self._pushed > self._limit:
            self._clean()

    def first(self, subqueues: Collection[Hashable]) -> Hashable:
        """The first job of the first queue that has one among the ``subqueues``."""
        if _OTHERS in subqueues:
            return _OTHERS
        self._accounts.refresh()
        queues = self._accounts.queues
        while self._heaps:
            known = [queue for name in self._heaps if (queue := queues.get(name)) is not None]
            name = min(known, key=self.queue_key).name if known else next(iter(self._heaps))
            if (job := self._first_of(name, subqueues)) is not None:
                return job.key
            del self._heaps[name]
        return next(iter(subqueues))

    def _first_of(self, queue: str, subqueues: Collection[Hashable]) -> Job | None:
        heap = self._heaps[queue]
        while heap:
            key, name, ticket = heap[0]
            job = self._accounts.jobs.get(name)
            if self._tickets.get(name) != ticket:
                heapq.heappop(heap)
            elif job is None or name not in subqueues:
                heapq.heappop(heap)
                del self._tickets[name]
            elif job.queue != queue:
                heapq.heappop(heap)
                self._push(job)
            elif key != (current := self.job_key(job)):
                heapq.heapreplace(heap, (current, name, ticket))
            else:
                return job
        return None

    def _push(self, job: Job) -> None:
        ticket = self._tickets[job.key] = next(self._next_ticket)
        self._pushed += 1
        heapq.heappush(self._heaps.setdefault(job.queue, []), (self.job_key(job), job.key, ticket))

    def _clean(self) -> None:
        """Drop stale entries, and those of jobs that do not exist any more."""
        self._tickets = {name: ticket for name, ticket in self._tickets.items() if name in self._accounts.jobs}
        for queue, heap in list(self._heaps.items()):
            heap[:] = [entry for entry in heap if self._tickets.get(entry[1]) == entry[2]]
            heapq.heapify(heap)
            if not heap:
                del self._heaps[queue]
        self._pushed, self._limit = 0, max(_MIN_CLEANED, len(self._tickets))
