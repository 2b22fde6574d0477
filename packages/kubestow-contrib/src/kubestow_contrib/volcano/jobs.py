"""The order of queues and of their jobs, asked for at every pop, and which jobs are admitted (action enqueue)."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Collection, Hashable
from datetime import datetime
from typing import Any

from kubestow.api.formats.int64 import exact_sum
from kubestow.cluster.cache import Cluster
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.interface import SubqueueOrder
from kubestow_contrib.shares import Amounts, dominant_share
from kubestow_contrib.volcano.accounts import Accounts, Job, JobKey, QueueAccount
from kubestow_contrib.volcano.configuration import VolcanoConfiguration

#: The subqueue of pods without a job.
_OTHERS = JobKey("", "")
#: A heap with fewer entries than this is not cleaned.
_MIN_CLEANED = 64


class JobOrder(SubqueueOrder):
    """Orders jobs as the plugins of the configuration do: priority, gang and drf by tiers, proportion for queues."""

    def __init__(self, configuration: VolcanoConfiguration, accounts: Accounts) -> None:
        self._accounts = accounts
        self._waiting_time = configuration.waiting_time
        tiers = configuration.in_order("jobOrder", ("priority", "gang", "drf", "sla"))
        self._job_orders = list(itertools.chain.from_iterable(tiers))
        plugins = ("proportion", "capacity")
        self._orders_queues = any(configuration.enabled(plugin, "queueOrder") for plugin in plugins)
        #: The jobs of each queue, with the keys they had and their tickets.
        self._heaps: dict[str, list[tuple[Any, JobKey, int]]] = {}
        #: The ticket of the entry of each job that counts; others are stale.
        self._tickets: dict[JobKey, int] = {}
        self._next_ticket = itertools.count()
        self._pushed, self._limit = 0, _MIN_CLEANED

    # -- keys --------------------------------------------------------------------------------------------------------

    def queue_key(self, queue: QueueAccount) -> tuple[Any, ...]:
        """The place of a queue among queues; the lowest is first."""
        rules = self._accounts.queues.rules.get(queue.name)
        if rules is None:
            return 0, 0.0, False, "", queue.name
        if not self._orders_queues:
            return 0, 0.0, False, rules.created, queue.name
        # With capacity, a queue that deserves nothing comes after all that have not got what they deserve.
        deserves_nothing = self._accounts.queues.shares.are_specified and not any(queue.deserved.values())
        share = 1.0 if deserves_nothing else queue.share
        return -rules.priority, share, deserves_nothing, rules.created, queue.name

    def job_key(self, job: Job) -> tuple[Any, ...]:
        """The place of a job among those of its queue; the lowest is first."""
        key: list[Any] = []
        for plugin in self._job_orders:
            if plugin == "priority":
                key.append(-job.priority)
            elif plugin == "sla":
                key.append(self.deadline(job))
            elif plugin == "gang":
                key.append(len(job.placed) >= job.min_member)
            else:
                key.append(dominant_share(job.allocated, self._accounts.queues.total))
        return (*key, job.created, job.key)

    def deadline(self, job: Job) -> float:
        """When a job has waited as long as it may, in seconds since the Unix epoch; infinite without a limit."""
        waiting_time = job.waiting_time or self._waiting_time
        if waiting_time is None or not job.created:
            return math.inf
        try:
            return datetime.fromisoformat(job.created).timestamp() + waiting_time
        except ValueError:
            return math.inf

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
        queues = self._accounts.queues.accounts
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


class Enqueueing:
    """Admits jobs."""

    def __init__(
        self,
        configuration: VolcanoConfiguration,
        cluster: Cluster,
        accounts: Accounts,
        order: JobOrder,
        now: Callable[[], datetime],
    ) -> None:
        self._now = now
        tiers = configuration.in_order("jobEnqueued", ("sla", "proportion", "capacity", "overcommit"))
        #: Up to the tier of sla: what is in a later tier does not keep a job waiting beyond its deadline.
        self._tiers_of_overdue = list(itertools.dropwhile(lambda tier: "sla" not in tier, reversed(tiers)))
        self._cluster, self._accounts, self._order = cluster, accounts, order
        self._is_enabled = "enqueue" in configuration.actions
        self._limiting_queues = "capacity" if accounts.queues.shares.are_specified else "proportion"
        self._limits_queues = configuration.enabled(self._limiting_queues, "jobEnqueued")
        self._limits_cluster = configuration.enabled("overcommit", "jobEnqueued")
        self._factor = configuration.overcommit_factor
        self._has_admitted_overdue = False
        self._freed = -1
        #: The jobs that were not admitted since something became free, with the reason.
        self._refused: dict[tuple[str, ...], str] = {}

    def admit(self, job: Job) -> str:
        """Admit a job if its queue and the cluster have room; empty once it is admitted, else why it is not."""
        self._accounts.update()
        if problem := self._problem(job):
            return problem
        if job.is_admitted:
            return ""
        if self._freed != self._accounts.freed:
            self._freed = self._accounts.freed
            self._refused.clear()
            self._consider_all()
        if not job.is_admitted and (job.key not in self._refused or self._is_overdue(job)):
            self._consider(job)
        return "" if job.is_admitted else self._refused[job.key]

    def admit_overdue(self) -> bool:
        """Admit the jobs that have waited as long as they may; whether any has been since the last call."""
        for job in list(self._accounts.jobs.values()):
            if not job.is_admitted and self._is_overdue(job):
                self.admit(job)
        admitted, self._has_admitted_overdue = self._has_admitted_overdue, False
        return admitted

    def _is_overdue(self, job: Job) -> bool:
        return bool(self._tiers_of_overdue) and self._now().timestamp() >= self._order.deadline(job)

    def _problem(self, job: Job) -> str:
        """Why a job can never be admitted as it is and as its queue is; empty if it can."""
        if job.problem or not job.queue:
            return job.problem or f"PodGroup {job.key} does not exist"
        rules = self._accounts.queues.rules.get(job.queue)
        if rules is None:
            kind = "pod" if job.key.uid else "PodGroup"
            return f"Queue {job.queue} of {kind} {job.key} does not exist"
        return rules.problem or self._accounts.queues.problem_in_hierarchy(job.queue)

    def _consider_all(self) -> None:
        if not self._is_enabled:
            return
        self._accounts.refresh()
        queues = self._accounts.queues
        existing = [queue for queue in queues.accounts.values() if queue.name in queues.rules]
        for queue in sorted(existing, key=self._order.queue_key):
            waiting = [job for job in queue.jobs.values() if not job.is_admitted]
            for job in sorted(waiting, key=self._order.job_key):
                if not self._problem(job):
                    self._consider(job)

    def _consider(self, job: Job) -> None:
        lacking = ""
        if self._is_enabled and job.min_resources is not None:
            lacking = self._lacking(job, job.min_resources)
        if lacking:
            self._refused[job.key] = lacking
        else:
            self._accounts.admit(job)
            self._has_admitted_overdue = self._has_admitted_overdue or self._is_overdue(job)

    def _lacking(self, job: Job, least: Amounts) -> str:
        """Where there is no room for the minimum resources of a job; empty if there is."""
        queues, least = self._accounts.queues, {name: amount for name, amount in least.items() if amount}
        binding = {self._limiting_queues, "overcommit"}
        if self._is_overdue(job):
            binding &= set(itertools.chain.from_iterable(self._tiers_of_overdue))
        if self._limits_queues and self._limiting_queues in binding:
            # What admitted jobs use beyond their minimum is elastic, and does not count.
            for queue in queues.lineage(job.queue):
                if queue not in queues.rules:
                    continue
                most = queues.capability(queue)
                own = queues.accounts[queue].admitted_minimum if queue == job.queue else None
                used = queues.used_below(queue, "admitted_minimum") if own is None else own
                full = [name for name in least if least[name] + used.get(name, 0) > most.get(name, 0)]
                if full:
                    return f"Queue {queue} has no room for spec.minResources of PodGroup {job.key}: {', '.join(full)}"
        if self._limits_cluster and "overcommit" in binding:
            table, unused = self._cluster.nodes, queues.unused_minimum
            requested = {name: exact_sum(table.requested[name].readonly) + unused.get(name, 0) for name in least}
            total = queues.total
            full = [name for name in least if least[name] + requested[name] > self._factor * total.get(name, 0)]
            if full:
                return f"the cluster has no room for spec.minResources of PodGroup {job.key}: {', '.join(full)}"
        return ""
