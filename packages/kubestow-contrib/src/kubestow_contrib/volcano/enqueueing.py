"""The action enqueue: which jobs are admitted, so that their pods may be scheduled.

A job without minimum resources is admitted at once. Any other needs room in its queue (proportion) and in the cluster
(overcommit), where what admitted jobs have not used yet of their minimum counts as used. Jobs are considered in their
order whenever something may have become free. An admitted job stays admitted.
"""

from __future__ import annotations

from kubestow.cluster.cache import Cluster
from kubestow_contrib.volcano.accounts import Accounts, Job
from kubestow_contrib.volcano.configuration import VolcanoConfiguration
from kubestow_contrib.volcano.job_order import JobOrder
from kubestow_contrib.volcano.queues import Amounts

__all__ = ["Enqueueing"]


class Enqueueing:
    """Admits jobs."""

    def __init__(
        self, configuration: VolcanoConfiguration, cluster: Cluster, accounts: Accounts, order: JobOrder
    ) -> None:
        self._cluster, self._accounts, self._order = cluster, accounts, order
        self._is_enabled = "enqueue" in configuration.actions
        self._limits_queues = configuration.enabled("proportion", "jobEnqueued")
        self._limits_cluster = configuration.enabled("overcommit", "jobEnqueued")
        self._factor = configuration.overcommit_factor
        self._freed = -1
        #: The jobs that were not admitted since something became free, with the reason.
        self._refused: dict[tuple[str, ...], str] = {}

    def refusal(self, job: Job) -> str:
        """Why a job is not admitted; empty once it is."""
        self._accounts.update()
        if problem := self._problem(job):
            return problem
        if job.is_admitted:
            return ""
        if self._freed != self._accounts.freed:
            self._freed = self._accounts.freed
            self._refused.clear()
            self._consider_all()
        if not job.is_admitted and job.key not in self._refused:
            self._consider(job)
        return "" if job.is_admitted else self._refused[job.key]

    def _problem(self, job: Job) -> str:
        """Why a job can never be admitted as it is and as its queue is; empty if it can."""
        if job.problem or not job.queue:
            return job.problem or f"PodGroup {job.key} does not exist"
        rules = self._accounts.rules.get(job.queue)
        if rules is None:
            return f"Queue {job.queue} of {_kind(job)} {job.key} does not exist"
        return rules.problem

    def _consider_all(self) -> None:
        if not self._is_enabled:
            return
        self._accounts.refresh()
        queues = [queue for queue in self._accounts.queues.values() if queue.name in self._accounts.rules]
        for queue in sorted(queues, key=self._order.queue_key):
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

    def _lacking(self, job: Job, least: Amounts) -> str:
        """Where there is no room for the minimum resources of a job; empty if there is."""
        queue = self._accounts.queues[job.queue]
        if self._limits_queues:
            # What admitted jobs use beyond their minimum is elastic, and does not count.
            most = self._accounts.capability(queue.name)
            full = [name for name in least if least[name] + queue.admitted_minimum.get(name, 0) > most.get(name, 0)]
            if full:
                return f"Queue {queue.name} has no room for spec.minResources of PodGroup {job.key}: {', '.join(full)}"
        if self._limits_cluster:
            table, unused = self._cluster.nodes, self._accounts.unused_minimum
            used = {name: int(table.requested[name].readonly.sum()) + unused.get(name, 0) for name in least}
            total = self._accounts.total
            full = [name for name in least if least[name] + used[name] > self._factor * total.get(name, 0)]
            if full:
                return f"the cluster has no room for spec.minResources of PodGroup {job.key}: {', '.join(full)}"
        return ""


def _kind(job: Job) -> str:
    return "pod" if job.key.uid else "PodGroup"
